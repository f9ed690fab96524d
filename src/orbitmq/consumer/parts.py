"""What a consumer may be given besides its settings, and both among its keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

from orbitmq.allocate import AllocateStrategy
from orbitmq.client.functions import check_plain_function
from orbitmq.consumer.config import (
    LitePullSettings,
    PullConsumerSettings,
    PullScheduleSettings,
    PushSettings,
)
from orbitmq.consumer.offsets import OffsetStore
from orbitmq.message import MessageQueue

QueueListener: TypeAlias = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""Gets a topic, its queues, and those this consumer has now (Java's ``MessageQueueListener``)."""

_QUEUE_LISTENER: Final = "a plain function of a topic, its queues, and those this consumer has"


class Parts(NamedTuple):
    """What a consumer may be given; None for the usual.

    ``allocate`` divides the queues of a group (averagely), ``offset_store`` replaces the one the
    message model asks for, ``queue_listener`` hears of changed queues on the callback thread.
    """

    allocate: AllocateStrategy | None = None
    offset_store: OffsetStore | None = None
    queue_listener: QueueListener | None = None


class PartArguments(TypedDict, total=False):
    """The keyword arguments that give a consumer its Parts."""

    allocate: AllocateStrategy | None
    offset_store: OffsetStore | None
    queue_listener: QueueListener | None


class LitePullArguments(LitePullSettings, PartArguments, total=False):
    """The keyword arguments of a lite pull consumer."""


class PushArguments(PushSettings, PartArguments, total=False):
    """The keyword arguments of a push consumer."""


class PullArguments(PullConsumerSettings, PartArguments, total=False):
    """The keyword arguments of a pull consumer."""


class PullScheduleArguments(PullScheduleSettings, PartArguments, total=False):
    """The keyword arguments of a schedule service of pulls."""


def parts_and_settings(arguments: Mapping[str, Any]) -> tuple[Parts, dict[str, Any]]:
    """A consumer's keyword arguments, sorted."""
    settings = dict(arguments)
    given = {name: settings.pop(name) for name in Parts._fields if name in settings}
    return Parts(**given), settings


def check_queue_listener(listener: QueueListener | None) -> None:
    """Raise ConfigError for one that would not be heard of anything."""
    if listener is not None:
        check_plain_function("queue_listener", listener, _QUEUE_LISTENER)
