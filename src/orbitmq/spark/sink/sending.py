"""How a task sends its rows: batches, one under way per queue, all acknowledged before it ends.

Only one batch of a queue is under way at a time, because a broker may carry out two in either
order; so messages of one sharding key, which all go to one queue, keep their order. Other queues'
batches go on meanwhile.
"""

from __future__ import annotations

import logging
import select
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    MessageIllegalError,
    NetworkError,
    RequestTimeoutError,
    WireError,
    for_code,
)
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection, Body
from orbitmq.spark.patience import BROKER_WAIT_MS, Patience
from orbitmq.spark.sink.frames import ALONE, BESIDE, Frames, Numbers, parts_of
from orbitmq.spark.sink.lanes import Batch, Lane, Lanes
from orbitmq.spark.sink.ledger import STORED
from orbitmq.spark.sink.message_rows import Messages
from orbitmq.spark.sink.placing import ANY, by_hash
from orbitmq.spark.sink.publishing import NEW_TOPIC_QUEUES, open_lanes
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from orbitmq.wire.record import encode_batch

log = logging.getLogger("orbitmq.spark")

SEND_TIMEOUT_SECONDS: Final = 10.0
SINGLES: Final = 1000
"""How many messages that are added one by one are handed on together."""


class Outgoing(msgspec.Struct, gc=False):
    """One message to send.

    ``properties`` are in stored form; ``batchable`` says whether it may travel in a batch, which a
    delayed message may not.
    """

    body: bytes
    properties: bytes
    sharding_key: str | None = None
    batchable: bool = True


class Guard(Protocol):
    """Knows which messages the brokers have already."""

    def open(self, topic: str, lanes: Lanes) -> None:
        """Called before the first message goes to ``topic``."""

    def unsent(self, topic: str, frames: Frames) -> Numbers | None:
        """The indices of those that ``topic`` has not; None for all."""

    def is_open(self, error: NetworkError | BrokerError) -> bool:
        """Whether a batch that failed so may have been stored."""

    def rest(self, lane: Lane, batch: Batch) -> Batch:
        """What of a batch of unknown outcome, the only one under way in ``lane``, is not stored."""


class Carrier(Protocol):
    """How a batch travels, where not as itself."""

    def request(
        self, lane: Lane, batch: Batch
    ) -> tuple[RequestCode, SendMessageRequestHeaderV2, Body]:
        """What is sent to the lane's broker for a batch."""

    def stored(self, lane: Lane, batch: Batch, header: SendMessageResponseHeader) -> None:
        """Called when the broker has it."""

    def healed(self, lane: Lane, error: NetworkError | BrokerError) -> bool:
        """Whether a batch that failed so can be sent again at once, as its reason is gone now."""


