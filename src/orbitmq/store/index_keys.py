"""What the key index knows a message by: the hashes of its unique key, its keys and its tag.

Apache hashes the text ``topic#key`` with Java's String.hashCode (IndexFile.indexKeyHashMethod). A
message sent by any client has a unique key of 32 characters, so this runs once or more for every
message stored, and is written for speed: the hash is a sum of products, and what neighbouring
keys have in common, all but their end, is remembered: most are numbered. record_keys() does it for
a piece of the log in one call, for which there may be compiled code (orbitmq/compiled.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import mul
from typing import Final, TypeAlias

from orbitmq.compiled import compiled
from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import (
    KEY_SEPARATOR,
    KEYS,
    PAIR_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    find_property,
)
from orbitmq.wire.record import TRANSACTION_ROLLBACK, check_record, transaction_type

TAG_INDEX: Final = "T"
"""The index type under which 5.5 keeps tags (MessageConst.INDEX_TAG_TYPE)."""

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_TAIL: Final = 4
_LONGEST: Final = 256
_POWERS: Final = tuple(pow(31, power, 1 << 32) for power in range(_LONGEST, -1, -1))
_TAIL_FACTOR: Final = pow(31, _TAIL, 1 << 32)
_SPACE: Final = KEY_SEPARATOR.encode()
_END: Final = PAIR_SEPARATOR.encode()

KEY: Final = struct.Struct(">qqi")
"""A key to be put into the index: the message's physical offset and store time (ms), the hash."""

KeyKind: TypeAlias = tuple[bytes, str, bytes]
"""A property with keys: its name between separators, the text that stands between topic and key
when a key is hashed, and what separates several keys in a value, b"" where there is but one."""

KINDS: Final[tuple[KeyKind, ...]] = (
    (f"\x02{UNIQ_KEY}\x01".encode(), "#", b""),
    (f"\x02{KEYS}\x01".encode(), "#", _SPACE),
    (f"\x02{TAGS}\x01".encode(), f"#{TAG_INDEX}#", b""),
)
"""All that a message is found by, in the order of IndexService.buildIndex of 5.5. 4.9 and earlier
5.x have no entries for tags, and are not disturbed by them."""


@compiled
def record_keys(
    data: bytes, position: int, known: int, verify_crc: bool, kinds: Sequence[KeyKind]
) -> tuple[bytes, int, int]:
    """The keys of the sound records that ``data`` begins with, as KEYs in their order.

    ``data`` is what the log has from physical offset ``position`` on; whether the bodies are sound
    is looked at where ``verify_crc`` says so. With the keys come how many bytes the records take,
    and the store time of the last. The record at offset ``known``, whose keys are in the index
    already, adds none, nor do those of transactions that were rolled back.
    """
    entries: list[bytes] = []
    place, timestamp, end = 0, 0, len(data)
    while (info := check_record(data, place, end, verify_crc)) is not None:
        offset = position + place
        if info.physical_offset != offset or "\0" in info.topic:
            break
        timestamp = info.store_timestamp
        if offset != known and transaction_type(info.sys_flag) != TRANSACTION_ROLLBACK:
            hashes = message_hashes(info.topic, info.properties, kinds)
            entries += [KEY.pack(offset, timestamp, value) for value in hashes]
        place += info.size
    return b"".join(entries), place, timestamp


def message_hashes(topic: str, properties: bytes, kinds: Sequence[KeyKind] = KINDS) -> list[int]:
    """The hashes of all a message is found by; ``properties`` are in stored form."""
    hashes: list[int] = []
    text = _END + properties + _END  # now a separator stands before each name
    for marker, between, separator in kinds:
        if marker in text:
            value = _value(text, marker)
            if not separator:
                if value:
                    hashes.append(_hash_of(topic, between, value))
            else:
                hashes += [_hash_of(topic, between, key) for key in value.split(separator) if key]
    return hashes


def key_hash(topic: str, key: str, index_type: str = "") -> int:
    """The hash an index entry has for a key of a topic: 0 to 2^31 - 1.

    ``index_type`` TAG_INDEX is for a tag, whose entries 5.5 keeps apart (IndexService.buildKey).
    """
    kind = f"{TAG_INDEX}#" if index_type == TAG_INDEX else ""
    return _positive(java_hash(f"{topic}#{kind}{key}") & _MASK)


def _value(text: bytes, marker: bytes) -> bytes:
    """The value behind ``marker`` in properties between separators; b"" for none."""
    at = text.rfind(marker)
    if at < 0:
        return b""
    start = at + len(marker)
    value = text[start : text.find(_END, start)]
    return value or (find_property(text, marker[1:-1].decode()) or "").encode()


def _hash_of(topic: str, between: str, key: bytes) -> int:
    """As key_hash()."""
    if not _TAIL < len(key) <= _LONGEST or not key.isascii():
        return _other_hash(topic, between, key)
    value = _head_hash(topic, between, key[:-_TAIL]) + _tail_hash(key[-_TAIL:]) & _MASK
    return value if value < _SIGN else _positive(value)


@lru_cache(maxsize=4096)
def _other_hash(topic: str, between: str, key: bytes) -> int:
    text = topic + between + key.decode("utf-8", "replace")
    return _positive(java_hash(text) & _MASK)


def _positive(value: int) -> int:
    """Math.abs of the signed integer that ``value`` is the bits of; 0 for the one without."""
    if value < _SIGN:
        return value
    return 0 if value == _SIGN else (1 << 32) - value


def _hash(data: bytes) -> int:
    """The 32 bits of String.hashCode for ASCII ``data`` that is not too long."""
    total: int = sum(map(mul, data, _POWERS[_LONGEST + 1 - len(data) :]))
    return total & _MASK


def _start_hash(topic: str, between: str, head: bytes) -> int:
    """What all before a key and all of it but its last characters add to its hash."""
    value = _prefix_hash(topic + between) * _POWERS[_LONGEST - len(head)] + _hash(head)
    return value * _TAIL_FACTOR & _MASK


_prefix_hash: Final[Callable[[str], int]] = lru_cache(maxsize=4096)(
    lambda prefix: java_hash(prefix) & _MASK
)
_head_hash: Final[Callable[[str, str, bytes], int]] = lru_cache(maxsize=4096)(_start_hash)
_tail_hash: Final[Callable[[bytes], int]] = lru_cache(maxsize=1 << 16)(_hash)
