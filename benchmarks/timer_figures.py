"""How punctual timers and delay levels are, idle and under load, and what a million take."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec

from benchmarks.brokers import RunningBroker, apache_broker, orbitmq_broker
from benchmarks.load import create_topic
from benchmarks.plan import Plan
from benchmarks.results import Result, compare
from orbitmq import LitePullConsumer, Message, Producer
from tests.apache.jars import ApacheRelease

COUNT = 300
MANY = 1_000_000
TOPIC = "bench-timers"
LOAD_TOPIC = "bench-timers-load"
STEADY = 10_000
"""Other messages a second."""
STEADY_SECONDS = 20.0


def timer_figures(apache: ApacheRelease | None) -> Iterator[Result]:
    """All of them."""
    loads: dict[str, Callable[[RunningBroker], AbstractContextManager[None]]] = {
        "idle": lambda _: nullcontext(),
        f"{STEADY:,} sends/s": _steady,
        "flood": _flood,
    }
    for under, load in loads.items():
        sides = []
        with orbitmq_broker("async") as broker, load(broker):
            sides.append(_lateness(broker))
        if apache:
            with apache_broker(apache, "async") as broker, load(broker):
                sides.append(_lateness(broker))
        for kind in ("timers", "delay level 1"):
            for name, share in (("p50", 50), ("p99", 99)):
                row = [statistics.quantiles(side[kind], n=100)[share - 1] for side in sides]
                yield compare(f"{kind}, {under}, late {name}", "ms", [row], None, less=True)
    with orbitmq_broker("async") as broker:
        before = broker.anonymous_memory()
        _send_many(broker)
        used = (broker.anonymous_memory() - before) / 2**20
        yield Result("a million pending timers, memory", "MB", used)


def _lateness(broker: RunningBroker) -> dict[str, list[float]]:
    """How late messages were stored for their consumers, ms."""
    late: dict[str, list[float]] = {"timers": [], "delay level 1": []}
    with Producer("bench", name_server=broker.name_server) as producer:
        producer.send(Message(TOPIC, b"x"))
        consumer = LitePullConsumer(
            "bench",
            name_server=broker.name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.subscribe(TOPIC, "timed")
        with consumer:
            for number in range(COUNT):
                second = (int(time.time()) + 3 + number % 3) * 1000
                producer.send(Message(TOPIC, b"%d" % second, tags="timed", deliver_at=second))
                producer.send(Message(TOPIC, b"level", tags="timed", delay_level=1))
            while sum(map(len, late.values())) < 2 * COUNT:
                for message in consumer.poll(timeout=1):
                    stored = message.store_timestamp
                    if message.body == b"level":
                        late["delay level 1"].append(stored - message.born_timestamp - 1000)
                    else:
                        late["timers"].append(stored - int(bytes(message.body)))
    return late


@contextmanager
def _steady(broker: RunningBroker) -> Iterator[None]:
    """Other messages at a steady rate, longer than is measured."""
    create_topic(broker.address, LOAD_TOPIC)
    plan = Plan("latency", broker.address, LOAD_TOPIC, size=STEADY, seconds=STEADY_SECONDS)
    command = [sys.executable, "-m", "benchmarks.generator", msgspec.json.encode(plan).decode()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as generator:
        try:
            yield
        finally:
            generator.kill()


@contextmanager
def _flood(broker: RunningBroker) -> Iterator[None]:
    """Other messages, one-way, as many as a producer gets through."""
    ended = threading.Event()

    def send() -> None:
        with Producer("bench-load", name_server=broker.name_server) as producer:
            while not ended.is_set():
                producer.send_oneway(Message(LOAD_TOPIC, bytes(100)))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _send_many(broker: RunningBroker) -> None:
    with Producer("bench-many", name_server=broker.name_server) as producer:
        for number in range(MANY):
            delay = 3600 + number % 86_400
            producer.send_async(Message(TOPIC, bytes(100), delay_seconds=delay))
