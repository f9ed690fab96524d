r"""Message properties: the names RocketMQ gives a meaning to, and their stored form.

Properties are string pairs, written one after the other as ``name \x01 value \x02``. RocketMQ 5
ends the last pair with ``\x02``, 4.9 does not; both forms are read here, the first is written.
Behaviour follows MessageDecoder.messageProperties2String and string2messageProperties; names are
those of MessageConst.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from orbitmq.errors import InvalidMessageError

NAME_SEPARATOR = "\x01"
PAIR_SEPARATOR = "\x02"
_PAIR_END = ord(PAIR_SEPARATOR)

MAX_PROPERTIES_BYTES = 32767
"""The length field of a record is a signed 16-bit integer."""

KEY_SEPARATOR = " "
"""Stands between the keys in the value of ``KEYS``."""

# Said by the sender.
KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
SHARDING_KEY = "__SHARDINGKEY"
UNIQ_KEY = "UNIQ_KEY"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
BUYER_ID = "BUYER_ID"
INSTANCE_ID = "INSTANCE_ID"
PRODUCER_GROUP = "PGROUP"
MESSAGE_TYPE = "MSG_TYPE"
PRIORITY = "_SYS_MSG_PRIORITY_"
LITE_TOPIC = "__LITE_TOPIC"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"

# Set by brokers on what they store or answer.
CLUSTER = "CLUSTER"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
CRC32 = "__CRC32#"
DUP_INFO = "DUP_INFO"
REDIRECT = "REDIRECT"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"

# Set on the consumer's side, and on messages that are consumed again.
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
CONSUME_START_TIME = "CONSUME_START_TIME"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"

# Transactions.
TRANSACTION_PREPARED = "TRAN_MSG"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"

# Request and reply.
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
REPLY = "reply"
"""The value of MSG_TYPE that makes a message a reply (MixAll.REPLY_MESSAGE_FLAG)."""

SYSTEM_PROPERTIES = frozenset(
    {
        ARRIVE_TIME, BORN_HOST, BORN_TIMESTAMP, BUYER_ID, CLUSTER, CONSUME_START_TIME,
        CORRECTION_FLAG, CORRELATION_ID, CRC32, DELAY, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC,
        DUP_INFO, EXTEND_UNIQ_INFO, FIRST_POP_TIME, INNER_MULTI_QUEUE_OFFSET, INSTANCE_ID, KEYS,
        LITE_TOPIC, MAX_OFFSET, MAX_RECONSUME_TIMES, MESSAGE_TYPE, MIN_OFFSET, MQ2_FLAG, MSG_REGION,
        ORIGIN_GROUP, ORIGIN_MESSAGE_ID, POP_CK, POP_CK_OFFSET, PRIORITY, PRODUCER_GROUP,
        PUSH_REPLY_TIME, REAL_QID, REAL_TOPIC, RECONSUME_TIME, REPLY_TO_CLIENT, RETRY_TOPIC, TAGS,
        TIMER_DELAY_LEVEL, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_DEL_UNIQKEY,
        TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS, TIMER_OUT_MS, TIMER_ROLL_TIMES, TRACE_SWITCH,
        TRANSACTION_PREPARED, TRANSACTION_PREPARED_QUEUE_OFFSET, TRANSFER_FLAG, TTL, UNIQ_KEY, WAIT,
    }
)  # fmt: skip
"""Names a user may not choose for a property of their own (MessageConst.STRING_HASH_SET of 5.5)."""

NOT_THE_USERS = SYSTEM_PROPERTIES | {
    FORWARD_QUEUE_ID, INNER_BASE, INNER_MULTI_DISPATCH, INNER_NUM, REDIRECT, SHARDING_KEY,
    TIMER_ROLL_TIMES, TRANSACTION_CHECK_TIMES, TRANSACTION_ID, TRANSACTION_PREPARED_QUEUE_OFFSET,
}  # fmt: skip
"""All names that mean something for the one message they are on, or have a field of their own."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    r"""The stored form of ``properties``, in their order; ``b""`` for none.

    An empty value is written but readers drop it, as Java's do. Raises InvalidMessageError for
    what could not be read back: a ``\x01`` or ``\x02`` in a name, a ``\x02`` in a value, or a
    lone surrogate (Java stores a question mark for it).
    """
    return as_bytes(join_properties(properties))


def join_properties(properties: Mapping[str, str]) -> str:
    """The text of :func:`encode_properties`; whether it is valid Unicode is not looked at."""
    if not properties:
        return ""
    text = PAIR_SEPARATOR.join(map(NAME_SEPARATOR.join, properties.items())) + PAIR_SEPARATOR
    if text.count(PAIR_SEPARATOR) != len(properties) or NAME_SEPARATOR in "".join(properties):
        raise InvalidMessageError(f"a property contains a separator: {_offender(properties)!r}")
    return text


def as_bytes(text: str) -> bytes:
    """The text of properties in stored form. InvalidMessageError where it is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(f"a property is not valid Unicode: {error}") from error


def decode_properties(properties: bytes | memoryview) -> dict[str, str]:
    """The pairs in ``properties``; of a repeated name the last counts.

    Reads anything: pairs without a name or a value are dropped, bytes that are not UTF-8 become
    U+FFFD (MessageDecoder.string2messageProperties).
    """
    found: dict[str, str] = {}
    for pair in str(properties, "utf-8", "replace").split(PAIR_SEPARATOR):
        name, _, value = pair.partition(NAME_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def find_property(properties: bytes, name: str) -> str | None:
    """The value of ``name`` as decode_properties would have it, without reading the others."""
    return find_property_within(properties, 0, len(properties), name)


def find_property_within(data: bytes, start: int, end: int, name: str) -> str | None:
    """As find_property, for properties that lie at ``data[start:end]``, without a copy."""
    marker = _marker(name)
    if not marker:
        return None
    at = data.rfind(marker, start, end)  # the last of a repeated name counts
    while at > start and data[at - 1] != _PAIR_END:  # within a longer name, or a value
        at = data.rfind(marker, start, at + len(marker) - 1)
    if at < 0:
        return None
    value_start = at + len(marker)
    value_end = data.find(b"\x02", value_start, end)
    value = data[value_start : value_end if value_end >= 0 else end]
    if not value:
        # An empty value does not count, so there may be an earlier one that does.
        return decode_properties(data[start:end]).get(name)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def _marker(name: str) -> bytes:
    """What stands before the value of ``name``; nothing for what cannot be a name."""
    if not name or NAME_SEPARATOR in name or PAIR_SEPARATOR in name:
        return b""
    return f"{name}\x01".encode(errors="surrogatepass")


def _offender(properties: Mapping[str, str]) -> tuple[str, str]:
    return next(
        (name, value)
        for name, value in properties.items()
        if NAME_SEPARATOR in name or PAIR_SEPARATOR in name or PAIR_SEPARATOR in value
    )
