"""Transactions: messages that are prepared first, and delivered or dropped when theirs has ended.

A prepared ("half") message waits in topic RMQ_SYS_TRANS_HALF_TOPIC, whatever topic it was sent to.
To commit it is to store it again, where it was going; either end is noted by an operation ("op")
message in RMQ_SYS_TRANS_OP_HALF_TOPIC, whose body is the half message's queue offset. What stays
open is asked about by :mod:`orbitmq.broker.transaction_checker`. Follows EndTransactionProcessor
and TransactionalMessageBridge.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

from orbitmq import codes
from orbitmq.broker.redraft import queue_offset, redraft
from orbitmq.broker.transaction_check import immunity_ms
from orbitmq.broker.transaction_metrics import TransactionMetrics
from orbitmq.errors import BrokerError, RecordError
from orbitmq.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PRODUCER_GROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from orbitmq.wire.record import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK, Draft

log = logging.getLogger("orbitmq.broker.transactions")

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which ``consumerOffset.json`` has how far the two queues are done with."""
HALF_QUEUE: Final = 0
"""The one queue of half messages, and of their op messages, that brokers write to."""
OP_TAG: Final = "d"
OP_TAGS_CODE: Final = tags_code(OP_TAG)
ROOM_FOR_CHECKS: Final = 128
"""Bytes of properties that checks may add to a half message: it must stay possible to store."""

_UNKNOWN: Final = 0
_QUEUE_ID: Final = re.compile("[0-9]{1,10}")
_OP_PROPERTIES: Final = encode_properties({TAGS: OP_TAG})


class EndRequest(Protocol):
    """How the transaction of a half message ended, as END_TRANSACTION says it.

    ``tran_state_table_offset`` is its queue offset, ``commit_log_offset`` where its record begins,
    ``commit_or_rollback`` 8, 12, or 0 for not known yet.
    """

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    msg_id: str
    from_transaction_check: bool | None


def make_half(draft: Draft, properties: dict[str, str]) -> None:
    """Turn a message to where half messages wait, and keep where it was going.

    ``properties`` are the draft's, not encoded yet. TransactionalMessageBridge's
    parseHalfMessageInner.
    """
    if properties.get(UNIQ_KEY):
        properties[TRANSACTION_ID] = properties[UNIQ_KEY]
    properties[REAL_TOPIC] = draft.topic
    properties[REAL_QID] = str(draft.queue_id)
    draft.topic = HALF_TOPIC
    draft.queue_id = HALF_QUEUE
    draft.sys_flag &= ~TRANSACTION_MASK


def restore_target(draft: Draft, properties: dict[str, str]) -> None:
    """Turn a half message back to the topic and queue it was sent to.

    Raises RecordError when it does not tell them.
    """
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID, "")
    if topic is None or not _QUEUE_ID.fullmatch(queue_id):
        raise RecordError(f"a half message cannot go to topic {topic} queue {queue_id!r}")
    draft.topic = topic
    draft.queue_id = int(queue_id)


