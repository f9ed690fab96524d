"""OrbitMQ: RocketMQ for Python. All public names are here, flat.

A name is imported when it is first used, so that ``orbitmq broker`` starts without the clients and
a client without the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.admin.offsets import RollbackStats
    from orbitmq.admin.progress import ConsumerProgress, GroupProgress, QueueProgress
    from orbitmq.admin.statistics import BrokerConsumeStats, BrokerRuntimeInfo
    from orbitmq.admin.tracks import MessageTrack, TrackType
    from orbitmq.aio.admin import AsyncAdmin
    from orbitmq.aio.lite_pull_consumer import AsyncLitePullConsumer
    from orbitmq.aio.producer import AsyncProducer
    from orbitmq.aio.pull_consumer import AsyncPullConsumer
    from orbitmq.aio.pull_schedule import AsyncPullConsumerScheduleService
    from orbitmq.aio.push_consumer import AsyncPushConsumer
    from orbitmq.aio.transaction_producer import AsyncTransactionProducer
    from orbitmq.allocate import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByConsistentHash,
        AllocateByMachineRoom,
        AllocateMachineRoomNearby,
        AllocateStrategy,
    )
    from orbitmq.blocking.admin import Admin
    from orbitmq.blocking.lite_pull_consumer import LitePullConsumer
    from orbitmq.blocking.producer import Producer
    from orbitmq.blocking.pull_consumer import PullConsumer
    from orbitmq.blocking.pull_schedule import PullConsumerScheduleService
    from orbitmq.blocking.push_consumer import PushConsumer
    from orbitmq.blocking.transaction_producer import TransactionProducer
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
        ArchiveError,
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
        PartialFailureError,
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
    from orbitmq.producer.local_transactions import LocalTransactionState, TransactionMessage
    from orbitmq.producer.outgoing import split_batch
    from orbitmq.producer.requests import create_reply_message
    from orbitmq.producer.selectors import (
        select_queue_by_hash,
        select_queue_by_machine_room,
        select_queue_by_random,
    )
    from orbitmq.producer.transaction import Transaction, TransactionSendResult
    from orbitmq.wire.admin_bodies import (
        ConsumerConnection,
        ConsumeStats,
        ProducerConnection,
        QueryConsumeQueueResponseBody,
    )
    from orbitmq.wire.bodies import (
        ClusterInfo,
        ConsumeFromWhere,
        ConsumeType,
        CustomizedRetryPolicy,
        ExponentialRetryPolicy,
        GroupRetryPolicy,
        MessageModel,
        SubscriptionData,
        SubscriptionGroupConfig,
        TopicConfig,
        TopicRouteData,
        TopicStatsTable,
    )
    from orbitmq.wire.compress import CompressionType
    from orbitmq.wire.message_view import MessageView
    from orbitmq.wire.operator_bodies import BrokerStatsData, ProducerInfo, QueueTimeSpan
    from orbitmq.wire.running_info import (
        CMResult,
        ConsumeMessageDirectlyResult,
        ConsumerRunningInfo,
        ConsumeStatusInfo,
    )
    from orbitmq.wire.topic_bodies import ColdDataFlowCtrInfo, GroupForbidden, HARuntimeInfo
    from orbitmq.wire.trace_view import TraceType, TraceView

__version__ = "0.1.0"

_HOMES = {
    "orbitmq.admin.offsets": "RollbackStats",
    "orbitmq.admin.progress": "ConsumerProgress GroupProgress QueueProgress",
    "orbitmq.admin.statistics": "BrokerConsumeStats BrokerRuntimeInfo",
    "orbitmq.admin.tracks": "MessageTrack TrackType",
    "orbitmq.aio.admin": "AsyncAdmin",
    "orbitmq.aio.lite_pull_consumer": "AsyncLitePullConsumer",
    "orbitmq.aio.producer": "AsyncProducer",
    "orbitmq.aio.pull_consumer": "AsyncPullConsumer",
    "orbitmq.aio.pull_schedule": "AsyncPullConsumerScheduleService",
    "orbitmq.aio.push_consumer": "AsyncPushConsumer",
    "orbitmq.aio.transaction_producer": "AsyncTransactionProducer",
    "orbitmq.allocate": """
        AllocateAveragely AllocateAveragelyByCircle AllocateByConfig AllocateByConsistentHash
        AllocateByMachineRoom AllocateMachineRoomNearby AllocateStrategy
    """,
    "orbitmq.blocking.admin": "Admin",
    "orbitmq.blocking.lite_pull_consumer": "LitePullConsumer",
    "orbitmq.blocking.producer": "Producer",
    "orbitmq.blocking.pull_consumer": "PullConsumer",
    "orbitmq.blocking.pull_schedule": "PullConsumerScheduleService",
    "orbitmq.blocking.push_consumer": "PushConsumer",
    "orbitmq.blocking.transaction_producer": "TransactionProducer",
    "orbitmq.broker.embedded": "EmbeddedBroker",
    "orbitmq.consumer.hooks": """
        ConsumeMessageContext ConsumeMessageHook ConsumeReturnType FilterMessageContext
        FilterMessageHook
    """,
    "orbitmq.consumer.offsets": "OffsetStore",
    "orbitmq.consumer.pull.schedule": "PullTaskContext",
    "orbitmq.consumer.pull_request": "PullResult",
    "orbitmq.consumer.push.listeners": """
        ConsumeConcurrentlyContext ConsumeOrderlyContext ConsumeStatus
    """,
    "orbitmq.errors": """
        ArchiveError AuthenticationError BodyError BrokerError BrokerInternalError ClientStateError
        ConfigError ConnectError ConnectionLostError CorruptStoreError DataLossError
        DiskFullError FrameError HeaderError IllegalNameError InvalidMessageError
        MessageIllegalError NetworkError NoPermissionError OrbitMQError PartialFailureError
        QueryNotFoundError RecordError ReplyTimeoutError RequestNotSupportedError
        RequestTimeoutError ServiceUnavailableError StoreError StoreLockedError
        SubscriptionError SystemBusyError TopicNotFoundError WireError
    """,
    "orbitmq.filters.subscription": "MessageSelector",
    "orbitmq.message": "Message MessageQueue PullStatus SendResult SendStatus",
    "orbitmq.net.tls": "ClientAuth ServerTls TlsMode",
    "orbitmq.producer.hooks": """
        CheckForbiddenContext CheckForbiddenHook CommunicationMode EndTransactionContext
        EndTransactionHook MessageType SendMessageContext SendMessageHook
    """,
    "orbitmq.producer.local_transactions": "LocalTransactionState TransactionMessage",
    "orbitmq.producer.outgoing": "split_batch",
    "orbitmq.producer.requests": "create_reply_message",
    "orbitmq.producer.selectors": """
        select_queue_by_hash select_queue_by_machine_room select_queue_by_random
    """,
    "orbitmq.producer.transaction": "Transaction TransactionSendResult",
    "orbitmq.wire.admin_bodies": """
        ConsumeStats ConsumerConnection ProducerConnection QueryConsumeQueueResponseBody
    """,
    "orbitmq.wire.bodies": """
        ClusterInfo ConsumeFromWhere ConsumeType CustomizedRetryPolicy ExponentialRetryPolicy
        GroupRetryPolicy MessageModel SubscriptionData SubscriptionGroupConfig TopicConfig
        TopicRouteData TopicStatsTable
    """,
    "orbitmq.wire.compress": "CompressionType",
    "orbitmq.wire.message_view": "MessageView",
    "orbitmq.wire.operator_bodies": "BrokerStatsData ProducerInfo QueueTimeSpan",
    "orbitmq.wire.running_info": """
        CMResult ConsumeMessageDirectlyResult ConsumeStatusInfo ConsumerRunningInfo
    """,
    "orbitmq.wire.topic_bodies": "ColdDataFlowCtrInfo GroupForbidden HARuntimeInfo",
    "orbitmq.wire.trace_view": "TraceType TraceView",
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Admin",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "ArchiveError",
    "AsyncAdmin",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPullConsumerScheduleService",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "AuthenticationError",
    "BodyError",
    "BrokerConsumeStats",
    "BrokerError",
    "BrokerInternalError",
    "BrokerRuntimeInfo",
    "BrokerStatsData",
    "CMResult",
    "CheckForbiddenContext",
    "CheckForbiddenHook",
    "ClientAuth",
    "ClientStateError",
    "ClusterInfo",
    "ColdDataFlowCtrInfo",
    "CommunicationMode",
    "CompressionType",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumeConcurrentlyContext",
    "ConsumeFromWhere",
    "ConsumeMessageContext",
    "ConsumeMessageDirectlyResult",
    "ConsumeMessageHook",
    "ConsumeOrderlyContext",
    "ConsumeReturnType",
    "ConsumeStats",
    "ConsumeStatus",
    "ConsumeStatusInfo",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerProgress",
    "ConsumerRunningInfo",
    "CorruptStoreError",
    "CustomizedRetryPolicy",
    "DataLossError",
    "DiskFullError",
    "EmbeddedBroker",
    "EndTransactionContext",
    "EndTransactionHook",
    "ExponentialRetryPolicy",
    "FilterMessageContext",
    "FilterMessageHook",
    "FrameError",
    "GroupForbidden",
    "GroupProgress",
    "GroupRetryPolicy",
    "HARuntimeInfo",
    "HeaderError",
    "IllegalNameError",
    "InvalidMessageError",
    "LitePullConsumer",
    "LocalTransactionState",
    "Message",
    "MessageIllegalError",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "MessageTrack",
    "MessageType",
    "MessageView",
    "NetworkError",
    "NoPermissionError",
    "OffsetStore",
    "OrbitMQError",
    "PartialFailureError",
    "Producer",
    "ProducerConnection",
    "ProducerInfo",
    "PullConsumer",
    "PullConsumerScheduleService",
    "PullResult",
    "PullStatus",
    "PullTaskContext",
    "PushConsumer",
    "QueryConsumeQueueResponseBody",
    "QueryNotFoundError",
    "QueueProgress",
    "QueueTimeSpan",
    "RecordError",
    "ReplyTimeoutError",
    "RequestNotSupportedError",
    "RequestTimeoutError",
    "RollbackStats",
    "SendMessageContext",
    "SendMessageHook",
    "SendResult",
    "SendStatus",
    "ServerTls",
    "ServiceUnavailableError",
    "StoreError",
    "StoreLockedError",
    "SubscriptionData",
    "SubscriptionError",
    "SubscriptionGroupConfig",
    "SystemBusyError",
    "TlsMode",
    "TopicConfig",
    "TopicNotFoundError",
    "TopicRouteData",
    "TopicStatsTable",
    "TraceType",
    "TraceView",
    "TrackType",
    "Transaction",
    "TransactionMessage",
    "TransactionProducer",
    "TransactionSendResult",
    "WireError",
    "create_reply_message",
    "select_queue_by_hash",
    "select_queue_by_machine_room",
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
