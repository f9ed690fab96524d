"""deliveryGuarantee=exactly_once, in a task: rows are brought to the brokers, and nobody gets them.

Brokers take half messages one by one only, each to be ended by itself. So the rows travel as in any
other write, but each batch as one message of STAGING_TOPIC, and one half message for each topic
and broker stands for them all: it is what the brokers ask about. It is sent to the topic
itself, so a topic that cannot be written is noticed before anything is decided; but where the topic
takes messages of one type alone, to STAGING_TOPIC. What a task hands to the driver is short: where
on which broker the lists of its batches are.
"""

from __future__ import annotations

import logging
import time
import zlib
from typing import Final
from urllib.parse import quote

import msgspec
import numpy as np

from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, TopicNotFoundError, for_code
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import CONNECTIONS, Body
from orbitmq.spark.patience import Patient
from orbitmq.spark.sink.begins import Begin, Task, note_begin
from orbitmq.spark.sink.decisions import WRITE_PROPERTY, Attempt, Decision, Decisions, Share
from orbitmq.spark.sink.frames import Frames, Numbers
from orbitmq.spark.sink.lanes import Batch, Lane, Lanes
from orbitmq.spark.sink.ledger import LEDGER_QUEUES, STAGING_TOPIC, STORED, Ledger
from orbitmq.spark.sink.message_rows import Messages
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.publishing import NEW_TOPIC_QUEUES
from orbitmq.spark.sink.sending import Sender
from orbitmq.spark.sink.staged import STAGED, AttemptIds, HalfMessage, StagedList
from orbitmq.spark.sink.topic_types import check_rows, required_type
from orbitmq.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from orbitmq.wire.ids import create_unique_id, decode_offset_message_id
from orbitmq.wire.properties import PRODUCER_GROUP, UNIQ_KEY, encode_properties
from orbitmq.wire.properties import TRANSACTION_PREPARED as IS_HALF
from orbitmq.wire.record import TRANSACTION_PREPARED

log = logging.getLogger("orbitmq.spark")

CHUNK: Final = 50_000
"""How many batches one list has."""
_BODY: Final = b"stands for staged rows, and is never delivered"


