"""Taking back messages whose timers are not due yet. Follows RecallMessageProcessor."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq import codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.timer_messages import recall_draft, set_timer
from orbitmq.broker.topics import TopicTable
from orbitmq.errors import BrokerError, WireError
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.recall_handle import decode_recall_handle


class Recalling:
    """Stores recalls. ``now_ms`` is the wall clock, ``store_host`` as records hold it."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        now_ms: Callable[[], int],
        store_host: bytes,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._now_ms = now_ms
        self._store_host = store_host

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._config = config

    def recall(self, topic: str, handle_text: str, group: str, born_host: bytes) -> str:
        """Stage the recall of the message that a handle names; its unique key.

        It waits like a timer due at the same step of the wheel, and takes effect there. Raises
        BrokerError when that cannot be, or no longer.
        """
        config = self._config
        if not config.recall_enabled:
            raise BrokerError(codes.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._topics.get(topic) is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        try:
            handle = decode_recall_handle(handle_text)
        except WireError as error:
            raise BrokerError(codes.ILLEGAL_OPERATION, str(error)) from error
        now_ms = self._now_ms()
        if handle.topic != topic:
            raise _illegal("topic not match")
        if handle.broker_name != config.broker_name:
            raise _illegal("broker service not available")
        if not 0 < handle.timestamp - now_ms < config.store_config.timer_max_delay_seconds * 1000:
            raise _illegal("timestamp invalid")
        draft, properties = recall_draft(
            handle, group, born_host, self._store_host, now_ms, config.store_config
        )
        set_timer(draft, properties, config.store_config, now_ms)
        draft.properties = encode_properties(properties)
        self._store.append(draft)
        return handle.message_id


def _illegal(reason: str) -> BrokerError:
    return BrokerError(codes.ILLEGAL_OPERATION, f"recall failed, {reason}")
