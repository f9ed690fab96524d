"""Looks through the half messages that are still open, and has their producers asked.

The shell around :mod:`orbitmq.broker.transaction_check`: it reads the two queues a slice at a time,
so that the broker's loop stays free, and memory does not grow with the open transactions. How far
it is lies in ``consumerOffset.json``, as with Apache's brokers; what was judged after that was last
saved is judged again after a crash. Follows TransactionalMessageServiceImpl,
TransactionalMessageBridge and DefaultTransactionalMessageCheckListener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.redraft import body_of, redraft
from orbitmq.broker.topics import TopicTable
from orbitmq.broker.transaction_check import (
    Half,
    Progress,
    Rules,
    Verdict,
    java_long,
    judge,
    next_check,
)
from orbitmq.broker.transaction_metrics import TransactionMetrics
from orbitmq.broker.transactions import (
    HALF_QUEUE,
    OP_TAGS_CODE,
    TRANSACTION_GROUP,
    restore_target,
)
from orbitmq.errors import InvalidMessageError, RecordError, StoreError
from orbitmq.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.store.appended import Appended
from orbitmq.store.consume_queue import QueueUnit
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PRODUCER_GROUP,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from orbitmq.wire.record import Draft, encode_record

log = logging.getLogger("orbitmq.broker.transactions")

_OPS: Final = 256
"""The most op messages one step reads."""
_HALVES: Final = 64
"""The most half messages one step judges."""
_STEP_BYTES: Final = 4 << 20
"""After so many bytes stored a step ends."""


class StateCheck(msgspec.Struct, gc=False):
    """A question to a producer of ``group``: how the transaction of a message ended.

    ``placed`` is where the half message now is; ``draft`` is of its real topic.
    """

    group: str
    draft: Draft
    properties: dict[str, str]
    placed: Appended

    def record(self) -> bytes:
        """The message as a producer is to see it."""
        placed = self.placed
        return encode_record(
            self.draft, placed.queue_offset, placed.physical_offset, placed.store_timestamp
        )


class TransactionChecker:
    """Checks back on the half messages of ``store``.

    ``write`` brings what was staged into the store, ``now_ms`` is the wall clock, ``metrics``
    counts the open ones. ``ask`` is called with each question, once the half message is in its new
    place; ``busy`` says that a pass goes on, and :meth:`step` has something to do.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        topics: TopicTable,
        rules: Rules,
        write: Callable[[], None],
        now_ms: Callable[[], int],
        metrics: TransactionMetrics,
    ) -> None:
        self.ask: Callable[[StateCheck], None] = _nobody
        self.busy = False
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self.rules = rules
        self._write = write
        self._now_ms = now_ms
        self._metrics = metrics
        self._progress = Progress(-1, -1)
        self._half_end = 0
        self._op_end = 0
        self._staged_bytes = 0
        self._given_up: list[str] = []

    def begin(self) -> None:
        """Begin a pass, unless one still goes on.

        Raises BrokerError where there is no room to note how far it comes: it would judge the same
        again and again.
        """
        if self.busy:
            return
        store = self._store
        self._half_end = store.max_offset(HALF_TOPIC, HALF_QUEUE)
        self._op_end = store.max_offset(OP_HALF_TOPIC, HALF_QUEUE)
        self._resume()
        progress = self._progress
        if self._half_end > progress.half_offset or self._op_end > progress.op_offset:
            self._note()
            self.busy = True

    def step(self) -> None:
        """Do a little of the pass; nothing is raised."""
        try:
            if self._progress.op_read < self._op_end:
                self._read_ops(self._op_end)
                if self._progress.op_read >= self._op_end:
                    self._progress.mark(self._half_end)
            elif self._read_ops(self._store.max_offset(OP_HALF_TOPIC, HALF_QUEUE)):
                return  # they are as new as what is judged next
            else:
                self.busy = self._judge_some()
            self._note()
        except Exception:
            log.exception("open transactions cannot be looked at, to be tried again later")
            self.busy = False

    def _resume(self) -> None:
        """Go on from the offsets committed, made to fit the queues: those may have lost their end.

        They are this object's own, unless it is new or somebody has set them since.
        """
        half = self._committed(HALF_TOPIC, self._half_end)
        op = self._committed(OP_HALF_TOPIC, self._op_end)
        progress = self._progress
        if (half, op) != (progress.half_offset, progress.op_offset):
            if progress.half_offset >= 0 and half < progress.half_offset:
                log.warning("open transactions are looked through from %d on again", half)
            self._progress = Progress(half, op)

    def _committed(self, topic: str, end: int) -> int:
        low = self._store.min_offset(topic, HALF_QUEUE)
        offset = self._offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE)
        return max(low, min(low if offset is None else offset, end))

    def _note(self) -> None:
        """Commit how far both queues are done with."""
        progress = self._progress
        for topic, offset in (
            (HALF_TOPIC, progress.half_offset),
            (OP_HALF_TOPIC, progress.op_offset),
        ):
            if self._offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE) != offset:
                self._offsets.commit(TRANSACTION_GROUP, topic, HALF_QUEUE, offset)

    # What has ended

    def _read_ops(self, end: int) -> bool:
        """Read some op messages before ``end``; whether there were any."""
        progress, store = self._progress, self._store
        progress.skip_op(store.min_offset(OP_HALF_TOPIC, HALF_QUEUE))
        count = min(_OPS, end - progress.op_read)
        if count <= 0:
            return False
        half_end = store.max_offset(HALF_TOPIC, HALF_QUEUE)
        for unit in _read(store, OP_HALF_TOPIC, progress.op_read, count):
            progress.take_op(self._ended(unit), half_end)
        return True

    def _ended(self, unit: QueueUnit) -> list[int]:
        """The offsets in an op message: one as 4.9 writes it, or many as 5.x does."""
        record = self._store.record_at(unit.physical_offset)
        if record is None or unit.tags_code != OP_TAGS_CODE:
            log.error("the op message at %d is gone, or none, and skipped", unit.physical_offset)
            return []
        texts = body_of(record).split(b",")
        offsets = [java_long(text.decode("ascii", "replace")) for text in texts if text]
        if any(offset < 0 for offset in offsets):
            log.error("the op message at %d names what is no offset", unit.physical_offset)
        return offsets

    # What is open

    def _judge_some(self) -> bool:
        """Judge some half messages; whether there are more in this pass."""
        progress, store = self._progress, self._store
        progress.move(min(store.min_offset(HALF_TOPIC, HALF_QUEUE), self._half_end))
        progress.skip_ended(self._half_end)
        at = progress.half_offset
        count = min(_HALVES, self._half_end - at)
        units = _read(store, HALF_TOPIC, at, count) if count > 0 else []
        questions: list[StateCheck] = []
        self._staged_bytes = 0
        self._given_up = []
        goes_on = bool(units)
        for unit in units:
            if not progress.has_ended(unit.queue_offset) and not self._settle(unit, questions):
                goes_on = False
                break
            at = unit.queue_offset + 1
            if self._staged_bytes >= _STEP_BYTES:
                break
        self._write()
        progress.move(at)
        if self._given_up:
            log.error(
                "messages %s are given up and go to %s: their producers did not say how their "
                "transactions ended, and they were checked too often, or are too old",
                ", ".join(self._given_up), TRANS_CHECK_MAX_TIME_TOPIC,
            )  # fmt: skip
        for question in questions:
            self.ask(question)
        return goes_on

    def _settle(self, unit: QueueUnit, questions: list[StateCheck]) -> bool:
        """Do with a half message what is to be done; False where the pass ends before it."""
        record = self._store.record_at(unit.physical_offset)
        if record is None:
            log.error("the half message at %d is no longer there", unit.physical_offset)
            return True
        try:
            draft = redraft(record)
            properties = decode_properties(draft.properties)
            return self._act(draft, properties, unit.queue_offset, questions)
        except (RecordError, InvalidMessageError):
            log.exception("the half message at %d is left out", unit.physical_offset)
            return True

    def _act(
        self,
        draft: Draft,
        properties: dict[str, str],
        offset: int,
        questions: list[StateCheck],
    ) -> bool:
        checks = properties.get(TRANSACTION_CHECK_TIMES)
        half = Half(draft.born_timestamp, checks, properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS))
        verdict = judge(half, self._now_ms(), self.rules)
        if verdict is Verdict.WAIT:
            return False
        before = properties.get(TRANSACTION_PREPARED_QUEUE_OFFSET)
        if before is not None and self._progress.ended_before(java_long(before)):
            return True
        if verdict is Verdict.POSTPONE:
            properties.setdefault(TRANSACTION_PREPARED_QUEUE_OFFSET, str(offset))
            self._put_back(draft, properties)
        elif verdict is Verdict.CHECK:
            properties[TRANSACTION_CHECK_TIMES] = str(next_check(checks))
            placed = self._put_back(draft, properties)
            group = properties.get(PRODUCER_GROUP, "")
            restore_target(draft, properties)
            questions.append(StateCheck(group, draft, properties, placed))
        else:
            self._discard(draft, properties)
        return True

    def _put_back(self, draft: Draft, properties: dict[str, str]) -> Appended:
        """Store a half message again, at the end of its queue."""
        draft.properties = encode_properties(properties)
        placed = self._store.append(draft)
        self._staged_bytes += placed.size
        return placed

    def _discard(self, draft: Draft, properties: dict[str, str]) -> None:
        self._given_up.append(f"{properties.get(UNIQ_KEY)} to {properties.get(REAL_TOPIC)}")
        self._topics.create_derived(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        draft.topic = TRANS_CHECK_MAX_TIME_TOPIC
        draft.queue_id = 0
        self._staged_bytes += self._store.append(draft).size
        self._metrics.add(properties.get(REAL_TOPIC, ""), -1)


def _read(store: MessageStore, topic: str, offset: int, count: int) -> list[QueueUnit]:
    units = store.read_units(topic, HALF_QUEUE, offset, count)
    if not units:
        raise StoreError(f"{topic} cannot be read at offset {offset}", topic)
    return units


def _nobody(_question: StateCheck) -> None:
    """Nobody can be asked."""
