"""What operators ask of consumers, through the brokers: offsets reset, progress, how they run.

220 resets offsets of a running consumer, 221 tells how far it is, 307 everything about it, and 309
has it consume one message while the operator waits. Follows ClientRemotingProcessor and
resetOffset, getConsumerStatus, consumerRunningInfo and consumeMessageDirectly of MQClientInstance.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import ClassVar

from orbitmq import codes
from orbitmq.client.config import ClientConfig
from orbitmq.client.instance import ClientInstance
from orbitmq.clock import elapsed_ms
from orbitmq.codes import RequestCode
from orbitmq.consumer.config import GroupConfig
from orbitmq.consumer.offsets import OffsetStore, ReadOffset
from orbitmq.consumer.process_queue import Held
from orbitmq.errors import ClientStateError, OrbitMQError
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection, describe_code
from orbitmq.wire.admin_bodies import GetConsumerStatusBody, ResetOffsetBody
from orbitmq.wire.bodies import Body, ConsumeType, SubscriptionData
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from orbitmq.wire.message_view import MessageView, decode_record
from orbitmq.wire.running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    running_info,
)

log = logging.getLogger("orbitmq.consumer")

_NOT_TOLD = -2
"""A commit offset that the broker did not tell."""


class OperatedConsumer(ABC):
    """A consumer that operators may ask; what each kind of consumer does about it, by default.

    All on the private loop.
    """

    consume_type: ClassVar[ConsumeType]
    instance: ClientInstance
    offsets: OffsetStore
    group: str
    born_ms: int
    _base_config: GroupConfig

    @abstractmethod
    def subscriptions(self) -> Collection[SubscriptionData]:
        """What it subscribes to."""

    @abstractmethod
    def owned(self) -> Mapping[MessageQueue, Held]:
        """The queues it holds at any time."""

    async def running_info(self, *, jstack: bool = False) -> ConsumerRunningInfo:
        """What it is doing; ``jstack`` adds the stacks of all threads.

        Its settings go by the names they have here, without those of the connection, which may
        be secrets (Java has the names of its fields). An offset that its broker does not tell
        is -2.
        """
        config = self._base_config
        properties = {
            name: str(value)
            for name in config.__struct_fields__
            if name not in ClientConfig.__struct_fields__
            and (value := getattr(config, name)) is not None
        }
        addresses = self.instance.name_servers.addresses
        properties[PROP_NAMESERVER_ADDR] = f"{addresses};" if addresses else ""
        properties[PROP_CONSUME_TYPE] = self.consume_type.value
        properties[PROP_CLIENT_VERSION] = f"OrbitMQ {_own_version()}"
        properties[PROP_CONSUMER_START_TIMESTAMP] = str(self.born_ms)
        clock = self.instance.clock
        began_ms = clock.now_ms() - elapsed_ms(clock)
        queues = {}
        for queue, held in list(self.owned().items()):
            offset = await self._commit_offset(queue)
            process_queue = held.process_queue
            with process_queue.lock:
                queues[queue] = process_queue.info(offset, began_ms)
        stacks = describe_threads() if jstack else None
        return running_info(properties, self.subscriptions(), queues, jstack=stacks)

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, where it has these queues. Most consumers choose their own."""
        log.info("consumer %s chooses its offsets itself, they are not reset", self.group)

    async def consume_directly(
        self, message: MessageView, broker_name: str
    ) -> ConsumeMessageDirectlyResult | None:
        """Consume one message of ``broker_name`` now; None where there is no listener to do so."""
        return None

    async def _commit_offset(self, queue: MessageQueue) -> int:
        try:
            return await self.offsets.read(queue, ReadOffset.MEMORY_FIRST)
        except OrbitMQError as error:
            log.debug("the offset of %s is not known: %s", queue, error)
            return _NOT_TOLD


def answer_operators(instance: ClientInstance) -> None:
    """Have the consumers of ``instance`` answer operators."""
    requests = OperatorRequests(instance)
    for code in requests.handlers:
        instance.handle(code, requests.handle)


class OperatorRequests:
    """Answers what brokers ask the consumers of one client in the name of operators."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self.handlers: dict[int, Callable[[RemotingCommand], Awaitable[Body | None]]] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def handle(self, command: RemotingCommand, connection: Connection) -> None:
        """Take a request; it is answered when that can be done."""
        self._instance.spawn(self._answer(command, connection))

    async def _answer(self, command: RemotingCommand, connection: Connection) -> None:
        what = describe_code(command.code)
        log.info("the broker at %s asks for %s", connection.peer, what)
        try:
            answer = await self.handlers[command.code](command)
        except Exception as error:
            if not isinstance(error, OrbitMQError):
                log.exception("%s of the broker at %s went wrong", what, connection.peer)
            if not command.is_oneway:
                response = encode_response(command, codes.SYSTEM_ERROR, remark=str(error))
                connection.send(response)
            return
        if not command.is_oneway:
            body = b"" if answer is None else answer.encode()
            connection.send(encode_response(command, codes.SUCCESS, body_length=len(body)), body)

    async def _reset_offsets(self, command: RemotingCommand) -> None:
        """For all queues of the body; a client in C++ would get them in another form."""
        header = command.header(ResetOffsetRequestHeader)
        offsets = ResetOffsetBody.decode(command.body).offset_table if command.body else {}
        mine = {queue: at for queue, at in offsets.items() if queue.topic == header.topic}
        consumer: object = self._instance.consumer(header.group)
        if isinstance(consumer, OperatedConsumer):
            log.warning("group %s: an operator resets offsets: %s", header.group, mine)
            await consumer.reset_offsets(mine)
        else:
            log.info("there is no consumer of %s here whose offsets to reset", header.group)

    async def _status(self, command: RemotingCommand) -> GetConsumerStatusBody:
        """How far each queue is consumed; nothing where there is no consumer."""
        header = command.header(GetConsumerStatusRequestHeader)
        consumer: object = self._instance.consumer(header.group)
        if not isinstance(consumer, OperatedConsumer):
            return GetConsumerStatusBody()
        return GetConsumerStatusBody(consumer.offsets.clone(header.topic))

    async def _running_info(self, command: RemotingCommand) -> ConsumerRunningInfo:
        header = command.header(GetConsumerRunningInfoRequestHeader)
        consumer = self._consumer(header.consumer_group)
        return await consumer.running_info(jstack=header.jstack_enable)

    async def _consume_directly(self, command: RemotingCommand) -> ConsumeMessageDirectlyResult:
        header = command.header(ConsumeMessageDirectlyResultRequestHeader)
        consumer = self._consumer(header.consumer_group)
        broker_name = header.broker_name or ""
        message = decode_record(command.body, 0, broker_name)
        result = await consumer.consume_directly(message, broker_name)
        if result is None:
            raise _no_consumer(header.consumer_group)
        log.info("group %s consumed %r for an operator: %s", consumer.group, message, result)
        return result

    def _consumer(self, group: str) -> OperatedConsumer:
        consumer: object = self._instance.consumer(group)
        if not isinstance(consumer, OperatedConsumer):
            raise _no_consumer(group)
        return consumer


def describe_threads() -> str:
    """The stacks of all threads, in the form of Java's UtilAll.jstack."""
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            stack = "".join(traceback.format_stack(frame))
            parts.append(f"{thread.name:<40}TID: {thread.ident}\n{stack}")
    return "\n".join(parts)


def _own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # few are ever asked

    try:
        return version("orbitmq")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "of a checkout"


def _no_consumer(group: str) -> ClientStateError:
    return ClientStateError(f"The Consumer Group <{group}> not exist in this consumer")