class Sender:
    """Sends messages as producer group ``group``.

    Any call may raise the error of a message added earlier: InvalidMessageError or BrokerError
    when a broker refuses it for good, or for now REFUSALS times, NetworkError when none was reached
    for ``broker_wait_ms``. A batch whose answer is lost is sent again, so a message may be stored
    twice, unless a ``guard`` looks whether it was. With a ``carrier`` that says what is sent.
    """

    def __init__(
        self,
        name_servers: tuple[str, ...],
        group: str,
        access: Access = OPEN,
        broker_wait_ms: int = BROKER_WAIT_MS,
        guard: Guard | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        self._name_servers = name_servers
        self._access = access
        self._broker_wait_ms = broker_wait_ms
        self._group = group
        self._topics: dict[str, Lanes] = {}
        self._connections: dict[str, BlockingConnection] = {}
        self._under_way: dict[tuple[str, int], tuple[Lane, Batch]] = {}
        self.failed_row: int | None = None
        """The row whose error was raised."""
        self._again: deque[tuple[Batch, Lane]] = deque()
        self._singles: list[Outgoing] = []
        self._singles_topic = ""
        self._added = 0
        self._guard = guard
        self._carrier = carrier

    def add(self, topic: str, message: Outgoing) -> None:
        """Take one message; it leaves with others of its queue."""
        self._lanes_of(topic)
        if topic != self._singles_topic or len(self._singles) >= SINGLES:
            self._add_singles()
            self._singles_topic = topic
        self._singles.append(message)

    def add_all(self, messages: Messages) -> None:
        """Take messages; each leaves with others of its queue, in their order."""
        topic, frames, placing = messages
        lanes = self._lanes_of(topic)
        places = None if placing is None else placing(lanes.queues, frames)
        if self._guard is not None:
            unsent = self._guard.unsent(topic, frames)
            if unsent is not None:
                frames = frames.only(unsent)
                places = None if places is None else places[unsent]
        if places is None:
            self._add_in_turn(lanes, frames)
            return
        self._add_placed(
            (lane, frames.only(indices))
            for number, lane in enumerate(lanes.all)
            if len(indices := np.flatnonzero(places == number))
        )
        anywhere = np.flatnonzero(places == ANY)
        if len(anywhere):
            self._add_in_turn(lanes, frames.only(anywhere))

    def deliver(self, lane: Lane, batch: Batch) -> None:
        """Send a batch that is placed in a lane of the caller's, behind those before it."""
        while lane.busy:
            self._advance()
        self._transmit(lane, batch)

    def _lanes_of(self, topic: str) -> Lanes:
        lanes = self._topics.get(topic)
        if lanes is None:
            lanes = open_lanes(topic, self._name_servers, self._access)
            if self._guard is not None:
                self._guard.open(topic, lanes)
            self._topics[topic] = lanes
        return lanes

    def _add_singles(self) -> None:
        """Hand on what was added one by one."""
        singles, self._singles = self._singles, []
        if not singles:
            return
        items = [(0, message.body, message.properties) for message in singles]
        sizes = [BESIDE + len(body) + len(properties) for _, body, properties in items]
        frames = Frames(
            memoryview(encode_batch(items)),
            np.concatenate(([0], np.cumsum(sizes))),
            np.array([0 if message.batchable else ALONE for message in singles]),
            np.arange(self._added, self._added + len(singles)),
            np.zeros((len(singles), 0), np.uint8),
        )
        self._added += len(singles)
        keys = pa.array([message.sharding_key for message in singles], pa.string())
        self.add_all(Messages(self._singles_topic, frames, by_hash(keys)))

    def _add_in_turn(self, lanes: Lanes, frames: Frames) -> None:
        begin = 0
        while begin < len(frames):
            begin = lanes.current.filling.fill(frames, begin, placed=False)
            if begin < len(frames):
                self._flush(lanes.current)
                lanes.turn()
                if lanes.current.filling.count:
                    self._flush(lanes.current)

    def _add_placed(self, parts: Iterable[tuple[Lane, Frames]]) -> None:
        """Each lane's messages, a batch of each lane by turns so that all are under way."""
        waiting = deque((lane, frames, 0) for lane, frames in parts)
        while waiting:
            lane, frames, begin = waiting.popleft()
            begin = lane.filling.fill(frames, begin, placed=True)
            if begin < len(frames):
                self._flush(lane)
                waiting.append((lane, frames, begin))

    def finish(self) -> None:
        """Send what is left and wait until every message is acknowledged."""
        self._add_singles()
        for lanes in self._topics.values():
            for lane in lanes.all:
                if lane.filling.count:
                    self._flush(lane)
        while self._under_way or self._again:
            self._advance()

    def close(self) -> None:
        """Keep the connections for the next task; those with unanswered requests are closed."""
        for connection in self._connections.values():
            CONNECTIONS.give_back(connection)
        self._connections.clear()

    def _flush(self, lane: Lane) -> None:
        while lane.busy:
            self._advance()
        batch, lane.filling = lane.filling, Batch()
        self._transmit(lane, batch)

    def _advance(self) -> None:
        """Send again what failed, and wait for answers."""
        for _ in range(len(self._again)):
            self._try_again(*self._again.popleft())
        waiting = [one for one in self._connections.values() if one.outstanding]
        if not waiting:
            return
        ready, _, _ = select.select(waiting, [], [], SEND_TIMEOUT_SECONDS)
        for connection in ready:
            try:
                for answer in connection.receive_ready():
                    self._answered(connection.address, answer)
            except (NetworkError, WireError) as error:
                self._lost(connection, error)
        if not ready:
            for connection in waiting:
                text = f"{connection.address} did not answer within {SEND_TIMEOUT_SECONDS:.0f} s"
                self._lost(connection, RequestTimeoutError(text, connection.address))

    def _try_again(self, batch: Batch, lane: Lane) -> None:
        if batch.suspect and self._guard is not None:
            try:
                rest = self._guard.rest(lane, batch)
            except (NetworkError, BrokerError) as error:
                self._failed(lane, batch, error)
                return
            if not rest.count or not rest.placed:
                self._done(lane)
            if not rest.count:
                return
            batch = rest
        to = lane if batch.placed else self._idle_lane(lane)
        if to is None:
            self._again.append((batch, lane))
        else:
            self._transmit(to, batch)

    def _idle_lane(self, failed: Lane) -> Lane | None:
        """A queue of the same topic with nothing under way, on another broker if possible."""
        idle = [lane for lane in self._topics[failed.queue.topic].all if not lane.busy]
        others = [lane for lane in idle if lane.queue.broker_name != failed.queue.broker_name]
        return next(iter(others or idle), None)

    def _transmit(self, lane: Lane, batch: Batch) -> None:
        lane.busy = True
        code, header, body = self._request(lane, batch)
        try:
            connection = self._connections.get(lane.address)
            if connection is None:
                connection = CONNECTIONS.take(lane.address, self._access)
                self._connections[lane.address] = connection
            opaque = connection.send(code, header, body)
        except NetworkError as error:
            self._drop(lane.address)
            self._failed(lane, batch, error)
        else:
            self._under_way[lane.address, opaque] = lane, batch

    def _request(
        self, lane: Lane, batch: Batch
    ) -> tuple[RequestCode, SendMessageRequestHeaderV2, Body]:
        if self._carrier is not None:
            return self._carrier.request(lane, batch)
        single = batch.count == 1
        body = batch.body
        message = parts_of(body) if single else None
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=lane.queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=lane.queue.queue_id,
            sys_flag=batch.sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=message.flag if message else 0,
            properties=message.properties.decode() if message else None,
            reconsume_times=0,
            unit_mode=False,
            batch=not single,
            bname=lane.queue.broker_name,
        )
        if message:
            return RequestCode.SEND_MESSAGE_V2, header, message.body
        return RequestCode.SEND_BATCH_MESSAGE, header, body

    def _answered(self, address: str, answer: RemotingCommand) -> None:
        lane, batch = self._under_way.pop((address, answer.opaque))
        if answer.code in STORED:
            if self._carrier is not None:
                self._carrier.stored(lane, batch, answer.header(SendMessageResponseHeader))
            elif self._guard is not None:
                at = answer.header(SendMessageResponseHeader).queue_offset
                lane.next_offset = at + batch.count
            self._done(lane)
            if answer.code != codes.SUCCESS:
                log.warning("%s stored messages, but: %s", address, answer.remark)
        else:
            self._failed(
                lane, batch, for_code(answer.code, answer.remark, address, self._access.access_key)
            )

    def _lost(self, connection: BlockingConnection, error: NetworkError | WireError) -> None:
        """Every batch under way on a broken connection has failed."""
        if not isinstance(error, NetworkError):
            error = NetworkError(str(error), connection.address)
        self._drop(connection.address)
        lost = [
            self._under_way.pop(key) for key in [*self._under_way] if key[0] == connection.address
        ]
        for lane, batch in lost:
            self._failed(lane, batch, error)

    def _drop(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _done(self, lane: Lane) -> None:
        lane.busy = False
        if lane.backlog:
            self._transmit(lane, lane.backlog.popleft())

    def _failed(self, lane: Lane, batch: Batch, error: NetworkError | BrokerError) -> None:
        """Try the batch again, unless placed on another broker if there is one.

        Of a batch that is refused for what a message is, each half is sent, until the one message
        is found.
        """
        if isinstance(error, MessageIllegalError) and batch.count > 1:
            first, second = batch.halves()
            lane.backlog.appendleft(second)
            self._transmit(lane, first)
            return
        if self._carrier is not None and self._carrier.healed(lane, error):
            self._transmit(lane, batch)
            return
        if batch.patience is None:
            batch.patience = Patience(f"sending to {lane.queue.topic}", self._broker_wait_ms)
        try:
            batch.patience.wait_after(error)
        except (NetworkError, BrokerError):
            self.failed_row = batch.first_row
            raise
        if self._guard is not None and self._guard.is_open(error):
            batch.suspect = True
        if not batch.placed and not batch.suspect:
            self._done(lane)
        self._again.append((batch, lane))
