"""What the sink writes down on the brokers themselves, beside the rows: notes, and decisions.

A note is a message of LEDGER_TOPIC whose key is its name. A broker writes one log and makes its
queues from it in one order, so a note that was written before a row is lost before it, and when a
note can be read, everything that was stored before it can.

Notes are read from their queues, where the broker picks those of one tag. Its key index is not
asked: it comes later, and Apache's lacks what lies further back in the log than its last file when
a broker was killed (IndexService.load, unless messageIndexSafe is set).

Staged rows are messages of a topic of their own, so the queues of notes stay short.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections import deque
from collections.abc import Generator, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, TopicNotFoundError, for_code
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection, Body
from orbitmq.spark.source.options import TOOLS_GROUP
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import (
    CreateTopicRequestHeader,
    OffsetResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
    ViewMessageRequestHeader,
)
from orbitmq.wire.ids import create_unique_id, decode_offset_message_id
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import KEYS, TAGS, UNIQ_KEY, encode_properties

log = logging.getLogger("orbitmq.spark")

LEDGER_TOPIC: Final = "orbitmq_spark_writes"
STAGING_TOPIC: Final = "orbitmq_spark_staged"
STORED: Final = {
    codes.SUCCESS,
    codes.FLUSH_DISK_TIMEOUT,
    codes.FLUSH_SLAVE_TIMEOUT,
    codes.SLAVE_NOT_AVAILABLE,
}
"""The codes that say that a message was stored, if not as safely as was asked for."""
LEDGER_QUEUES: Final = 64
"""Of either topic. Notes of one key are in one of them; all are there to be locked, too."""
NOTE_WAIT_SECONDS: Final = 60.0
"""How long a note may take until it can be read."""

_READ_AHEAD: Final = 8
_READ_AND_WRITE: Final = 6


class Note(NamedTuple):
    """A note as it was stored: where in the broker's log, and what it says."""

    log_offset: int
    body: bytes


