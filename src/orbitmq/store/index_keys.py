"""What the key index knows a message by: the hashes of its unique key, its keys and its tag.

Apache hashes the text ``topic#key`` with Java's String.hashCode (IndexFile.indexKeyHashMethod). A
message sent by any client has a unique key of 32 characters, so this runs once or more for every
message stored, and is written for speed: the hash is a sum of products, and what neighbouring
keys have in common, all but their end, is remembered: most are numbered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import mul
from typing import Final

from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import (
    KEY_SEPARATOR,
    KEYS,
    PAIR_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    find_property,
)

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
_UNIQ_MARKER: Final = f"\x02{UNIQ_KEY}\x01".encode()
_KEYS_MARKER: Final = f"\x02{KEYS}\x01".encode()
_TAGS_MARKER: Final = f"\x02{TAGS}\x01".encode()


def key_hash(topic: str, key: str, index_type: str = "") -> int:
    """The hash an index entry has for a key of a topic: 0 to 2^31 - 1.

    ``index_type`` TAG_INDEX is for a tag, whose entries 5.5 keeps apart (IndexService.buildKey).
    """
    kind = f"{TAG_INDEX}#" if index_type == TAG_INDEX else ""
    return _positive(java_hash(f"{topic}#{kind}{key}") & _MASK)


def message_hashes(topic: str, properties: bytes) -> list[int]:
    """The hashes of all a message is found by, in the order of IndexService.buildIndex of 5.5.

    ``properties`` are in stored form. 4.9 and earlier 5.x have no entries for tags, and are not
    disturbed by them.
    """
    hashes: list[int] = []
    text = _END + properties + _END  # now a separator stands before each name
    unique = _value(text, _UNIQ_MARKER)
    if unique:
        hashes.append(_hash_of(topic, unique))
    if _KEYS_MARKER in text:
        keys = _value(text, _KEYS_MARKER).split(_SPACE)
        hashes += [_hash_of(topic, key) for key in keys if key]
    if _TAGS_MARKER in text:
        tags = _value(text, _TAGS_MARKER)
        if tags:
            hashes.append(_tag_hash(topic, tags))
    return hashes


def _value(text: bytes, marker: bytes) -> bytes:
    """The value behind ``marker`` in properties between separators; b"" for none."""
    at = text.rfind(marker)
    if at < 0:
        return b""
    start = at + len(marker)
    value = text[start : text.find(_END, start)]
    return value or (find_property(text, marker[1:-1].decode()) or "").encode()


def _hash_of(topic: str, key: bytes) -> int:
    """As key_hash()."""
    if not _TAIL < len(key) <= _LONGEST or not key.isascii():
        return key_hash(topic, key.decode("utf-8", "replace"))
    value = _head_hash(topic, key[:-_TAIL]) + _tail_hash(key[-_TAIL:]) & _MASK
    return value if value < _SIGN else _positive(value)


def _positive(value: int) -> int:
    """Math.abs of the signed integer that ``value`` is the bits of; 0 for the one without."""
    if value < _SIGN:
        return value
    return 0 if value == _SIGN else (1 << 32) - value


def _hash(data: bytes) -> int:
    """The 32 bits of String.hashCode for ASCII ``data`` that is not too long."""
    total: int = sum(map(mul, data, _POWERS[_LONGEST + 1 - len(data) :]))
    return total & _MASK


def _start_hash(topic: str, head: bytes) -> int:
    """What topic and all of a key but its last characters add to the key's hash."""
    value = _prefix_hash(topic) * _POWERS[_LONGEST - len(head)] + _hash(head)
    return value * _TAIL_FACTOR & _MASK


_prefix_hash: Final[Callable[[str], int]] = lru_cache(maxsize=4096)(
    lambda topic: java_hash(f"{topic}#") & _MASK
)
_head_hash: Final[Callable[[str, bytes], int]] = lru_cache(maxsize=4096)(_start_hash)
_tail_hash: Final[Callable[[bytes], int]] = lru_cache(maxsize=1 << 16)(_hash)


@lru_cache(maxsize=4096)
def _tag_hash(topic: str, tag: bytes) -> int:
    return key_hash(topic, tag.decode("utf-8", "replace"), TAG_INDEX)
