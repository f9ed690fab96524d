"""What a timer does to a message: on its way in, at each round, and when it is due.

Pure functions of the message and the time. Follows HookUtils.transformTimerMessage,
TimerMessageStore.convert and RecallMessageProcessor.buildMessage.
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq import codes
from orbitmq.broker.redraft import redraft
from orbitmq.errors import BrokerError, RecordError
from orbitmq.names import HALF_TOPIC, TIMER_TOPIC
from orbitmq.store.config import StoreConfig
from orbitmq.store.timer_log import TimerUnit
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import (
    BORN_TIMESTAMP,
    PRODUCER_GROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from orbitmq.wire.recall_handle import RecallHandle
from orbitmq.wire.record import Buffer, Draft

TIMERS: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""The properties that ask for a timer; the first that is there counts."""

NEVER_TAKEN_IN: Final = 2**63 - 1
"""TIMER_ENQUEUE_MS of a message that was due before it got to the wheel."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_QUEUE_ID: Final = re.compile("[0-9]{1,9}")
_STEP_MS: Final = 1_000
"""The longest step of a wheel."""
_RECALL_TAG: Final = "_RECALL_TAG_"
_RECALL_BODY: Final = b"0"


def is_timer(properties: dict[str, str]) -> bool:
    """Whether a message asks for a timer, and did not go through one yet (checkIfTimerMessage)."""
    return TIMER_OUT_MS not in properties and any(name in properties for name in TIMERS)


def due_time(properties: dict[str, str], now_ms: int) -> int:
    """When a message with a timer is due, ms since the epoch.

    Raises BrokerError for what is no number.
    """
    name = next(name for name in TIMERS if name in properties)
    text = properties[name]
    if not _INTEGER.fullmatch(text):
        raise BrokerError(
            codes.MESSAGE_ILLEGAL,
            f"timer message illegal: the property {name}={text[:40]!r} is no number: give whole "
            f"{'seconds' if name == TIMER_DELAY_SEC else 'milliseconds'}",
        )
    number = int(text)
    if name == TIMER_DELAY_SEC:
        return now_ms + number * 1000
    return now_ms + number if name == TIMER_DELAY_MS else number


def slot_time(due_ms: int, precision_ms: int) -> int:
    """The step of the wheel for a due time: the last that ends at it or has it in it."""
    return (due_ms - 1) // precision_ms * precision_ms


def set_timer(
    draft: Draft, properties: dict[str, str], config: StoreConfig, now_ms: int
) -> int | None:
    """Turn a message with a timer to where those wait, and keep where it was going.

    The step of the wheel it is for; None when it is due already and goes where it was sent to.
    ``properties`` are the draft's, not encoded yet. Raises BrokerError for a timer that is no
    number or too far off, or a recall that comes too late.
    """
    if not config.timer_wheel:
        raise BrokerError(
            codes.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
        )
    due_ms = due_time(properties, now_ms)
    longest = config.timer_max_delay_seconds * 1000
    if due_ms - now_ms > longest or (due_ms <= now_ms and TIMER_DEL_UNIQKEY in properties):
        raise BrokerError(
            codes.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{longest}ms; or if set del msg, the delay time should be bigger than the current "
            f"time (it is due {due_ms - now_ms} ms from now)",
        )
    if due_ms <= now_ms:
        return None
    time_ms = slot_time(due_ms, config.timer_precision_ms)
    properties[TIMER_OUT_MS] = str(time_ms)
    properties[REAL_TOPIC] = draft.topic
    properties[REAL_QID] = str(draft.queue_id)
    draft.topic = TIMER_TOPIC
    draft.queue_id = 0
    return time_ms


def delivered(
    record: Buffer, unit: TimerUnit | None, now_ms: int, recalled: set[str]
) -> Draft | None:
    """The draft that a timer's message becomes when its slot is due; None for one recalled.

    It goes to its topic, or round once more. ``unit`` is None for a message that was due before
    it was taken in. A recall itself becomes nothing. Raises RecordError for a record that is not
    the one the unit was made for, and cannot be delivered.
    """
    draft = redraft(record)
    properties = decode_properties(draft.properties)
    out_ms = properties.get(TIMER_OUT_MS, "")
    if draft.topic != TIMER_TOPIC or not _INTEGER.fullmatch(out_ms):
        raise RecordError(f"a message of topic {draft.topic} has no timer")
    if unit is not None and not unit.rolls and not 0 <= int(out_ms) - unit.time_ms < _STEP_MS:
        raise RecordError(f"its timer is {out_ms}, not {unit.time_ms}")
    rolls = unit is not None and unit.rolls
    if not rolls and TIMER_DEL_UNIQKEY in properties:
        return None
    key = properties.get(UNIQ_KEY, "")
    if recalled and not recalled.isdisjoint((key, f"{properties.get(REAL_TOPIC)}+{key}")):
        return None
    properties[TIMER_ENQUEUE_MS] = str(NEVER_TAKEN_IN if unit is None else unit.write_ms)
    properties[TIMER_DEQUEUE_MS] = str(now_ms)
    if rolls:
        rounds = properties.get(TIMER_ROLL_TIMES, "0")
        properties[TIMER_ROLL_TIMES] = str(int(rounds) + 1 if _INTEGER.fullmatch(rounds) else 1)
    else:
        queue_id, topic = properties.get(REAL_QID, ""), properties.get(REAL_TOPIC, "")
        if topic in ("", HALF_TOPIC, TIMER_TOPIC) or not _QUEUE_ID.fullmatch(queue_id):
            raise RecordError(f"it cannot go to topic {topic!r} queue {queue_id!r}")
        draft.topic, draft.queue_id = topic, int(queue_id)
    draft.properties = encode_properties(properties)
    return draft


def recall_draft(
    handle: RecallHandle,
    producer_group: str,
    born_host: bytes,
    store_host: bytes,
    now_ms: int,
    config: StoreConfig,
) -> tuple[Draft, dict[str, str]]:
    """The message that takes another one back, to be sent through :func:`set_timer`."""
    with_topic = config.append_topic_for_timer_delete_key
    properties = {
        TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.message_id}"
        if with_topic
        else handle.message_id,
        UNIQ_KEY: handle.message_id,
        TIMER_DELIVER_MS: str(handle.timestamp),
        BORN_TIMESTAMP: str(now_ms),
        PRODUCER_GROUP: producer_group,
        TAGS: _RECALL_TAG,
    }
    draft = Draft(
        handle.topic,
        0,
        _RECALL_BODY,
        b"",
        tags_code(_RECALL_TAG),
        0,
        0,
        now_ms,
        born_host,
        store_host,
    )
    return draft, properties