class Ledger:
    """The notes on the broker at ``address``, called ``broker_name``."""

    def __init__(self, address: str, broker_name: str, group: str, access: Access = OPEN) -> None:
        self.address = address
        self.broker_name = broker_name
        self._group = group
        self._access = access

    def write(self, key: str, body: bytes) -> int:
        """Store a note; where it is in the broker's log. The topic is made where there is none.

        Raises BrokerError, or NetworkError when it is not known whether it was stored.
        """
        return self.store({KEYS: key, TAGS: _tag(key)}, body, _queue_id(key))

    def store(self, pairs: dict[str, str], body: bytes, queue_id: int = 0) -> int:
        """Store a message with these properties, as :meth:`write` does."""
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            request = self.request(pairs, body, queue_id=queue_id)
            answer = connection.invoke(*request)
            if answer.code == codes.TOPIC_NOT_EXIST:
                self._make_topic(connection, LEDGER_TOPIC)
                answer = connection.invoke(*request)
            if answer.code not in STORED:
                raise for_code(
                    answer.code, f"{LEDGER_TOPIC}: {answer.remark}", self.address,
                    self._access.access_key,
                )  # fmt: skip
            message_id = answer.header(SendMessageResponseHeader).msg_id
        return decode_offset_message_id(message_id)[2]

    def prepare_staging(self, *, again: bool = False) -> None:
        """Make the topic of staged rows where there is none. Raises BrokerError, NetworkError.

        It is looked for but once by a process, unless ``again`` says that it is gone.
        """
        place = self.address, self._access
        if place in _PREPARED and not again:
            return
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            header = TopicRequestHeader(STAGING_TOPIC)
            answer = connection.invoke(RequestCode.GET_TOPIC_STATS_INFO, header)
            if answer.code == codes.TOPIC_NOT_EXIST:
                self._make_topic(connection, STAGING_TOPIC)
        _PREPARED.add(place)

    def find(self, key: str) -> list[Note]:
        """All notes of ``key`` that can be read, the oldest first."""
        spans = [span] if (span := self._queue(_queue_id(key))).rows > 0 else []
        reader = RangeReader(
            LEDGER_TOPIC, TOOLS_GROUP, _tag(key), fail_on_data_loss=False, access=self._access,
            broker_wait_ms=0,
        )  # fmt: skip
        return [
            Note(view.physical_offset, bytes(view.body))
            for _, data in reader.read(spans)
            for view in decode_records(data)
            if view.keys == key  # tags of others may have the same hash
        ]

    def write_and_find(self, key: str, body: bytes) -> tuple[int, list[Note]]:
        """Store a note and wait until it can be read; where it is, and all notes of ``key``.

        So everything that the broker stored before can be read. Raises NetworkError when that
        takes longer than NOTE_WAIT_SECONDS.
        """
        offset = self.write(key, body)
        deadline = time.monotonic() + NOTE_WAIT_SECONDS
        pause = 0.002
        while True:
            notes = self.find(key)
            if any(note.log_offset == offset for note in notes):
                return offset, notes
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"{self.address} stored a note in topic {LEDGER_TOPIC}, and does not show it "
                    f"after {NOTE_WAIT_SECONDS:.0f} s: its queues are behind its log",
                    self.address,
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _queue(self, number: int) -> QueueRange:
        """All that is in a queue of notes."""
        header = TopicQueueRequestHeader(LEDGER_TOPIC, number, bname=self.broker_name)
        ends = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            try:
                answers = connection.request_all([(code, header) for code in ends])
            except TopicNotFoundError:  # the first note will make it
                begin, end = 0, 0
            else:
                begin, end = (
                    max(answer.header(OffsetResponseHeader).offset, 0) for answer in answers
                )
        return QueueRange(LEDGER_TOPIC, self.broker_name, number, self.address, begin, end)

    def request(
        self, pairs: dict[str, str], body: Body, topic: str = LEDGER_TOPIC, queue_id: int = 0
    ) -> tuple[RequestCode, SendMessageRequestHeaderV2, Body]:
        """The request that stores a message with these properties."""
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=topic,
            default_topic="",  # no broker is to make it with other queues
            default_topic_queue_nums=LEDGER_QUEUES,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=encode_properties({UNIQ_KEY: create_unique_id(), **pairs}).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=self.broker_name,
        )
        return RequestCode.SEND_MESSAGE_V2, header, body

    def read(self, log_offsets: Iterable[int], topic: str = LEDGER_TOPIC) -> Generator[MessageView]:
        """The messages of ``topic`` at these places in the log, several requests under way.

        Raises BrokerError where there is none.
        """
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            under_way: deque[int] = deque()
            answers: dict[int, RemotingCommand] = {}
            for offset in log_offsets:
                header = ViewMessageRequestHeader(offset, topic)
                under_way.append(connection.send(RequestCode.VIEW_MESSAGE_BY_ID, header))
                if len(under_way) > _READ_AHEAD:
                    yield self._message(connection, under_way.popleft(), answers)
            while under_way:
                yield self._message(connection, under_way.popleft(), answers)

    def _message(
        self, connection: BlockingConnection, opaque: int, answers: dict[int, RemotingCommand]
    ) -> MessageView:
        while opaque not in answers:
            answer = connection.receive()
            answers[answer.opaque] = answer
        answer = answers.pop(opaque)
        if answer.code != codes.SUCCESS:
            raise for_code(answer.code, answer.remark, self.address, self._access.access_key)
        (message,) = decode_records(answer.body)
        return message

    def _make_topic(self, connection: BlockingConnection, topic: str) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=LEDGER_QUEUES,
            write_queue_nums=LEDGER_QUEUES,
            perm=_READ_AND_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        log.info("making topic %s on %s", topic, self.address)
        try:
            connection.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        except BrokerError as error:
            error.add_note(
                f"deliveryGuarantee needs topic {topic} on every broker: mqadmin "
                f"updateTopic -t {topic} -r {LEDGER_QUEUES} -w {LEDGER_QUEUES} -c CLUSTER"
            )
            raise


_PREPARED: Final[set[tuple[str, Access]]] = set()
"""Where this process knows the topic of staged rows."""


def _tag(key: str) -> str:
    """What the broker tells notes of ``key`` from others by."""
    return blake2b(key.encode(), digest_size=8).hexdigest()


def _queue_id(key: str) -> int:
    return zlib.crc32(key.encode()) % LEDGER_QUEUES
