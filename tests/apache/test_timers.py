"""Timers and delay levels beside Apache's: its producer here, ours there, stores handed over."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from orbitmq import LitePullConsumer, Message, MessageQueue, Producer
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.redraft import redraft, store_timestamp
from orbitmq.store.check import check_store, find_layout
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.timer_log import UNIT_SIZE, TimerLog
from orbitmq.store.timer_wheel import SLOT, SLOTS, TimerWheel
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.ids import host_bytes
from tests.apache import remoting
from tests.apache.cluster import ApacheBroker
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST, ApacheRelease
from tests.apache.java_program import JavaProgram, options
from tests.apache.orbit import OrbitBroker
from tests.apache.python_clients import new_producer
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from pathlib import Path

HOST = host_bytes("127.0.0.1", 10911)
TOPIC = "timed"
WAIT_MS = 15_000
"""When what is sent to our brokers is due: after Apache's have started over their stores."""
LEVEL = 3
LEVEL_MS = 10_000
HOUR_MS = 3_600_000

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]


def wall_ms() -> int:
    return int(time.time() * 1000)


def delivered(broker: Broker) -> dict[bytes, int]:
    """What came to the topic, with when it was stored there."""
    found = {}
    for queue_id in broker.store.topics().get(TOPIC, []):
        for unit in broker.store.read_units(TOPIC, queue_id, 0, 1000):
            record = broker.store.record_at(unit.physical_offset)
            assert record is not None
            found[bytes(redraft(record).body)] = store_timestamp(record)
    return found


def run_until(broker: Broker, clock: ManualClock, ms: int) -> None:
    clock.advance(ms)
    broker.run_due()
    while broker.due_ms is not None and broker.due_ms <= clock.now_ms():
        broker.run_due()


def test_a_java_producer_sets_and_recalls_timers_here(apache: ApacheRelease) -> None:
    clock = ManualClock(wall_ms())
    with EmbeddedBroker(clock=clock) as broker:
        values = {
            "nameServer": broker.name_server,
            "topic": TOPIC,
            "delayMs": 60_000,
            "dueMs": clock.now_ms() + 60_000,
        }
        with JavaProgram(apache, "Timers", options(values)) as program:
            program.wait()
            sent = {body: (key, handle) for body, key, handle in program.values("sent")}
            assert set(sent) == {"delay-ms", "delay-sec", "deliver-ms", "recalled"}
            assert program.values("recalled") == [sent["recalled"][0]]
            assert program.values("refused")
        broker.call(lambda node: run_until(node.broker, clock, 59_000))
        assert not broker.call(lambda node: delivered(node.broker))
        broker.call(lambda node: run_until(node.broker, clock, 2_000))
        found = broker.call(lambda node: delivered(node.broker))
        assert set(found) == {b"delay-ms", b"delay-sec", b"deliver-ms"}


@dataclass
class Store:
    """A store that goes from us to Apache's broker of this version, and back."""

    version: str
    is_killed: bool
    directory: Path
    due: dict[bytes, int] = field(default_factory=dict)
    later: dict[bytes, int] = field(default_factory=dict)
    forbidden: set[bytes] = field(default_factory=set)

    @property
    def name(self) -> str:
        ending = "killed" if self.is_killed else "stopped"
        return f"{ending}-{self.version.replace('.', '-')}"

    @property
    def has_timers(self) -> bool:
        return self.version == NEWEST

    def knows_topic(self) -> bool:
        """Whether Apache's broker will find the topic: it does not read our journal."""
        path = self.directory / "config" / "topics.json"
        return path.exists() and TOPIC in path.read_text()

    def body(self, text: str) -> bytes:
        return f"{text} {self.name}".encode()

    def send(self, producer: Producer, text: str, **when: int) -> str | None:
        queue = MessageQueue(TOPIC, self.name, 0)
        message = Message(TOPIC, self.body(text), **when)  # type: ignore[arg-type]
        return producer.send(message, queue=queue).recall_handle

    def fill(self, producer: Producer) -> None:
        """Send what is due at Apache's broker, and a little that is due after it."""
        now_ms = wall_ms()
        self.send(producer, "level", delay_level=LEVEL)
        self.due[self.body("level")] = now_ms + LEVEL_MS
        if not self.has_timers:
            return
        self.send(producer, "timer", deliver_at=now_ms + WAIT_MS)
        self.due[self.body("timer")] = now_ms + WAIT_MS
        # Killed at once, Apache's takes in anew what came, and what is late before its recall.
        recalled_ms = now_ms + (HOUR_MS if self.is_killed else WAIT_MS)
        handle = self.send(producer, "recalled", deliver_at=recalled_ms)
        assert handle is not None
        producer.recall(TOPIC, handle)
        self.forbidden.add(self.body("recalled"))
        self.send(producer, "far", deliver_at=now_ms + HOUR_MS)
        self.later[self.body("far")] = now_ms + HOUR_MS

    def fill_again(self, producer: Producer) -> None:
        """Send to Apache's broker what is due after it."""
        now_ms = wall_ms()
        self.send(producer, "level back", delay_level=LEVEL + 2)
        self.later[self.body("level back")] = now_ms + 60_000
        if not self.has_timers:
            return
        self.send(producer, "timer back", delay_ms=60_000)
        self.later[self.body("timer back")] = now_ms + 60_000
        handle = self.send(producer, "recalled there", delay_seconds=60)
        assert handle is not None
        producer.recall(TOPIC, handle)
        self.forbidden.add(self.body("recalled there"))

    def check_at_home(self) -> None:
        """Open it with our broker: what is due comes when it is, and nothing else does."""
        if self.has_timers:
            check_bytes(self.directory)
            check_timers(self.directory)
        clock = ManualClock(wall_ms())
        broker = Broker(BrokerConfig(broker_name=self.name), self.directory, HOST, clock)
        try:
            run_until(broker, clock, 0)
            first = delivered(broker)
            assert set(first) >= set(self.due)
            run_until(broker, clock, 62_000)
            run_until(broker, clock, HOUR_MS)
            found = delivered(broker)
            assert set(found) == set(self.due) | set(self.later)
            for body, due_ms in (self.due | self.later).items():
                assert found[body] >= due_ms - 1, body
        finally:
            broker.close()
        check_timers(self.directory)


