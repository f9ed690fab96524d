"""What the sink writes down on the brokers themselves, beside the rows: notes, and decisions.

A note is a message of LEDGER_TOPIC with a key to find it by. A broker writes one log and looks
through it in one order, so a note that was written before a row is lost before it, and when a
note can be found by its key, everything that was stored before it can be read.

Staged rows are messages of a topic of their own, for a broker whose key index is behind looks
through the last messages of the topic for a note.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, QueryNotFoundError, for_code
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection, Body
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import (
    CreateTopicRequestHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TopicRequestHeader,
    ViewMessageRequestHeader,
)
from orbitmq.wire.ids import create_unique_id, decode_offset_message_id
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import KEYS, UNIQ_KEY, encode_properties

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
"""Of either topic. Notes are written to the first of them; all are there to be locked."""
INDEX_WAIT_SECONDS: Final = 60.0
"""How long a note may take to be found by its key."""

_PAGE: Final = 64
_READ_AHEAD: Final = 8
_END_OF_TIME: Final = (1 << 63) - 1
_READ_AND_WRITE: Final = 6


class Note(NamedTuple):
    """A note as it was stored: where in the broker's log, when (ms), and what it says."""

    log_offset: int
    store_timestamp: int
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
        return self.store({KEYS: key}, body)

    def store(self, pairs: dict[str, str], body: bytes) -> int:
        """Store a message with these properties, as :meth:`write` does."""
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            answer = connection.invoke(*self.request(pairs, body))
            if answer.code == codes.TOPIC_NOT_EXIST:
                self._make_topic(connection, LEDGER_TOPIC)
                answer = connection.invoke(*self.request(pairs, body))
            if answer.code not in STORED:
                raise for_code(
                    answer.code, f"{LEDGER_TOPIC}: {answer.remark}", self.address,
                    self._access.access_key,
                )  # fmt: skip
            message_id = answer.header(SendMessageResponseHeader).msg_id
        return decode_offset_message_id(message_id)[2]

    def prepare_staging(self) -> None:
        """Make the topic of staged rows where there is none. Raises BrokerError, NetworkError."""
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            header = TopicRequestHeader(STAGING_TOPIC)
            answer = connection.invoke(RequestCode.GET_TOPIC_STATS_INFO, header)
            if answer.code == codes.TOPIC_NOT_EXIST:
                self._make_topic(connection, STAGING_TOPIC)

    def find(self, key: str) -> list[Note]:
        """All notes of ``key`` that the broker's index has, the oldest first."""
        notes: dict[int, Note] = {}
        end = _END_OF_TIME
        while True:
            page = self._page(key, end)
            known = len(notes)
            notes |= {note.log_offset: note for note in page}
            if len(page) < _PAGE or len(notes) == known:
                return [notes[offset] for offset in sorted(notes)]
            end = min(note.store_timestamp for note in page)

    def write_and_find(self, key: str, body: bytes) -> tuple[int, list[Note]]:
        """Store a note and wait until it is found; where it is, and all notes of ``key``.

        So everything that the broker stored before can be read. Raises NetworkError when the index
        takes longer than INDEX_WAIT_SECONDS.
        """
        offset = self.write(key, body)
        deadline = time.monotonic() + INDEX_WAIT_SECONDS
        pause = 0.002
        while True:
            notes = self.find(key)
            if any(note.log_offset == offset for note in notes):
                return offset, notes
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"{self.address} does not find a note of topic {LEDGER_TOPIC} by its key after "
                    f"{INDEX_WAIT_SECONDS:.0f} s: its key index must be on (messageIndexEnable)",
                    self.address,
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _page(self, key: str, end: int) -> list[Note]:
        header = QueryMessageRequestHeader(
            topic=LEDGER_TOPIC,
            key=key,
            max_num=_PAGE,
            begin_timestamp=0,
            end_timestamp=end,
            index_type="K",
            bname=self.broker_name,
        )
        with CONNECTIONS.borrow(self.address, self._access) as connection:
            try:
                answer = connection.request(RequestCode.QUERY_MESSAGE, header)
            except QueryNotFoundError:
                return []
        return [
            Note(view.physical_offset, view.store_timestamp, bytes(view.body))
            for view in decode_records(answer.body)
            if key in (view.keys or "").split(" ")  # the index knows hashes only
        ]

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
