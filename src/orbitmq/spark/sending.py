"""How a task sends its rows: batches, one under way per queue, all acknowledged before it ends.

Only one batch of a queue is under way at a time, because a broker may carry out two in either
order; so messages of one sharding key, which all go to one queue, keep their order. Other queues'
batches go on meanwhile.
"""

from __future__ import annotations

import logging
import random
import select
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.client.routes import publish_queues
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    InvalidMessageError,
    NetworkError,
    RequestTimeoutError,
    TopicNotFoundError,
    WireError,
    for_code,
)
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection
from orbitmq.spark.patience import BROKER_WAIT_MS, Patience
from orbitmq.spark.topic import fetch_route, master_addresses
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import SendMessageRequestHeaderV2
from orbitmq.wire.ids import java_hash
from orbitmq.wire.record import encode_batch

log = logging.getLogger("orbitmq.spark")

BATCH_MESSAGES: Final = 500
BATCH_BYTES: Final = 256 * 1024
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""What brokers take by default."""
NEW_TOPIC_QUEUES: Final = 4
"""How many queues a topic gets at most that the first message creates."""
SEND_TIMEOUT_SECONDS: Final = 10.0

_STORED: Final = {
    codes.SUCCESS,
    codes.FLUSH_DISK_TIMEOUT,
    codes.FLUSH_SLAVE_TIMEOUT,
    codes.SLAVE_NOT_AVAILABLE,
}


class Outgoing(msgspec.Struct, gc=False):
    """A message to send.

    ``properties`` are in stored form; ``batchable`` says whether it may travel in a batch, which a
    delayed message may not.
    """

    body: bytes
    properties: bytes
    sharding_key: str | None = None
    batchable: bool = True


class _Batch:
    """Messages that travel together."""

    __slots__ = ("keyed", "messages", "patience", "size")

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.size = 0
        self.keyed = False
        self.patience: Patience | None = None  # once it has failed

    def add(self, message: Outgoing) -> None:
        self.messages.append(message)
        self.size += len(message.body) + len(message.properties)
        self.keyed |= message.sharding_key is not None

    def has_room_for(self, message: Outgoing) -> bool:
        if not self.messages:
            return True
        return (
            message.batchable
            and self.messages[0].batchable
            and len(self.messages) < BATCH_MESSAGES
            and self.size + len(message.body) + len(message.properties) <= BATCH_BYTES
        )


class _Lane:
    """One queue: the batch being filled, and whether another is under way."""

    __slots__ = ("address", "broker_name", "busy", "filling", "queue_id", "topic")

    def __init__(self, topic: str, broker_name: str, queue_id: int, address: str) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.address = address
        self.filling = _Batch()
        self.busy = False


class _Lanes:
    """The queues of one topic; the first of them that takes messages without a key is random."""

    def __init__(self, lanes: Sequence[_Lane]) -> None:
        self.all = lanes
        self._turn = random.randrange(len(lanes))  # noqa: S311 - not a secret

    def of(self, message: Outgoing) -> _Lane:
        """By hash of the sharding key (SelectMessageQueueByHash), else the one whose turn it is."""
        if message.sharding_key is not None:
            # Java's remainder of a negative hash is negative, and its absolute value is taken.
            return self.all[abs(java_hash(message.sharding_key)) % len(self.all)]
        return self.all[self._turn]

    def next_after_full(self, message: Outgoing) -> _Lane:
        """Where to go on: without a key in the next queue."""
        if message.sharding_key is None:
            self._turn = (self._turn + 1) % len(self.all)
        return self.of(message)


class Sender:
    """Sends messages as producer group ``group``.

    Any call may raise the error of a message added earlier: InvalidMessageError or BrokerError
    when a broker refuses it for good, or for now REFUSALS times, NetworkError when none was reached
    for ``broker_wait_ms``. A batch whose answer is lost is sent again, so a message may be stored
    twice.
    """

    def __init__(
        self,
        name_servers: tuple[str, ...],
        group: str,
        access: Access = OPEN,
        broker_wait_ms: int = BROKER_WAIT_MS,
    ) -> None:
        self._name_servers = name_servers
        self._access = access
        self._broker_wait_ms = broker_wait_ms
        self._group = group
        self._topics: dict[str, _Lanes] = {}
        self._connections: dict[str, BlockingConnection] = {}
        self._under_way: dict[tuple[str, int], tuple[_Lane, _Batch]] = {}
        self._elsewhere: deque[tuple[_Batch, _Lane]] = deque()

    def add(self, topic: str, message: Outgoing) -> None:
        """Take a message; it leaves with others of its queue."""
        if len(message.body) > MAX_BODY_BYTES:
            raise InvalidMessageError(
                f"a body of {len(message.body)} bytes for topic {topic!r}: "
                f"brokers take {MAX_BODY_BYTES} at most"
            )
        lanes = self._topics.get(topic)
        if lanes is None:
            lanes = self._topics[topic] = self._open(topic)
        lane = lanes.of(message)
        if not lane.filling.has_room_for(message):
            self._flush(lane)
            lane = lanes.next_after_full(message)
            if not lane.filling.has_room_for(message):
                self._flush(lane)
        lane.filling.add(message)

    def finish(self) -> None:
        """Send what is left and wait until every message is acknowledged."""
        for lanes in self._topics.values():
            for lane in lanes.all:
                if lane.filling.messages:
                    self._flush(lane)
        while self._under_way or self._elsewhere:
            self._advance()

    def close(self) -> None:
        """Keep the connections for the next task; those with unanswered requests are closed."""
        for connection in self._connections.values():
            CONNECTIONS.give_back(connection)
        self._connections.clear()

    def _open(self, topic: str) -> _Lanes:
        route = self._route(topic)
        masters = master_addresses(route)
        queues = publish_queues(topic, route)
        if not queues:
            raise TopicNotFoundError(
                codes.TOPIC_NOT_EXIST,
                f"topic {topic!r} has no queue to write: its brokers are away or it is read-only",
            )
        return _Lanes([_Lane(*queue, masters[queue.broker_name]) for queue in queues])

    def _route(self, topic: str) -> TopicRouteData:
        """The topic's route; that of a new one if brokers create topics when messages come."""
        try:
            return fetch_route(self._name_servers, topic, self._access)
        except TopicNotFoundError as missing:
            try:
                route = fetch_route(self._name_servers, AUTO_CREATE_TOPIC, self._access)
            except TopicNotFoundError:
                raise missing from None
        queue_datas = [
            msgspec.structs.replace(
                data, write_queue_nums=min(NEW_TOPIC_QUEUES, data.write_queue_nums)
            )
            for data in route.queue_datas
        ]
        return msgspec.structs.replace(route, queue_datas=queue_datas)

    def _flush(self, lane: _Lane) -> None:
        while lane.busy:
            self._advance()
        batch, lane.filling = lane.filling, _Batch()
        self._transmit(lane, batch)

    def _advance(self) -> None:
        """Wait for answers, and find a queue for batches that are to go elsewhere."""
        for _ in range(len(self._elsewhere)):
            batch, failed = self._elsewhere.popleft()
            lane = self._idle_lane(failed)
            if lane is None:
                self._elsewhere.append((batch, failed))
            else:
                self._transmit(lane, batch)
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

    def _idle_lane(self, failed: _Lane) -> _Lane | None:
        """A queue of the same topic with nothing under way, on another broker if possible."""
        idle = [lane for lane in self._topics[failed.topic].all if not lane.busy]
        others = [lane for lane in idle if lane.broker_name != failed.broker_name]
        return next(iter(others or idle), None)

    def _transmit(self, lane: _Lane, batch: _Batch) -> None:
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
        self, lane: _Lane, batch: _Batch
    ) -> tuple[RequestCode, SendMessageRequestHeaderV2, bytes]:
        single = len(batch.messages) == 1
        first = batch.messages[0]
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=lane.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=lane.queue_id,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=first.properties.decode() if single else None,
            reconsume_times=0,
            unit_mode=False,
            batch=not single,
            bname=lane.broker_name,
        )
        if single:
            return RequestCode.SEND_MESSAGE_V2, header, first.body
        body = encode_batch((0, message.body, message.properties) for message in batch.messages)
        return RequestCode.SEND_BATCH_MESSAGE, header, body

    def _answered(self, address: str, answer: RemotingCommand) -> None:
        lane, batch = self._under_way.pop((address, answer.opaque))
        if answer.code in _STORED:
            lane.busy = False
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

    def _failed(self, lane: _Lane, batch: _Batch, error: NetworkError | BrokerError) -> None:
        """Try the batch again, without sharding keys on another broker if there is one."""
        if batch.patience is None:
            batch.patience = Patience(f"sending to {lane.topic}", self._broker_wait_ms)
        batch.patience.wait_after(error)
        if batch.keyed:
            self._transmit(lane, batch)
        else:
            lane.busy = False
            self._elsewhere.append((batch, lane))
