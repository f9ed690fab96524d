"""Which half messages are open: the state machine, and a broker with it against a model."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.transaction_check import (
    Half,
    OffsetSet,
    Progress,
    Rules,
    Verdict,
    immunity_ms,
    java_long,
    judge,
)
from orbitmq.broker.transaction_checker import StateCheck
from orbitmq.names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.headers import EndTransactionRequestHeader
from orbitmq.wire.ids import host_bytes
from tests.broker.remote import SMALL_STORE, send_header

HOST = host_bytes("127.0.0.1", 10911)
RULES = Rules(timeout_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
COMMIT, ROLLBACK = 8, 12
GROUP = "CID_RMQ_SYS_TRANS"


class TestOffsetSet:
    @given(st.sets(st.integers(0, 5_000)), st.integers(0, 5_000))
    def test_it_is_a_set(self, offsets: set[int], start: int) -> None:
        tested = OffsetSet()
        for offset in offsets:
            tested.add(offset)
        assert {offset for offset in range(5_001) if offset in tested} == offsets
        assert tested.first_absent(start) == next(
            offset for offset in range(start, 5_002) if offset not in offsets
        )

    @given(st.integers(0, 9_000), st.integers(0, 9_000))
    def test_runs_are_passed_whole(self, start: int, length: int) -> None:
        tested = OffsetSet()
        for offset in range(start, start + length):
            tested.add(offset)
        assert tested.first_absent(start) == start + length
        tested.forget(start, start + length)
        assert not any(offset in tested for offset in range(start, (start + length) // 1024 * 1024))


@pytest.mark.parametrize(
    ("half", "age_ms", "verdict"),
    [
        (Half(0, None, None), 0, Verdict.WAIT),
        (Half(0, None, None), 6_000, Verdict.WAIT),
        (Half(0, None, None), 6_001, Verdict.CHECK),
        (Half(0, None, None), -1, Verdict.CHECK),
        (Half(0, "14", None), 60_000, Verdict.CHECK),
        (Half(0, "15", None), 60_000, Verdict.DISCARD),
        (Half(0, "15", None), 0, Verdict.DISCARD),
        (Half(0, "many", None), 60_000, Verdict.CHECK),
        (Half(0, None, None), 72 * 3_600_000 + 1, Verdict.DISCARD),
        (Half(0, None, "60"), 60_000, Verdict.POSTPONE),
        (Half(0, None, "60"), 60_001, Verdict.CHECK),
        (Half(0, None, "1"), 1_001, Verdict.CHECK),
        (Half(0, None, "soon"), 6_000, Verdict.POSTPONE),
        (Half(0, None, "soon"), 6_001, Verdict.CHECK),
        (Half(0, None, "9" * 30), 6_001, Verdict.CHECK),
    ],
)
def test_verdicts(half: Half, age_ms: int, verdict: Verdict) -> None:
    assert judge(half, age_ms, RULES) is verdict


@given(st.text())
def test_texts_that_are_no_numbers_are_minus_one(text: str) -> None:
    number = java_long(text)
    assert number == -1 or int(text) == number
    assert immunity_ms("-1", 6_000) == 6_000


@given(st.data())
def test_op_messages_are_done_once_their_halves_are(data: st.DataObject) -> None:
    """In whatever order they come: a restart at the offsets told misses nothing."""
    progress, half_end = Progress(0, 0), 0
    ops: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from(["send", "end", "mark", "move"]))
        if step == "send":
            half_end += data.draw(st.integers(1, 40))
        elif step == "end" and half_end:
            ops.append(data.draw(st.integers(0, half_end - 1)))
            progress.take_op([ops[-1], half_end, -1], half_end)
        elif step == "mark":
            progress.mark(half_end)
        elif step == "move" and half_end > progress.half_offset:
            progress.move(data.draw(st.integers(progress.half_offset, half_end)))
        assert progress.op_offset <= progress.op_read == len(ops)
        assert all(half < progress.half_offset for half in ops[: progress.op_offset])
        for half in range(progress.half_offset, half_end):
            assert progress.has_ended(half) == (half in ops)


class Model:
    """A broker, and what must be true of it.

    ``open`` are the half messages that must be asked about, by queue offset; ``exact``: nothing
    else is asked about either, which forgotten offsets make untrue.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.open: dict[int, tuple[int, int]] = {}
        self.sent = self.commits = 0
        self.exact = True
        self.broker = self._start()

    def _start(self) -> Broker:
        config = BrokerConfig(
            port=0, name_server_port=0, store_config=SMALL_STORE, transaction_check_max=1_000
        )
        broker = Broker(config, self.directory, HOST, self.clock)
        self.asked: list[StateCheck] = []
        broker.transaction_checker.ask = self.asked.append
        return broker

    def prepare(self) -> None:
        properties = {"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": str(self.sent)}
        header = send_header("T", properties=properties, born_timestamp=self.clock.now_ms())
        placed = self.broker.sending.send(header, b"half", HOST)
        self.broker.write()
        self.open[placed.queue_offset] = (self.sent, placed.physical_offset)
        self.sent += 1

    def end(self, number: int, how: int) -> None:
        if not self.open:
            return
        offset = sorted(self.open)[number % len(self.open)]
        key, physical = self.open.pop(offset)
        self.broker.transactions.end(
            EndTransactionRequestHeader("g", offset, physical, how, str(key))
        )
        self.broker.write()
        self.commits += how == COMMIT

    def look_through(self) -> None:
        self.clock.advance(30_000)
        self.broker.run_due()
        while self.broker.transaction_checker.busy:
            self.broker.run_due()
        asked = {int(q.properties["UNIQ_KEY"]): q.placed for q in self.asked}
        must = Counter(key for key, _ in self.open.values())
        counted = Counter(int(q.properties["UNIQ_KEY"]) for q in self.asked)
        assert counted == must if self.exact else counted >= must
        self.open = {
            place.queue_offset: (key, place.physical_offset)
            for key, place in asked.items()
            if key in must
        }
        self.asked.clear()

    def restart(self) -> None:
        self.broker.close()
        self.broker = self._start()

    def forget(self) -> None:
        """Restart with the offsets as they were last saved, as after a kill."""
        self.exact = False
        path = self.directory / "config" / "consumerOffset.json"
        saved = path.read_bytes() if path.exists() else None
        self.broker.close()
        path.with_name(path.name + ".bak").unlink(missing_ok=True)
        if saved is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(saved)
        self.broker = self._start()

    def check_end(self) -> None:
        store, offsets = self.broker.store, self.broker.offsets
        delivered = sum(store.max_offset("T", queue) for queue in range(8))
        assert delivered == self.commits
        for _ in range(2):
            while self.open:
                self.end(0, ROLLBACK)
            self.look_through()
        if self.exact:
            for topic in (HALF_TOPIC, OP_HALF_TOPIC):
                committed = offsets.query(GROUP, topic, 0) or 0
                assert committed == store.max_offset(topic, 0)


_STEPS = st.one_of(
    st.tuples(st.just("prepare"), st.integers(1, 70)),
    st.tuples(st.sampled_from(["commit", "roll back"]), st.integers(0, 1 << 20)),
    st.tuples(st.sampled_from(["look", "look", "restart", "forget"]), st.just(0)),
)


@settings(max_examples=25)
@given(st.lists(_STEPS, max_size=25))
def test_a_broker_asks_about_what_is_open_and_nothing_else(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = Model(Path(directory))
        try:
            for step, number in steps:
                if step == "prepare":
                    for _ in range(number):
                        model.prepare()
                elif step == "look":
                    model.look_through()
                elif step == "restart":
                    model.restart()
                elif step == "forget":
                    model.forget()
                else:
                    model.end(number, COMMIT if step == "commit" else ROLLBACK)
            model.check_end()
        finally:
            model.broker.close()
