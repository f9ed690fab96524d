"""deliveryGuarantee=exactly_once, in a task: rows become half messages, which nobody gets yet.

What a task hands to the driver is short: where on which broker the list of its half messages is.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Final, NamedTuple
from urllib.parse import quote

import numpy as np

from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, for_code
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import CONNECTIONS
from orbitmq.spark.begins import Begin, Task, note_begin
from orbitmq.spark.decisions import (
    HALF,
    Attempt,
    Decision,
    Decisions,
    Halves,
    Share,
    encode_halves,
    rows_key,
)
from orbitmq.spark.frames import ALONE, Numbers, parts_of
from orbitmq.spark.lanes import Lanes
from orbitmq.spark.ledger import STORED, Ledger
from orbitmq.spark.message_rows import Messages
from orbitmq.spark.patience import Patience, patiently
from orbitmq.spark.placing import ANY
from orbitmq.spark.publishing import NEW_TOPIC_QUEUES, open_lanes
from orbitmq.spark.write_options import WriteOptions
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from orbitmq.wire.ids import decode_offset_message_id
from orbitmq.wire.properties import PRODUCER_GROUP, encode_properties
from orbitmq.wire.properties import TRANSACTION_PREPARED as IS_HALF
from orbitmq.wire.record import TRANSACTION_PREPARED

log = logging.getLogger("orbitmq.spark")

WRITE_PROPERTY: Final = "orbitmq_spark_write"
"""In every half message: the write it belongs to, a space, and the attempt that sent it."""
WINDOW: Final = 256
"""How many half messages are under way to a broker at once."""
WINDOW_BYTES: Final = 512 * 1024
CHUNK: Final = 50_000
"""How many half messages one note lists."""


class _Pending(NamedTuple):
    topic: str
    broker_name: str
    queue_id: int
    frame: memoryview
    sys_flag: int
    row: int
    placed: bool


class _Broker:
    """What a task has for one broker."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.pending: list[_Pending] = []
        self.size = 0
        self.halves: list[tuple[int, int, int, int, bool]] = []


