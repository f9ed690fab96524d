"""What the key index knows a message by: the hashes of its unique key, its keys and its tag.

Apache hashes the text ``topic#key`` with Java's String.hashCode (IndexFile.indexKeyHashMethod). A
message sent by any client has a unique key of 32 characters, so this runs once or more for every
message stored, and is written for speed: the hash is a sum of products, and what neighbouring
unique keys have in common, all but their counter, is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import mul
from typing import Final, TypeAlias

from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY, find_property

TAG_INDEX: Final = "T"
"""The index type under which 5.5 keeps tags (MessageConst.INDEX_TAG_TYPE)."""

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_TAIL: Final = 4
_LONGEST: Final = 256
_POWERS: Final = tuple(pow(31, power, 1 << 32) for power in range(_LONGEST, -1, -1))
_TAIL_FACTOR: Final = pow(31, _TAIL, 1 << 32)
_SPACE: Final = KEY_SEPARATOR.encode()
_UNIQ_MARKER: Final = f"\x02{UNIQ_KEY}\x01".encode()
_KEYS_MARKER: Final = f"\x02{KEYS}\x01".encode()
_TAGS_MARKER: Final = f"\x02{TAGS}\x01".encode()

_Hashes: TypeAlias = list[int]


def key_hash(topic: str, key: str, index_type: str = "") -> int:
    """The hash an index entry has for a key of a topic: 0 to 2^31 - 1.

    ``index_type`` TAG_INDEX is for a tag, whose entries 5.5 keeps apart (IndexService.buildKey).
    """
    kind = f"{TAG_INDEX}#" if index_type == TAG_INDEX else ""
    return _positive(java_hash(f"{topic}#{kind}{key}") & _MASK)


def message_hashes(topic: str, properties: bytes) -> _Hashes:
    """The hashes of all a message is found by, in the order of IndexService.buildIndex of 5.5.

    ``properties`` are in stored form. 4.9 and earlier 5.x have no entries for tags, and are not
    disturbed by them.
    """
    hashes: _Hashes = []
    unique = _value(properties, _UNIQ_MARKER, UNIQ_KEY)
    if unique:
        if len(unique) > _TAIL and unique.isascii():
            head = _head_hash(topic, unique[:-_TAIL])
            hashes.append(_positive(head * _TAIL_FACTOR + _tail_hash(unique[-_TAIL:]) & _MASK))
        else:
            hashes.append(key_hash(topic, unique.decode("utf-8", "replace")))
    keys = _value(properties, _KEYS_MARKER, KEYS)
    if keys:
        hashes += [_positive(_topic_hash(topic, key)) for key in keys.split(_SPACE) if key]
    tags = _value(properties, _TAGS_MARKER, TAGS)
    if tags:
        hashes.append(_tag_hash(topic, tags))
    return hashes


def _value(properties: bytes, marker: bytes, name: str) -> bytes:
    """As find_property, but undecoded; b"" for none."""
    at = properties.rfind(marker)
    if at >= 0:
        start = at + len(marker)
    elif properties.startswith(marker[1:]):
        start = len(marker) - 1
    else:
        return b""
    end = properties.find(b"\x02", start)
    value = properties[start : end if end >= 0 else len(properties)]
    return value or (find_property(properties, name) or "").encode()


def _positive(value: int) -> int:
    """Math.abs of the signed integer that ``value`` is the bits of; 0 for the one without."""
    if value < _SIGN:
        return value
    return 0 if value == _SIGN else (1 << 32) - value


def _hash(data: bytes) -> int:
    """The 32 bits of String.hashCode for ASCII ``data``."""
    length = len(data)
    if length <= _LONGEST:
        total: int = sum(map(mul, data, _POWERS[_LONGEST + 1 - length :]))
        return total & _MASK
    return java_hash(data.decode("ascii")) & _MASK


def _topic_hash(topic: str, key: bytes) -> int:
    if key.isascii() and len(key) <= _LONGEST:
        return _prefix_hash(topic) * _POWERS[_LONGEST - len(key)] + _hash(key) & _MASK
    return java_hash(f"{topic}#{key.decode('utf-8', 'replace')}") & _MASK


_prefix_hash: Final[Callable[[str], int]] = lru_cache(maxsize=4096)(
    lambda topic: java_hash(f"{topic}#") & _MASK
)
_head_hash: Final[Callable[[str, bytes], int]] = lru_cache(maxsize=4096)(_topic_hash)
_tail_hash: Final[Callable[[bytes], int]] = lru_cache(maxsize=1 << 16)(_hash)


@lru_cache(maxsize=4096)
def _tag_hash(topic: str, tag: bytes) -> int:
    return key_hash(topic, tag.decode("utf-8", "replace"), TAG_INDEX)
