"""Pull requests: what a pull says, and what its answer means.

Shared by the PullTasks of push and lite pull consumers and by the pull consumer's own ``pull``.
Follows PullAPIWrapper (pullKernelImpl, processPullResult), PullSysFlag, and what
MQClientAPIImpl.processPullResponse makes of response codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from orbitmq import codes
from orbitmq.consumer.hooks import FilterHooks
from orbitmq.filters.subscription import TAG
from orbitmq.filters.tags import matches_tags
from orbitmq.message import MessageQueue, PullStatus
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import MAX_OFFSET, MIN_OFFSET

# Bits of a pull's sysFlag.
COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4
LITE_PULL: Final = 16

STATUS_OF: Final[Mapping[int, PullStatus]] = {
    codes.SUCCESS: PullStatus.FOUND,
    codes.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    codes.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    codes.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}
"""What the response codes of a pull mean; any other is an error."""


class PullResult(NamedTuple):
    """The answer to a pull: the messages, and where the next pull starts."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[MessageView]


def pull_header(
    group: str,
    queue: MessageQueue,
    subscription: SubscriptionData,
    *,
    max_messages: int,
    max_bytes: int | None,
    suspend_ms: int,
    send_subscription: bool,
    tags_versioned: bool,
) -> PullMessageRequestHeader:
    """The header of the pulls of ``queue``: offset, flags and what they commit are to be put in.

    Without ``tags_versioned`` a subscription by tag has version 0, as consumers send it that
    poll: such a subscription is not compared with the one the broker knows.
    """
    unversioned = not tags_versioned and subscription.expression_type == TAG
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=max_messages,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        sub_version=0 if unversioned else subscription.sub_version,
        subscription=subscription.sub_string if send_subscription else None,
        expression_type=subscription.expression_type,
        max_msg_bytes=max_bytes,
        bname=queue.broker_name,
    )


def read_messages(
    body: bytes | memoryview,
    queue: MessageQueue,
    header: PullMessageResponseHeader,
    subscription: SubscriptionData,
    filters: FilterHooks,
) -> list[MessageView]:
    """The messages of an answer that are wanted. Raises RecordError for a damaged one.

    Brokers compare the hash codes of tags only, so tags are compared here; then ``filters`` have
    their say. Every message has the properties MIN_OFFSET and MAX_OFFSET, of the queue.
    """
    extra = {MIN_OFFSET: str(header.min_offset), MAX_OFFSET: str(header.max_offset)}
    messages = decode_records(body, queue.broker_name, extra)
    if subscription.tags_set:
        messages = [item for item in messages if matches_tags(subscription, item.tags)]
    if filters:
        messages = filters.filter(queue, messages)
    return messages