class HalfSender:
    """Sends the rows of one attempt of ``task`` as half messages.

    ``decision`` is that of an earlier run of the same write, where it was made: nothing is sent
    then. Errors are those of :class:`~orbitmq.spark.sending.Sender`.
    """

    def __init__(self, options: WriteOptions, task: Task) -> None:
        self.decision: Decision | None = None
        self.failed_row: int | None = None
        self._options = options
        self._task = task
        self._scope = quote(task.write, safe=":/")
        self._tag = token_hex(8)
        self._topics: dict[str, Lanes] = {}
        self._brokers: dict[str, _Broker] = {}
        self._turn = random.randrange(1 << 16)  # noqa: S311 - not a secret
        pairs = {
            IS_HALF: "true",
            PRODUCER_GROUP: options.group,
            WRITE_PROPERTY: f"{self._scope} {self._tag}",
        }
        self._properties = encode_properties(pairs)

    def add_all(self, messages: Messages) -> None:
        """Take messages; they leave in windows, each broker's in their order."""
        topic, frames, placing = messages
        lanes = self._topics.get(topic) or self._open(topic)
        if self.decision is not None:
            return
        places = None if placing is None else placing(lanes.queues, frames)
        for index, (number, placed) in enumerate(self._numbers(lanes, len(frames), places)):
            lane = lanes.all[number]
            broker = self._brokers[lane.queue.broker_name]
            frame = frames.bytes_of(index, index + 1)
            sys_flag = int(frames.kinds[index]) & ~ALONE
            row = int(frames.rows[index])
            broker.pending.append(_Pending(*lane.queue, frame, sys_flag, row, placed))
            broker.size += len(frame)
            if len(broker.pending) >= WINDOW or broker.size >= WINDOW_BYTES:
                self._send(broker)

    def finish(self) -> dict[str, Share]:
        """Wait until every half message is stored; where the list of them is, by broker."""
        shares = {}
        for name, broker in self._brokers.items():
            self._send(broker)
            halves = self._halves(broker)
            chunks = [halves[at : at + CHUNK] for at in range(0, len(halves), CHUNK)]
            for index, chunk in enumerate(chunks):
                key, body = rows_key(self._scope, self._tag, index), encode_halves(chunk)
                self._patiently(broker.ledger, key, body)
            attempts = [Attempt(self._tag, len(chunks), len(halves))] if chunks else []
            shares[name] = Share(attempts, self._queues_of(name))
        return shares

    def _queues_of(self, broker_name: str) -> dict[str, dict[int, int]]:
        """The queues of one broker by topic; where they end is looked for before the commit."""
        found: dict[str, dict[int, int]] = {}
        for topic, lanes in self._topics.items():
            for queue in lanes.queues:
                if queue.broker_name == broker_name:
                    found.setdefault(topic, {})[queue.queue_id] = 0
        return found

    def roll_back(self) -> None:
        """Drop what was sent, as far as the brokers can be reached; they drop the rest in time."""
        decisions = Decisions(self._options, self._task.write)
        for broker in self._brokers.values():
            try:
                decisions.drop(broker.ledger, self._halves(broker))
            except (NetworkError, BrokerError) as error:
                log.warning("half messages of a failed task stay open: %s", error)

    def _patiently(self, ledger: Ledger, key: str, body: bytes) -> None:
        doing = f"listing the half messages of {self._task.write}"
        patiently(doing, self._options.broker_wait_ms, lambda: ledger.write(key, body))

    def _open(self, topic: str) -> Lanes:
        """Note the begin on every broker of the topic, and look for a decision there."""
        options = self._options
        lanes = open_lanes(topic, options.name_servers, options.access)
        names = sorted({queue.broker_name for queue in lanes.queues})
        addresses = {lane.queue.broker_name: lane.address for lane in lanes.all}
        decisions = Decisions(options, self._task.write)
        for name in names:
            if name not in self._brokers:
                ledger = Ledger(addresses[name], name, options.group, options.access)
                self._brokers[name] = _Broker(ledger)
            ledger = self._brokers[name].ledger
            begin = Begin.of(self._task, {}, names)

            def look(ledger: Ledger = ledger, begin: Begin = begin) -> Decision | None:
                note_begin(ledger, f"{self._scope}:{self._task.partition}:{topic}", begin)
                return decisions.find(ledger)

            doing = f"looking whether {self._task.write} is decided"
            self.decision = patiently(doing, options.broker_wait_ms, look) or self.decision
        self._topics[topic] = lanes
        return lanes

    def _numbers(
        self, lanes: Lanes, count: int, places: Numbers | None
    ) -> Iterator[tuple[int, bool]]:
        """The lane of each message, and whether it must be that one."""
        numbers = [ANY] * count if places is None else places.tolist()
        for number in numbers:
            if number == ANY:
                self._turn += 1
                yield self._turn % len(lanes.all), False
            else:
                yield number, True

    def _send(self, broker: _Broker) -> None:
        """Send what is pending until all of it is stored."""
        left, broker.pending, broker.size = broker.pending, [], 0
        address, access = broker.ledger.address, self._options.access
        patience = Patience("sending half messages", self._options.broker_wait_ms)
        while left:
            error: NetworkError | BrokerError | None
            try:
                with CONNECTIONS.borrow(address, access) as connection:
                    answers = connection.exchange(self._request(one) for one in left)
            except NetworkError as failure:
                error = failure
            else:
                left, error = self._taken(broker, left, answers)
            if error is not None:
                self.failed_row = left[0].row
                patience.wait_after(error)
        self.failed_row = None

    def _taken(
        self, broker: _Broker, sent: Sequence[_Pending], answers: Sequence[RemotingCommand]
    ) -> tuple[list[_Pending], BrokerError | None]:
        """Keep where each was stored; those that were not, and the first one's error."""
        left: list[_Pending] = []
        error: BrokerError | None = None
        for one, answer in zip(sent, answers, strict=True):
            if answer.code in STORED:
                header = answer.header(SendMessageResponseHeader)
                at = decode_offset_message_id(header.msg_id)[2]
                broker.halves.append((one.row, at, header.queue_offset, one.queue_id, one.placed))
            else:
                left.append(one)
                key = self._options.access.access_key
                error = error or for_code(answer.code, answer.remark, broker.ledger.address, key)
        return left, error

    def _request(self, one: _Pending) -> tuple[RequestCode, SendMessageRequestHeaderV2, bytes]:
        flag, body, properties = parts_of(one.frame)
        header = SendMessageRequestHeaderV2(
            producer_group=self._options.group,
            topic=one.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=one.queue_id,
            sys_flag=one.sys_flag | TRANSACTION_PREPARED,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=flag,
            properties=(properties + self._properties).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=one.broker_name,
        )
        return RequestCode.SEND_MESSAGE_V2, header, body

    @staticmethod
    def _halves(broker: _Broker) -> Halves:
        """Those of ``broker``, in the order of the rows."""
        halves = np.array(broker.halves, HALF)
        halves.sort(order="row")
        return halves
