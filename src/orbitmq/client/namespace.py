"""Namespaces: topics and groups of one tenant, told apart from another's by a prefix of the name.

With the namespace ``ns`` the topic ``t`` is ``ns%t`` to brokers and name servers, the group ``g``
is ``ns%g``, its retry topic ``%RETRY%ns%g``. Users see none of it: what they give is wrapped where
it enters a client, what they get is un-wrapped where it leaves. Follows NamespaceUtil, the
namespace methods of ClientConfig, and NameServerAddressUtils. No I/O.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Self

from orbitmq.client.config import NAME_SERVER_ENV, ClientConfig
from orbitmq.message import MessageQueue
from orbitmq.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, is_system_topic
from orbitmq.wire.message_view import MessageView

SEPARATOR: Final = "%"
"""What stands between the namespace and the name."""

_INSTANCE_ENDPOINT: Final = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.", re.ASCII)


@lru_cache(maxsize=4096)
def with_namespace(namespace: str | None, name: str) -> str:
    """The topic or group ``name`` as brokers know it (NamespaceUtil.wrapNamespace).

    ``%RETRY%`` and ``%DLQ%`` stay in front. RocketMQ's own topics and groups are in no namespace,
    and a name that is in this one already stays as it is.
    """
    if not namespace or not name or _is_system_resource(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


@lru_cache(maxsize=4096)
def without_namespace(name: str, namespace: str | None) -> str:
    """The topic or group ``name`` as users know it (NamespaceUtil.withoutNamespace).

    A name in another namespace, or in none, stays as it is.
    """
    if not namespace or not name or _is_system_resource(name):
        return name
    prefix, bare = _split(name)
    start = namespace + SEPARATOR
    return prefix + bare.removeprefix(start) if bare.startswith(start) else name


def instance_of_endpoint(name_server: str | None) -> str | None:
    """The namespace that the address of a name server implies, None for most addresses.

    Clouds give each instance its own, ``http://MQ_INST_xxx_yyy.region.provider.com:80``
    (NameServerAddressUtils.parseInstanceIdFromEndpoint).
    """
    match = _INSTANCE_ENDPOINT.match(name_server or "")
    return match.group(1) if match else None


class Namespace:
    """The namespace of one client; one without a ``name`` leaves everything as it is."""

    __slots__ = ("name",)

    def __init__(self, name: str | None) -> None:
        self.name = name or None

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        """That of the settings, else the one the name server's address implies (getNamespace)."""
        if config.namespace is not None:
            return cls(config.namespace)
        given = (
            os.environ.get(NAME_SERVER_ENV) if config.name_server is None else config.name_server
        )
        return cls(instance_of_endpoint(given))

    def wrap(self, name: str) -> str:
        """A topic or group of the user's as brokers know it."""
        return name if self.name is None else with_namespace(self.name, name)

    def unwrap(self, name: str) -> str:
        """A topic or group of a broker's as the user knows it."""
        return name if self.name is None else without_namespace(name, self.name)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue of the user's as brokers know it (ClientConfig.queueWithNamespace)."""
        return queue if self.name is None else queue._replace(topic=self.wrap(queue.topic))

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """A broker's queue as the user knows it."""
        return queue if self.name is None else queue._replace(topic=self.unwrap(queue.topic))

    def wrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues of the user's as brokers know them (ClientConfig.queuesWithNamespace)."""
        return [self.wrap_queue(queue) for queue in queues]

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Brokers' queues as the user knows them."""
        return [self.unwrap_queue(queue) for queue in queues]

    def unwrap_messages(self, queue: MessageQueue, messages: Iterable[MessageView]) -> None:
        """Give messages pulled from ``queue``, a broker's, the names the user knows."""
        if self.name is not None:
            user_queue = self.unwrap_queue(queue)
            for message in messages:
                message.topic = self.unwrap(message.topic)
                message.message_queue = user_queue


NO_NAMESPACE: Final = Namespace(None)
"""What leaves every name as it is."""


def _split(name: str) -> tuple[str, str]:
    """The retry or dead-letter prefix, and the rest (NamespaceUtil.withOutRetryAndDLQ)."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system_resource(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)