class _Broker:
    """What a task has on one broker."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.staged: dict[str, list[tuple[int, int, int, int, int]]] = {}
        self.halves: list[HalfMessage] = []


class Staging:
    """Brings the rows of one attempt of ``task`` to the brokers.

    ``decision`` is that of an earlier run of the same write, where it was made: nothing is sent
    then. ``ids`` are for the rows. Errors are those of :class:`~orbitmq.spark.sink.sending.Sender`.
    """

    def __init__(self, options: WriteOptions, task: Task) -> None:
        self.decision: Decision | None = None
        self.ids = AttemptIds()
        self._options = options
        self._task = task
        self._scope = quote(task.write, safe=":/")
        self._owner = {WRITE_PROPERTY: f"{self._scope} {self.ids.tag}"}
        self._queue = zlib.crc32(self.ids.tag.encode()) % LEDGER_QUEUES
        self._patient = Patient(f"preparing {task.write}", options.broker_wait_ms)
        self._topics: dict[str, Lanes] = {}
        self._types: dict[str, set[str]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._sender = Sender(
            options.name_servers, options.group, options.access, options.broker_wait_ms, self, self
        )

    @property
    def failed_row(self) -> int | None:
        """The row whose error was raised."""
        return self._sender.failed_row

    def add_all(self, messages: Messages) -> None:
        """Take messages; each leaves with others of its queue, in their order."""
        self._sender.add_all(messages)

    def finish(self) -> dict[str, Share]:
        """Wait until every row is stored; where the lists of them are, by broker."""
        self._sender.finish()
        return {
            name: Share(self._attempts(name, broker), self._queues_of(name))
            for name, broker in self._brokers.items()
        }

    def roll_back(self) -> None:
        """Drop what was sent, as far as the brokers can be reached; they drop the rest in time."""
        decisions = Decisions(self._options, self._task.write)
        for broker in self._brokers.values():
            try:
                decisions.drop(broker.ledger, broker.halves)
            except (NetworkError, BrokerError) as error:
                log.warning("half messages of a failed task stay open: %s", error)

    def close(self) -> None:
        """Keep the connections for the next task."""
        self._sender.close()

    # As the sender's guard

    def open(self, topic: str, lanes: Lanes) -> None:
        """Note the begin on every broker of the topic, and look for a decision there."""
        options = self._options
        names = sorted({queue.broker_name for queue in lanes.queues})
        addresses = {lane.queue.broker_name: lane.address for lane in lanes.all}
        patient = Patient(f"looking whether {self._task.write} is decided", options.broker_wait_ms)
        for name in names:
            if name not in self._brokers:
                ledger = Ledger(addresses[name], name, options.group, options.access)
                self._brokers[name] = _Broker(ledger)
            ledger = self._brokers[name].ledger
            begin = Begin.of(self._task, {}, names)

            self.decision = patient(self._begin, topic, ledger, begin) or self.decision
            required = patient(required_type, ledger.address, topic, options.access)
            if required is not None:
                self._types.setdefault(topic, set()).add(required)
        self._topics[topic] = lanes

    def _begin(self, topic: str, ledger: Ledger, begin: Begin) -> Decision | None:
        note_begin(ledger, f"{self._scope}:{self._task.partition}:{topic}", begin)
        ledger.prepare_staging()
        return Decisions(self._options, self._task.write).find(ledger)

    def unsent(self, topic: str, frames: Frames) -> Numbers | None:
        """All rows, unless it is decided already which count."""
        if self.decision is not None:
            return np.zeros(0, np.int64)
        for required in self._types.get(topic, ()):
            check_rows(topic, required, frames)
        return None

    def is_open(self, _error: NetworkError | BrokerError) -> bool:
        """It does not matter: what is staged twice is listed once."""
        return False

    def rest(self, _lane: Lane, batch: Batch) -> Batch:
        """All of it."""
        return batch

    # As the sender's carrier

    def request(
        self, lane: Lane, batch: Batch
    ) -> tuple[RequestCode, SendMessageRequestHeaderV2, Body]:
        """A batch as one message."""
        ledger = self._brokers[lane.queue.broker_name].ledger
        return ledger.request(self._owner, batch.body, STAGING_TOPIC, self._queue)

    def stored(self, lane: Lane, batch: Batch, header: SendMessageResponseHeader) -> None:
        """Keep where it is."""
        topic, broker_name, queue_id = lane.queue
        at = decode_offset_message_id(header.msg_id)[2]
        one = (batch.first_row, at, batch.count, batch.kind, queue_id)
        self._brokers[broker_name].staged.setdefault(topic, []).append(one)

    def healed(self, lane: Lane, error: NetworkError | BrokerError) -> bool:
        """Whether the topic of staged rows was gone, and is there again."""
        if not isinstance(error, TopicNotFoundError):
            return False
        ledger = self._brokers[lane.queue.broker_name].ledger
        self._patient(ledger.prepare_staging, again=True)
        return True

    # The end

    def _attempts(self, name: str, broker: _Broker) -> list[Attempt]:
        """What the decision is to have of this attempt: at most one."""
        lists, rows = [], 0
        for topic, staged in broker.staged.items():
            half = self._patient(self._send_half, topic, name, broker.ledger)
            broker.halves.append(half)
            batches = np.array(staged, STAGED)
            rows += int(batches["count"].sum())
            for at in range(0, len(batches), CHUNK):
                own = StagedList(topic, half, batches[at : at + CHUNK].tobytes())
                body = msgspec.msgpack.encode(own)
                lists.append(self._patient(broker.ledger.store, self._owner, body))
        return [Attempt(self.ids.tag, lists, rows)] if lists else []

    def _send_half(self, topic: str, broker_name: str, ledger: Ledger) -> HalfMessage:
        """The half message that stands for the rows of one topic on one broker."""
        queues = self._topics[topic].queues
        queue_id = next(one.queue_id for one in queues if one.broker_name == broker_name)
        if topic in self._types:
            topic, queue_id = STAGING_TOPIC, self._queue
        pairs = {
            IS_HALF: "true",
            PRODUCER_GROUP: self._options.group,
            UNIQ_KEY: create_unique_id(),
            **self._owner,
        }
        header = SendMessageRequestHeaderV2(
            producer_group=self._options.group,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=queue_id,
            sys_flag=TRANSACTION_PREPARED,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=encode_properties(pairs).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=broker_name,
        )
        access = self._options.access
        with CONNECTIONS.borrow(ledger.address, access) as connection:
            answer = connection.invoke(RequestCode.SEND_MESSAGE_V2, header, _BODY)
        if answer.code not in STORED:
            raise for_code(answer.code, answer.remark, ledger.address, access.access_key)
        sent = answer.header(SendMessageResponseHeader)
        return HalfMessage(decode_offset_message_id(sent.msg_id)[2], sent.queue_offset)

    def _queues_of(self, broker_name: str) -> dict[str, dict[int, int]]:
        """The queues of one broker by topic; where they end is looked for before the commit."""
        found: dict[str, dict[int, int]] = {}
        for topic, lanes in self._topics.items():
            for queue in lanes.queues:
                if queue.broker_name == broker_name:
                    found.setdefault(topic, {})[queue.queue_id] = 0
        return found
