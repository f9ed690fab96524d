"""Messages that are to come later: those with a delay level, and those with a timer.

Whoever stores a message that a client sent asks here first. HookUtils.handleScheduleMessage.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq import codes
from orbitmq.broker.schedule import postpone
from orbitmq.broker.timer_messages import is_timer, set_timer
from orbitmq.broker.timers import Timers
from orbitmq.errors import BrokerError
from orbitmq.names import RETRY_PREFIX
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.properties import DELAY, REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY
from orbitmq.wire.recall_handle import RecallHandle
from orbitmq.wire.record import Draft


class Deferring:
    """Turns messages to where they wait; ``timers`` is None where there is no wheel.

    ``now_ms`` is the wall clock.
    """

    def __init__(
        self,
        store: MessageStore,
        broker_name: str,
        timers: Timers | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._broker_name = broker_name
        self._delays = DelayLevels(store.config.delay_levels)
        self._timers = timers
        self._now_ms = now_ms

    def defer(self, draft: Draft, properties: dict[str, str]) -> None:
        """Turn a message with a delay level, or with a timer that is not over, to where it waits.

        ``properties`` are the draft's, not encoded yet. A level counts before a timer. Raises
        BrokerError for what is no level, or a timer that is refused.
        """
        level = delay_level(properties)
        if level > 0:
            postpone(draft, properties, level, self._delays)
        elif is_timer(properties):
            time_ms = set_timer(draft, properties, self._store.config, self._now_ms())
            if time_ms is not None and self._timers and self._timers.is_congested(time_ms):
                most = self._store.config.timer_congestion_per_slot
                raise BrokerError(
                    codes.SYSTEM_ERROR,
                    f"timer message is under flow control, max num limit is {most * 2} or the "
                    f"current value is greater than {most} and less than {most * 2}, trigger "
                    "random flow control: choose another time, or raise timerCongestNumEachSlot",
                )

    def recall_handle(self, properties: dict[str, str]) -> str | None:
        """By what the sender of a message that :meth:`defer` saw can recall it; None: by nothing.

        SendMessageProcessor.attachRecallHandle.
        """
        time, topic = properties.get(TIMER_OUT_MS), properties.get(REAL_TOPIC)
        if time is None or topic is None or topic.startswith(RETRY_PREFIX) or not time.isdigit():
            return None
        timestamp = int(time) + 1  # so that the recall's step of the wheel is the message's
        key = properties.get(UNIQ_KEY, "")
        return RecallHandle(topic, self._broker_name, timestamp, key).encode()


def delay_level(properties: dict[str, str]) -> int:
    """A message's delay level, 0 for none. Raises BrokerError for what is no number."""
    text = properties.get(DELAY, "0")
    try:
        return int(text)
    except ValueError:
        raise BrokerError(
            codes.MESSAGE_ILLEGAL,
            f"the property {DELAY}={text!r} is no delay level: use 1 to 18",
        ) from None
