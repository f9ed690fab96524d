"""The brokers under measurement: ours as a user starts it, and Apache's from Maven Central."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from benchmarks.compiled import find_driver
from benchmarks.frames import send_frame
from benchmarks.load import OK, call, create_topic
from benchmarks.machine import WARM_JVM
from benchmarks.plan import QUEUES, Outcome, Plan
from benchmarks.processes import anonymous_memory, children, cpu_seconds
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import NEWEST, ApacheMissingError, ApacheRelease, find_release

_T = TypeVar("_T")
_SETTLE_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_IDLE = 0.11
"""The share of a core that idle brokers may take: one tick of the clock in a look."""

PLAIN: Final = "plain Python"
"""Our own broker, without the compiled core."""

Rival: TypeAlias = ApacheRelease | Path | Literal["plain Python"]
"""Whom our broker is measured beside: Apache's, the ``src`` of another version of ours, PLAIN."""

GENEROUS_PULLS = {
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferBytesOnMessageInMemory": 16 << 20,
}
"""Apache caps a pull at 32 messages; this lifts it so that both are asked the same."""


@dataclass
class RunningBroker:
    """A broker that answers: where it is, its processes, and how soon it took a message."""

    name_server: str
    address: str
    pids: list[int]
    first_message_seconds: float

    def anonymous_memory(self) -> int:
        """RssAnon of all its processes, in bytes: mapped log files do not count."""
        return anonymous_memory(self.pids)


@contextmanager
def orbitmq_broker(
    flush: str,
    store: Path | None = None,
    program: Sequence[str] = ("orbitmq.cli", "broker"),
    source: Path | None = None,
    *,
    plain: bool = False,
) -> Iterator[RunningBroker]:
    """``orbitmq broker`` on free ports; without a store with a temporary one.

    ``program`` is the module to run, and its first arguments; ``source`` another version's ``src``;
    ``plain`` leaves the compiled core alone.
    """
    environment = dict(os.environ)
    environment |= {"PYTHONPATH": str(source)} if source else {}
    environment |= {"ORBITMQ_SPEED": "0"} if plain else {}
    began = time.perf_counter()
    command = [sys.executable, "-m", *program, "--port", "0"]
    command += ["--store", str(store)] if store else []
    process = subprocess.Popen(
        [*command, "--name-server-port", "0", "--flush", flush],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        send_first_message(words["broker"])
        took = time.perf_counter() - began
        yield RunningBroker(words["name-server"], words["broker"], [process.pid], took)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)
        process.stdout.close()


@contextmanager
def apache_broker(
    release: ApacheRelease, flush: str, store: Path | None = None
) -> Iterator[RunningBroker]:
    """Apache's name server and broker, as a user of its distribution has them."""
    began = time.perf_counter()
    settings = {**GENEROUS_PULLS, "flushDiskType": f"{flush.upper()}_FLUSH"}
    with ApacheCluster(release, settings, store=store, jvm=WARM_JVM) as cluster:
        address = cluster.broker.address
        send_first_message(address)
        took = time.perf_counter() - began
        yield RunningBroker(cluster.name_server, address, _java_children(os.getpid()), took)


def send_first_message(address: str) -> None:
    """Make a topic and send one message to it."""
    create_topic(address, "bench-first")
    response = call(address, send_frame("bench-first", 0))
    if OK not in response:
        raise RuntimeError(f"{address} refuses the first message: {response!r}")


def fill(
    broker: RunningBroker,
    topic: str,
    messages: int,
    body: int = 100,
    *,
    topics: int = 1,
    queues: int = QUEUES,
) -> None:
    """A topic, or some, with so many messages, whose bodies have so many bytes."""
    plan = Plan("fill", broker.address, topic, messages, body=body, topics=topics, queues=queues)
    generate(plan)


def generate(plan: Plan) -> Outcome:
    """Run the load generator in a process of its own, the compiled one where it can be built."""
    plan = msgspec.structs.replace(plan, driver=find_driver().program)
    command = [sys.executable, "-m", "benchmarks.generator", msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return msgspec.json.decode(output, type=Outcome)


def find_apache() -> ApacheRelease | None:
    """Apache's newest release, or None where Java or Maven is missing."""
    try:
        return find_release(NEWEST)
    except ApacheMissingError as error:
        print(f"Without Apache's broker, so without ratios: {error}", file=sys.stderr)
        return None


def _java_children(parent: int) -> list[int]:
    return [pid for pid in children(parent) if "java" in Path(f"/proc/{pid}/comm").read_text()]


@contextmanager
def side_by_side(rivals: Sequence[Rival], flush: str) -> Iterator[list[RunningBroker]]:
    """Our broker, and its rivals, in their order."""
    with ExitStack() as stack:
        brokers = [stack.enter_context(orbitmq_broker(flush))]
        for rival in rivals:
            if isinstance(rival, str):
                broker = orbitmq_broker(flush, plain=True)
            elif isinstance(rival, Path):
                broker = orbitmq_broker(flush, source=rival)
            else:
                broker = apache_broker(rival, flush)
            brokers.append(stack.enter_context(broker))
        yield brokers


def settle(brokers: Sequence[RunningBroker]) -> None:
    """Wait until none of them works on what was put off, such as the key index; not for ever."""
    pids = [pid for broker in brokers for pid in broker.pids]
    deadline = time.monotonic() + _SETTLE_SECONDS
    while pids and time.monotonic() < deadline:
        before = cpu_seconds(pids)
        time.sleep(_LOOK_SECONDS)
        if cpu_seconds(pids) - before <= _LOOK_SECONDS * _IDLE:
            return


def in_turn(
    rounds: int, brokers: Sequence[RunningBroker], measure: Callable[[RunningBroker], _T]
) -> list[list[_T]]:
    """What is measured of each broker in each round; who goes first in one goes last in the next.

    A round before them, in which Java warms up, does not count.
    """
    rows = []
    for row in range(rounds + 1):
        order = list(range(len(brokers)))[:: -1 if row % 2 else 1]
        found = {}
        for index in order:
            settle(brokers)
            found[index] = measure(brokers[index])
        rows.append([found[index] for index in range(len(brokers))])
    return rows[1:]