class Transactions:
    """Ends transactions. ``store_host`` is this broker's address as records hold it.

    ``timeout_ms`` is how long a transaction is left alone (``transactionTimeOut``), ``now_ms`` the
    wall clock, ``metrics`` counts those that are open.
    """

    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        timeout_ms: int,
        now_ms: Callable[[], int],
        metrics: TransactionMetrics,
    ) -> None:
        self.metrics = metrics
        self._store = store
        self._store_host = store_host
        self.timeout_ms = timeout_ms
        self._now_ms = now_ms

    def end(self, request: EndRequest) -> bool:
        """Stage what a commit or rollback means; whether it is to be answered: not an unknown end.

        Raises BrokerError when the request names no half message of its group, or comes after the
        message's own immunity time, when the broker asks.
        """
        how = request.commit_or_rollback
        if how == _UNKNOWN:
            log.info("the transaction of %s is left open by its producer", request.msg_id)
            return False
        if how not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"commitOrRollback={how} is no end of a transaction: {TRANSACTION_COMMIT} commits, "
                f"{TRANSACTION_ROLLBACK} rolls back, {_UNKNOWN} leaves it open",
            )
        record = self._half_record(request.commit_log_offset)
        draft = redraft(record)
        properties = decode_properties(draft.properties)
        self._check(request, draft, properties, queue_offset(record))
        topic = properties.get(REAL_TOPIC, "")
        if how == TRANSACTION_COMMIT:
            self._commit(draft, properties, request.commit_log_offset)
        self._store.append(self._op(request.tran_state_table_offset))
        self.metrics.add(topic, -1)
        return True

    def resume(self, commit_log_offset: int) -> None:
        """Stage a half message anew whose checks begin again, such as one that was given up.

        Raises BrokerError when none begins there (AdminBrokerProcessor.resumeCheckHalfMessage,
        which takes any message).
        """
        draft = redraft(self._half_record(commit_log_offset))
        properties = decode_properties(draft.properties)
        if draft.topic not in (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            raise _not_in_transaction(draft, commit_log_offset)
        was_given_up = draft.topic != HALF_TOPIC
        properties[TRANSACTION_CHECK_TIMES] = "0"
        draft.topic, draft.queue_id = HALF_TOPIC, HALF_QUEUE
        draft.properties = encode_properties(properties)
        self._store.append(draft)
        if was_given_up:
            self.metrics.add(properties.get(REAL_TOPIC, ""), 1)
        log.info("an operator has the transaction of %s checked again", properties.get(UNIQ_KEY))

    def _half_record(self, commit_log_offset: int) -> memoryview:
        record = self._store.record_at(commit_log_offset)
        if record is None:
            raise _refused(
                f"no half message begins at commit-log offset {commit_log_offset}: it was deleted, "
                "or another broker has it"
            )
        return record

    def _check(
        self, request: EndRequest, draft: Draft, properties: dict[str, str], at: int
    ) -> None:
        """Raise BrokerError for the end of another's transaction (checkPrepareMessage)."""
        if draft.topic != HALF_TOPIC:
            raise _not_in_transaction(draft, request.commit_log_offset)
        immunity = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None and not request.from_transaction_check:
            age_ms = self._now_ms() - draft.born_timestamp
            if age_ms > max(immunity_ms(immunity, self.timeout_ms), self.timeout_ms):
                raise BrokerError(
                    codes.ILLEGAL_OPERATION,
                    f"the transaction of {request.msg_id} ends {age_ms} ms after its begin, past "
                    f"its {CHECK_IMMUNITY_TIME_IN_SECONDS}={immunity}: the broker asks about it",
                )
        if properties.get(PRODUCER_GROUP) != request.producer_group:
            raise _refused(f"the producer group wrong: {request.producer_group} did not send it")
        if at != request.tran_state_table_offset:
            raise _refused(
                f"the transaction state table offset wrong: {request.tran_state_table_offset}, "
                f"not {at}"
            )

    def _commit(self, draft: Draft, properties: dict[str, str], physical_offset: int) -> None:
        """Stage the message where it was sent to (endMessageTransaction)."""
        try:
            restore_target(draft, properties)
        except RecordError as error:
            raise _refused(str(error)) from error
        for name in (REAL_TOPIC, REAL_QID, TRANSACTION_PREPARED):
            properties.pop(name, None)
        draft.properties = encode_properties(properties)
        draft.sys_flag |= TRANSACTION_COMMIT
        draft.prepared_transaction_offset = physical_offset
        self._store.append(draft)

    def _op(self, half_offset: int) -> Draft:
        """The op message that says that a half message is done with.

        4.9 writes this body, 5.x several offsets, each with a comma behind it; both read both.
        """
        return Draft(
            OP_HALF_TOPIC,
            HALF_QUEUE,
            str(half_offset).encode(),
            _OP_PROPERTIES,
            OP_TAGS_CODE,
            flag=0,
            sys_flag=0,
            born_timestamp=self._now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
        )


def _not_in_transaction(draft: Draft, commit_log_offset: int) -> BrokerError:
    return _refused(
        f"the message at commit-log offset {commit_log_offset} is of topic {draft.topic} and in no "
        "transaction"
    )


def _refused(reason: str) -> BrokerError:
    return BrokerError(codes.SYSTEM_ERROR, reason)
