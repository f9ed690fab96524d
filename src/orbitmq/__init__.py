"""OrbitMQ: RocketMQ for Python. All public names are here, flat.

A name is imported when it is first used, so that ``orbitmq broker`` starts without the clients and
a client without the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from orbitmq.blocking.push_consumer import PushConsumer
    from orbitmq.broker.embedded import EmbeddedBroker
    from orbitmq.client.async_lite_pull_consumer import AsyncLitePullConsumer
    from orbitmq.client.async_producer import AsyncProducer
    from orbitmq.client.async_push_consumer import AsyncPushConsumer
    from orbitmq.client.listeners import (
        ConsumeConcurrentlyContext,
        ConsumeOrderlyContext,
        ConsumeStatus,
    )
    from orbitmq.client.offsets import OffsetStore
    from orbitmq.client.selectors import select_queue_by_hash, select_queue_by_random
    from orbitmq.errors import (
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
    from orbitmq.message import (
        Message,
        MessageQueue,
        PullResult,
        PullStatus,
        SendResult,
        SendStatus,
    )
    from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel
    from orbitmq.wire.message_view import MessageView

__version__ = "0.1.0"

_HOMES = {
    "orbitmq.allocate": """AllocateAveragely AllocateAveragelyByCircle AllocateByConfig
        AllocateByConsistentHash AllocateByMachineRoom AllocateMachineRoomNearby
        AllocateStrategy""",
    "orbitmq.blocking.lite_pull_consumer": "LitePullConsumer",
    "orbitmq.blocking.producer": "Producer",
    "orbitmq.blocking.push_consumer": "PushConsumer",
    "orbitmq.broker.embedded": "EmbeddedBroker",
    "orbitmq.client.async_lite_pull_consumer": "AsyncLitePullConsumer",
    "orbitmq.client.async_producer": "AsyncProducer",
    "orbitmq.client.async_push_consumer": "AsyncPushConsumer",
    "orbitmq.client.listeners": "ConsumeConcurrentlyContext ConsumeOrderlyContext ConsumeStatus",
    "orbitmq.client.offsets": "OffsetStore",
    "orbitmq.client.selectors": "select_queue_by_hash select_queue_by_random",
    "orbitmq.errors": """
        BodyError BrokerError BrokerInternalError ClientStateError ConfigError ConnectError
        ConnectionLostError CorruptStoreError DataLossError DiskFullError FrameError
        HeaderError IllegalNameError InvalidMessageError MessageIllegalError NetworkError
        NoPermissionError OrbitMQError QueryNotFoundError RecordError RequestNotSupportedError
        RequestTimeoutError ServiceUnavailableError StoreError StoreLockedError
        SubscriptionError SystemBusyError TopicNotFoundError WireError
    """,
    "orbitmq.filters.subscription": "MessageSelector",
    "orbitmq.message": "Message MessageQueue PullResult PullStatus SendResult SendStatus",
    "orbitmq.wire.bodies": "ConsumeFromWhere MessageModel",
    "orbitmq.wire.message_view": "MessageView",
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
    "AsyncPushConsumer",
    "BodyError",
    "BrokerError",
    "BrokerInternalError",
    "ClientStateError",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumeConcurrentlyContext",
    "ConsumeFromWhere",
    "ConsumeOrderlyContext",
    "ConsumeStatus",
    "CorruptStoreError",
    "DataLossError",
    "DiskFullError",
    "EmbeddedBroker",
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
    "MessageView",
    "NetworkError",
    "NoPermissionError",
    "OffsetStore",
    "OrbitMQError",
    "Producer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "QueryNotFoundError",
    "RecordError",
    "RequestNotSupportedError",
    "RequestTimeoutError",
    "SendResult",
    "SendStatus",
    "ServiceUnavailableError",
    "StoreError",
    "StoreLockedError",
    "SubscriptionError",
    "SystemBusyError",
    "TopicNotFoundError",
    "WireError",
    "select_queue_by_hash",
    "select_queue_by_random",
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
