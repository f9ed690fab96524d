"""OrbitMQ: RocketMQ for Python. All public names are here, flat.

A name is imported when it is first used, so that ``orbitmq broker`` starts without the clients and
a client without the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.aio.lite_pull_consumer import AsyncLitePullConsumer
    from orbitmq.aio.producer import AsyncProducer
    from orbitmq.aio.pull_consumer import AsyncPullConsumer
    from orbitmq.aio.pull_schedule import AsyncPullConsumerScheduleService
    from orbitmq.aio.push_consumer import AsyncPushConsumer
    from orbitmq.allocate import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByConsistentHash,
        AllocateByMachineRoom,
        AllocateMachineRoomNearby,
        AllocateStrategy,
    )
    from orbitmq.blocking.lite_pull_consumer import LitePullConsumer
    from orbitmq.blocking.producer import Producer
    from orbitmq.blocking.pull_consumer import PullConsumer
    from orbitmq.blocking.pull_schedule import PullConsumerScheduleService
    from orbitmq.blocking.push_consumer import PushConsumer
    from orbitmq.broker.embedded import EmbeddedBroker
    from orbitmq.consumer.hooks import (
        ConsumeMessageContext,
        ConsumeMessageHook,
        ConsumeReturnType,
        FilterMessageContext,
        FilterMessageHook,
    )
    from orbitmq.consumer.offsets import OffsetStore
    from orbitmq.consumer.pull.schedule import PullTaskContext
    from orbitmq.consumer.pull_request import PullResult
    from orbitmq.consumer.push.listeners import (
        ConsumeConcurrentlyContext,
        ConsumeOrderlyContext,
        ConsumeStatus,
    )
    from orbitmq.errors import (
        AuthenticationError,
        BodyError,
        BrokerError,
        BrokerInternalError,
        ClientStateError,
        ConfigError,
        ConnectError,
        ConnectionLostError,
        CorruptStoreError,
        DataLossError,
        DiskFullError,
        FrameError,
        HeaderError,
        IllegalNameError,
        InvalidMessageError,
        MessageIllegalError,
        NetworkError,
        NoPermissionError,
        OrbitMQError,
        QueryNotFoundError,
        RecordError,
        ReplyTimeoutError,
        RequestNotSupportedError,
        RequestTimeoutError,
        ServiceUnavailableError,
        StoreError,
        StoreLockedError,
        SubscriptionError,
        SystemBusyError,
        TopicNotFoundError,
        WireError,
    )
    from orbitmq.filters.subscription import MessageSelector
    from orbitmq.message import Message, MessageQueue, PullStatus, SendResult, SendStatus
    from orbitmq.net.tls import ClientAuth, ServerTls, TlsMode
    from orbitmq.producer.hooks import (
        CheckForbiddenContext,
        CheckForbiddenHook,
        CommunicationMode,
        EndTransactionContext,
        EndTransactionHook,
        MessageType,
        SendMessageContext,
        SendMessageHook,
    )
    from orbitmq.producer.outgoing import split_batch
    from orbitmq.producer.requests import create_reply_message
    from orbitmq.producer.selectors import select_queue_by_hash, select_queue_by_random
    from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel
    from orbitmq.wire.message_view import MessageView
    from orbitmq.wire.running_info import ConsumerRunningInfo, ConsumeStatusInfo

__version__ = "0.1.0"

_HOMES = {
    "orbitmq.allocate": """AllocateAveragely AllocateAveragelyByCircle AllocateByConfig
        AllocateByConsistentHash AllocateByMachineRoom AllocateMachineRoomNearby
        AllocateStrategy""",
    "orbitmq.blocking.lite_pull_consumer": "LitePullConsumer",
    "orbitmq.blocking.producer": "Producer",
    "orbitmq.blocking.pull_consumer": "PullConsumer",
    "orbitmq.blocking.pull_schedule": "PullConsumerScheduleService",
    "orbitmq.blocking.push_consumer": "PushConsumer",
    "orbitmq.broker.embedded": "EmbeddedBroker",
    "orbitmq.aio.lite_pull_consumer": "AsyncLitePullConsumer",
    "orbitmq.aio.producer": "AsyncProducer",
    "orbitmq.aio.pull_consumer": "AsyncPullConsumer",
    "orbitmq.aio.pull_schedule": "AsyncPullConsumerScheduleService",
    "orbitmq.aio.push_consumer": "AsyncPushConsumer",
    "orbitmq.consumer.hooks": """
        ConsumeMessageContext ConsumeMessageHook ConsumeReturnType FilterMessageContext
        FilterMessageHook
    """,
    "orbitmq.consumer.push.listeners": """
        ConsumeConcurrentlyContext ConsumeOrderlyContext ConsumeStatus
    """,
    "orbitmq.consumer.offsets": "OffsetStore",
    "orbitmq.consumer.pull.schedule": "PullTaskContext",
    "orbitmq.consumer.pull_request": "PullResult",
    "orbitmq.producer.hooks": """
        CheckForbiddenContext CheckForbiddenHook CommunicationMode EndTransactionContext
        EndTransactionHook MessageType SendMessageContext SendMessageHook
    """,
    "orbitmq.producer.outgoing": "split_batch",
    "orbitmq.producer.requests": "create_reply_message",
    "orbitmq.producer.selectors": "select_queue_by_hash select_queue_by_random",
    "orbitmq.errors": """
        AuthenticationError BodyError BrokerError BrokerInternalError ClientStateError ConfigError
        ConnectError ConnectionLostError CorruptStoreError DataLossError DiskFullError FrameError
        HeaderError IllegalNameError InvalidMessageError MessageIllegalError NetworkError
        NoPermissionError OrbitMQError QueryNotFoundError RecordError ReplyTimeoutError
        RequestNotSupportedError RequestTimeoutError ServiceUnavailableError StoreError
        StoreLockedError SubscriptionError SystemBusyError TopicNotFoundError WireError
    """,
    "orbitmq.filters.subscription": "MessageSelector",
    "orbitmq.message": "Message MessageQueue PullStatus SendResult SendStatus",
    "orbitmq.net.tls": "ClientAuth ServerTls TlsMode",
    "orbitmq.wire.bodies": "ConsumeFromWhere MessageModel",
    "orbitmq.wire.message_view": "MessageView",
    "orbitmq.wire.running_info": "ConsumeStatusInfo ConsumerRunningInfo",
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPullConsumerScheduleService",
    "AsyncPushConsumer",
    "AuthenticationError",
    "BodyError",
    "BrokerError",
    "BrokerInternalError",
    "CheckForbiddenContext",
    "CheckForbiddenHook",
    "ClientAuth",
    "ClientStateError",
    "CommunicationMode",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumeConcurrentlyContext",
    "ConsumeFromWhere",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeOrderlyContext",
    "ConsumeReturnType",
    "ConsumeStatus",
    "ConsumeStatusInfo",
    "ConsumerRunningInfo",
    "CorruptStoreError",
    "DataLossError",
    "DiskFullError",
    "EmbeddedBroker",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterMessageContext",
    "FilterMessageHook",
    "FrameError",
    "HeaderError",
    "IllegalNameError",
    "InvalidMessageError",
    "LitePullConsumer",
    "Message",
    "MessageIllegalError",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "MessageType",
    "MessageView",
    "NetworkError",
    "NoPermissionError",
    "OffsetStore",
    "OrbitMQError",
    "Producer",
    "PullConsumer",
    "PullConsumerScheduleService",
    "PullResult",
    "PullStatus",
    "PullTaskContext",
    "PushConsumer",
    "QueryNotFoundError",
    "RecordError",
    "ReplyTimeoutError",
    "RequestNotSupportedError",
    "RequestTimeoutError",
    "SendMessageContext",
    "SendMessageHook",
    "SendResult",
    "SendStatus",
    "ServerTls",
    "ServiceUnavailableError",
    "StoreError",
    "StoreLockedError",
    "SubscriptionError",
    "SystemBusyError",
    "TlsMode",
    "TopicNotFoundError",
    "WireError",
    "create_reply_message",
    "select_queue_by_hash",
    "select_queue_by_random",
    "split_batch",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