def check_timers(directory: Path) -> None:
    """Nothing is wrong with the timers, whoever wrote them last."""
    found = check_store(directory, find_layout(directory))
    assert [problem for problem in found.problems if problem.kind == "timers"] == []


def check_bytes(directory: Path) -> None:
    """What Apache wrote is what we would have written."""
    log = TimerLog(FILE_OPS, directory / "timerlog", StoreConfig().timer_log_file_size)
    content = (directory / "timerlog" / f"{0:020d}").read_bytes()
    units = list(log.scan(0))
    assert len(units) >= 4
    for place, unit in units:
        assert unit.encode() == content[place : place + UNIT_SIZE]
    wheel = TimerWheel(FILE_OPS, directory / "timerwheel", 1000)
    assert wheel.existed
    raw = (directory / "timerwheel").read_bytes()
    for slot in wheel.slots():
        quotient = slot.time_ms // 1000
        at = quotient % SLOTS * SLOT.size
        assert SLOT.pack(quotient, *slot[1:]) == raw[at : at + SLOT.size]
    log.close()
    wheel.close()


def consume(name_server: str, stores: list[Store]) -> None:
    """Wait until all that is due has come, and see that it did not come early."""
    wanted = {body: due_ms for store in stores for body, due_ms in store.due.items()}
    forbidden = set[bytes]().union(*(store.forbidden for store in stores))
    consumer = LitePullConsumer(
        "readers", name_server=name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    )
    consumer.subscribe(TOPIC)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with consumer:
        while wanted and time.monotonic() < deadline:
            for message in consumer.poll(timeout=1):
                body = bytes(message.body)
                assert body not in forbidden
                due_ms = wanted.pop(body, None)
                assert due_ms is None or message.store_timestamp >= due_ms - 1, body
    assert not wanted


def test_stores_are_handed_over_and_back(tmp_path: Path) -> None:
    """Clean stops and kills, 4.9.7 and 5.5.0, all four stores at a time."""
    releases = {version: release_or_skip(version) for version in (OLDEST, NEWEST)}
    stores = [
        Store(version, is_killed, tmp_path / f"{version}-{is_killed}")
        for version in releases
        for is_killed in (False, True)
    ]
    with ExitStack() as opened:
        servers = opened.enter_context(EmbeddedBroker(broker_name="names"))
        name_server = servers.name_server
        producer = opened.enter_context(new_producer("makers", name_server))
        threads = opened.enter_context(ThreadPoolExecutor(len(stores)))
        ours = [OrbitBroker(store.name, store.directory, name_server) for store in stores]
        for broker in ours:
            opened.enter_context(broker)
            remoting.create_topic(name_server, broker.address, TOPIC, 1)
        for store, broker in zip(stores, ours, strict=True):
            eventually(store.knows_topic, f"the topic in {store.directory}")
            store.fill(producer)
            if store.is_killed:
                broker.kill()
            else:
                broker.stop()
        theirs = [
            ApacheBroker(
                releases[store.version],
                name_server,
                tmp_path,
                store=store.directory,
                settings={"mappedFileSizeCommitLog": 1 << 30, "recallMessageEnable": True},
                name=store.name,
            )
            for store in stores
        ]
        for started in [threads.submit(opened.enter_context, broker) for broker in theirs]:
            started.result()
        consume(name_server, stores)
        with new_producer("makers-again", name_server) as anew:  # it knows Apache's at once
            for store in stores:
                store.fill_again(anew)
        endings = [
            threads.submit(apache.kill if store.is_killed else apache.stop)
            for store, apache in zip(stores, theirs, strict=True)
        ]
        for ending in endings:
            ending.result()
        for store in stores:
            store.check_at_home()
