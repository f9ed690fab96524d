"""Finding messages by key, and looking at the entries of a consume queue.

Follows DefaultMessageStore.queryMessage, QueryMessageProcessor.queryMessage and
AdminBrokerProcessor.queryConsumeQueue.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from orbitmq import codes
from orbitmq.broker.clients import ConsumerTable
from orbitmq.errors import BrokerError
from orbitmq.filters.subscription import TAG
from orbitmq.store.index_keys import key_hash
from orbitmq.store.key_index import KeyMatches
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.admin_bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from orbitmq.wire.bodies import SubscriptionData

log = logging.getLogger("orbitmq.broker")

MAX_BODY_BYTES: Final = 15 << 20
"""The most bytes of records in one answer: a frame of 16 MiB is the longest that clients read."""
MAX_UNITS: Final = 4_096
"""The most consume-queue entries in one answer."""

_OwnerT = TypeVar("_OwnerT", bound=Hashable)


class KeyQuery(NamedTuple):
    """Which messages are wanted: at most ``max_count`` of a key, of a time in ms.

    ``is_unique``: the key is a unique one, and ``max_count`` the broker's own
    (defaultQueryMaxNum). ``index_type`` is "T" for a tag in place of a key.
    """

    topic: str
    key: str
    max_count: int
    begin: int
    end: int
    is_unique: bool = False
    index_type: str = ""


class Queries(Generic[_OwnerT]):
    """Looks messages up in ``store``."""

    def __init__(self, store: MessageStore, consumers: ConsumerTable[_OwnerT]) -> None:
        self._store = store
        self._consumers = consumers

    def check(self, query: KeyQuery) -> None:
        """Raise BrokerError for a query that cannot be carried out."""
        if self._store.key_index is None:
            raise BrokerError(
                codes.QUERY_NOT_FOUND,
                "this broker keeps no index of keys: set messageIndexEnable=true",
            )
        if query.max_count < 0:
            raise BrokerError(
                codes.INVALID_PARAMETER, f"maxNum {query.max_count} is negative: ask for 1 or more"
            )

    def newest(self, query: KeyQuery) -> KeyMatches | None:
        """What of it is not in the index yet; None where the index is to be waited for."""
        unindexed = self._store.unindexed
        if unindexed is None:
            return None
        wanted = key_hash(query.topic, query.key, query.index_type)
        return unindexed.find(query.topic, wanted, query.begin, query.end)

    def find(self, query: KeyQuery, newest: KeyMatches | None) -> KeyMatches:
        """Where the messages are, with ``newest``, which was looked for before.

        It may read from the disk: not for the loop's thread.
        """
        index, config = self._store.key_index, self._store.config
        if index is None:
            return KeyMatches([], 0, 0)
        wanted = config.default_query_max_num if query.is_unique else query.max_count
        most = min(wanted, config.max_msgs_num_batch)
        found = index.find(
            query.topic, query.key, most, query.begin, query.end, query.index_type,
            settle=newest is None,
        )  # fmt: skip
        return found if newest is None else found.with_newest(newest, most)

    def records(self, matches: KeyMatches) -> list[memoryview]:
        """The records of what was found, in the order of the log.

        Those that are gone are left out, and the oldest where all are too much for an answer.
        """
        records: list[memoryview] = []
        size = 0
        for offset in reversed(matches.offsets):
            record = self._store.record_at(offset)
            if record is None:
                continue
            size += len(record)
            if size > MAX_BODY_BYTES and records:
                log.warning(
                    "a query by key found %d messages, of which the newest %d are given: all are "
                    "more than %d bytes",
                    len(matches.offsets), len(records), MAX_BODY_BYTES,
                )  # fmt: skip
                break
            records.append(record)
        return records[::-1]

    def units(
        self, topic: str, queue_id: int, index: int, count: int, group: str | None
    ) -> QueryConsumeQueueResponseBody | None:
        """Up to ``count`` entries of a queue from ``index`` on; None when ``index`` is not in it.

        With ``group`` also what that subscribes to. Entries end with their file. Raises BrokerError
        when there is no such queue.
        """
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not high:
            raise BrokerError(codes.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not low <= index < high:
            return None
        units = self._store.read_units(topic, queue_id, index, min(max(count, 0), MAX_UNITS))
        subscription = self._subscription(group, topic) if group is not None else None
        return QueryConsumeQueueResponseBody(
            subscription,
            _filter_data(subscription, group, topic) if group is not None else None,
            [ConsumeQueueData(unit.physical_offset, unit.size, unit.tags_code) for unit in units],
            high,
            low,
        )

    def _subscription(self, group: str, topic: str) -> SubscriptionData | None:
        members = self._consumers.groups.get(group)
        return members.subscriptions.get(topic) if members is not None else None


def _filter_data(subscription: SubscriptionData | None, group: str, topic: str) -> str:
    """What Java writes of the group's filter: of an SQL92 expression only there is any."""
    if subscription is None:
        return f"{group}@{topic} is not online!"
    if subscription.expression_type in (TAG, "", None):
        return "null"
    data = {
        "consumerGroup": group,
        "topic": topic,
        "expression": subscription.sub_string,
        "expressionType": subscription.expression_type,
        "clientVersion": subscription.sub_version,
    }
    return msgspec.json.encode(data).decode()
