"""Timers against a model, through restarts, kills, lost files, full disks and recalls."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.redraft import redraft
from orbitmq.errors import BrokerError
from orbitmq.store.check_timers import check_timers
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.findings import Findings
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.headers import SendMessageRequestHeader
from orbitmq.wire.ids import host_bytes
from tests.store.support import FullDisk

HOST = host_bytes("127.0.0.1", 10911)
TOPIC = "timed"
HOUR_MS = 3_600_000
DELAYS = st.one_of(
    st.integers(1, 5_000), st.integers(1, 100 * HOUR_MS), st.sampled_from([1000, 48 * HOUR_MS])
)
LOST = ["nothing", "timerwheel", "timerlog", "both", "consumequeue", "torn log"]


def store_config(precision_ms: int = 1000) -> StoreConfig:
    """Files of a few messages, and nothing flushed in the background."""
    return StoreConfig(
        mapped_file_size=1 << 16,
        consume_queue_units=20,
        max_message_size=4096,
        flush_interval_ms=HOUR_MS,
        queue_flush_interval_ms=HOUR_MS,
        timer_flush_interval_ms=1 << 30,
        timer_log_file_size=16 + 52 * 7 + 11,
        timer_max_delay_seconds=100 * 3600,
        timer_roll_window_slots=3600,
        timer_precision_ms=precision_ms,
    )


class TimerMachine(RuleBasedStateMachine):
    """``due`` is when each message must have come, ``recalled`` those that must not."""

    @initialize(precision_ms=st.sampled_from([100, 1000]))
    def start(self, precision_ms: int) -> None:
        self.config = BrokerConfig(
            store_config=store_config(precision_ms),
            offset_save_interval_ms=1 << 30,
            delay_offset_save_interval_ms=1 << 30,
        )
        self.root = Path(tempfile.mkdtemp())
        self.directory = self.root / "0"
        self.generation = 0
        self.disk = FullDisk()
        self.clock = ManualClock()
        self.due: dict[bytes, int] = {}
        self.handles: dict[bytes, str] = {}
        self.recalled: set[bytes] = set()
        self.was_killed = False
        self.open(self.directory)

    def open(self, directory: Path) -> None:
        self.directory = directory
        self.broker = Broker(self.config, directory, HOST, self.clock, self.disk)

    def teardown(self) -> None:
        try:
            self.settle()
            for _ in range(11):
                self.clock.advance(10 * HOUR_MS)
                self.settle()
            self.check()
            assert set(self.delivered()) == set(self.due) - self.recalled
        finally:
            self.broker.close()
            shutil.rmtree(self.root)

    @rule(delay_ms=DELAYS)
    def send(self, delay_ms: int) -> None:
        body = b"%d" % len(self.due)
        header = SendMessageRequestHeader(
            producer_group="makers",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=self.clock.now_ms(),
            flag=0,
            properties=f"TIMER_DELAY_MS\x01{delay_ms}\x02",
        )
        due_ms = self.clock.now_ms() + delay_ms
        placed = self.broker.sending.send(header, body, HOST)
        self.broker.write()
        self.broker.saved.save_changes()
        self.due[body] = due_ms
        assert placed.recall_handle is not None
        self.handles[body] = placed.recall_handle

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(sorted(self.handles)))
        self.settle()
        try:
            self.broker.recalling.recall(TOPIC, self.handles[body], "makers", HOST)
        except BrokerError:
            assert self.slot(body) < self.clock.now_ms()
            return
        self.broker.write()
        if body not in self.delivered():
            self.recalled.add(body)

    @rule(ms=st.one_of(st.integers(1, 3_000), st.integers(1, 24 * HOUR_MS)))
    def advance(self, ms: int) -> None:
        self.settle()
        self.clock.advance(ms)
        self.settle()
        self.check()

    @rule()
    def flush(self) -> None:
        timers = self.broker.timers
        assert timers is not None
        taken = timers.timers.take_flush()
        if taken is not None:
            timers.timers.flush(taken, self.clock.now_ms())
            timers.timers.flush_ended(taken, failed=False)

    @rule(room=st.integers(0, 400))
    def run_on_a_full_disk(self, room: int) -> None:
        self.disk.room = room
        self.broker.run_due()
        self.disk.room = None
        self.clock.advance(1000)  # when it is tried again
        self.settle()

    @rule(ms=st.sampled_from([0, 0, 2_000, 30 * HOUR_MS]))
    def restart(self, ms: int) -> None:
        self.broker.close()
        self.look_through()
        self.clock.advance(ms)
        self.open(self.directory)

    @rule(lost=st.sampled_from(LOST), ms=st.sampled_from([0, 0, 2_000, 30 * HOUR_MS]))
    def kill(self, lost: str, ms: int) -> None:
        self.generation += 1
        copy = self.root / str(self.generation)
        subprocess.run(["cp", "-a", "--sparse=always", self.directory, copy], check=False)
        self.broker.close()
        shutil.rmtree(self.directory)
        self.was_killed = True
        self.lose(copy, lost)
        self.clock.advance(ms)
        self.open(copy)

    def lose(self, directory: Path, lost: str) -> None:
        if lost in {"timerwheel", "both"}:
            (directory / "timerwheel").unlink(missing_ok=True)
        if lost in {"timerlog", "both"}:
            shutil.rmtree(directory / "timerlog", ignore_errors=True)
        if lost == "consumequeue":
            shutil.rmtree(directory / "consumequeue")
        logs = sorted((directory / "timerlog").glob("*")) if lost == "torn log" else []
        if logs:
            data = bytearray(logs[-1].read_bytes())
            end = len(data.rstrip(b"\0")) // 52 * 52
            data[max(0, end - 52) :] = bytes(len(data) - max(0, end - 52))
            logs[-1].write_bytes(data)

    def look_through(self) -> None:
        """After a proper end wheel, timer log and commit log agree to the last entry."""
        findings = Findings()
        log = CommitLog(FILE_OPS, self.directory / "commitlog", 1 << 16)
        with closing(log):
            check_timers(self.directory, log, log.end, findings, lambda *_: None)
        assert findings.problems == []

    def slot(self, body: bytes) -> int:
        precision_ms = self.config.store_config.timer_precision_ms
        return (self.due[body] - 1) // precision_ms * precision_ms

    def settle(self) -> None:
        """Do all that is due by now."""
        self.broker.run_due()
        while self.broker.due_ms is not None and self.broker.due_ms <= self.clock.now_ms():
            self.broker.run_due()

    def delivered(self) -> Counter[bytes]:
        store = self.broker.store
        found: Counter[bytes] = Counter()
        offset = store.min_offset(TOPIC, 0)
        while units := store.read_units(TOPIC, 0, offset, 1000):
            for unit in units:
                record = store.record_at(unit.physical_offset)
                assert record is not None
                found[bytes(redraft(record).body)] += 1
            offset += len(units)
        return found

    def check(self) -> None:
        """All that is due by now came, and nothing else; once, unless the broker was killed."""
        now_ms = self.clock.now_ms()
        precision_ms = self.config.store_config.timer_precision_ms
        found = self.delivered()
        due = {body for body in self.due if self.slot(body) + precision_ms <= now_ms}
        assert set(found) == due - self.recalled
        assert self.was_killed or all(count == 1 for count in found.values())


def test_timers_are_kept_and_come_in_time() -> None:
    run_state_machine_as_test(
        TimerMachine, settings=settings(max_examples=15, stateful_step_count=20, derandomize=True)
    )


@pytest.mark.parametrize("seed", range(2))
def test_many_timers_through_a_kill(seed: int) -> None:
    """As the model, but longer, so that several of all files are there."""
    chance = random.Random(seed)
    machine = TimerMachine()
    machine.start(1000)
    try:
        for number in range(150):
            machine.send(chance.choice([1, 1500, chance.randrange(1, 50 * HOUR_MS)]))
            if number % 30 == 29:
                machine.flush()
                machine.kill(chance.choice(LOST), 0)
            if number % 20 == 0:
                machine.advance(chance.randrange(1, HOUR_MS))
    finally:
        machine.teardown()
