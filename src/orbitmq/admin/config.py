"""Settings of the admin client."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from orbitmq.client.config import ClientConfig, ClientSettings, Millis
from orbitmq.names import AUTO_CREATE_TOPIC, TRACE_TOPIC


class AdminConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an admin client has (Java's ``DefaultMQAdminExt``)."""

    api_timeout_ms: Millis = 5_000
    """How long an answer may take; of each broker where several are asked (timeoutMillis)."""
    create_topic_key: str = AUTO_CREATE_TOPIC
    """The topic whose settings a broker takes for what a new topic leaves open."""
    trace_topic: str = TRACE_TOPIC
    """Where clients keep their traces, for :meth:`orbitmq.Admin.message_trace`."""
    max_requests: Annotated[int, Meta(ge=1)] = 20
    """How many requests of this client may be under way at a time; the others wait
    (rocketmq.admin.threadpool.coresize)."""


class AdminSettings(ClientSettings, total=False):
    """The keyword arguments of an admin client; see AdminConfig."""

    create_topic_key: str
    trace_topic: str
    max_requests: int
