"""JSON as RocketMQ's Java programs write it, where it is not JSON.

Java encodes the bodies of commands, and its configuration files, with Alibaba's fastjson
(``RemotingSerializable``). Its output is JSON with two exceptions: the keys of a map may be
unquoted numbers, ``{0:"127.0.0.1:10911"}``, or whole objects,
``{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"maxOffset":10}}``. Readers of standard JSON
refuse both, so here is a small reader that takes both forms, and a writer that gives both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from math import isfinite
from typing import Any

import msgspec

from orbitmq.errors import BodyError

MAX_DEPTH = 64
"""How deep arrays and objects of a body in the dialect may nest; no body of RocketMQ passes 8."""

_WORD = re.compile(rb'[^\s\[\]{},:"]+')
_INTEGER = re.compile(rb"-?\d+")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SPACE = re.compile(rb"[ \t\n\r]*")
_AFTER_UNDERSCORE = re.compile("_(.)")
_NULL = b'":null'
_STRETCH = 200
"""How many members of a mapping are written between two pauses."""


def freeze(value: dict[Any, Any]) -> Hashable:
    """An object key as a tuple of its sorted items: the form :func:`decode` gives it by default."""
    return tuple(sorted(value.items()))


def decode(data: bytes, object_key: Callable[[dict[Any, Any]], Hashable] = freeze) -> Any:
    """Read standard JSON or fastjson's dialect.

    Unquoted integer keys become integers, other unquoted keys strings; ``object_key`` makes a key
    of an object, and raises ValueError or TypeError for one it does not take. The default takes
    objects of plain values.

    Raises:
        BodyError: neither of the two; the text says where and why.
    """
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise BodyError("the body nests too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Reader(data, object_key).document()


def encode(value: Any, *, standard: bool = False, pause: Callable[[], None] | None = None) -> bytes:
    """Write a value as fastjson does: null members left out, a Struct's names in sorted order.

    Takes None, bool, int, float, str, lists, tuples, sets (written sorted), mappings (within a
    Struct sorted, from text to text), msgspec Structs, and named tuples, which become objects with
    camel-cased names. ``standard`` quotes integer keys, for readers that know only
    JSON. ``pause`` is called now and then within a long mapping.

    Raises:
        BodyError: text that is not Unicode (an unpaired surrogate).
        TypeError: a type not listed above, or an object key when ``standard``.
    """
    parts: list[bytes] = []
    written: list[bytes] = []

    def take_breath() -> None:
        if pause is not None:
            written.append(b"".join(parts))
            parts.clear()
            pause()

    try:
        _Writer(parts, standard=standard, pause=take_breath).value(value)
    except UnicodeEncodeError as error:
        raise BodyError(f"cannot encode {error.object!r}: {error.reason}") from None
    return b"".join([*written, *parts])


class _Reader:
    """A recursive reader of the dialect; it leaves strings and numbers to msgspec."""

    __slots__ = ("_data", "_object_key", "_position")

    def __init__(self, data: bytes, object_key: Callable[[dict[Any, Any]], Hashable]) -> None:
        self._data = bytes(data)
        self._object_key = object_key
        self._position = 0

    def document(self) -> Any:
        value = self._value(0)
        if self._peek():
            raise self._error("text after the end")
        return value

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        first = self._peek()
        if first == b"{":
            return self._object(depth)
        if first == b"[":
            return self._array(depth)
        return self._scalar(self._token(_STRING if first == b'"' else _WORD, "a value"))

    def _object(self, depth: int) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        self._position += 1
        if self._take(b"}"):
            return members
        while True:
            key = self._key(depth + 1)
            if not self._take(b":"):
                raise self._error("a colon is missing")
            members[key] = self._value(depth + 1)
            if self._take(b"}"):
                return members
            if not self._take(b","):
                raise self._error("a comma or the end of an object is missing")

    def _key(self, depth: int) -> Hashable:
        first = self._peek()
        if first == b'"':
            return str(self._scalar(self._token(_STRING, "a key")))
        if first == b"{":
            value = self._value(depth)
            try:
                key = self._object_key(value)
                hash(key)
            except (TypeError, ValueError) as error:
                raise self._error(f"the object before is no key: {error}") from error
            return key
        word = self._token(_WORD, "a key")
        return self._scalar(word) if _INTEGER.fullmatch(word) else word.decode("utf-8", "replace")

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._position += 1
        if self._take(b"]"):
            return items
        while True:
            items.append(self._value(depth + 1))
            if self._take(b"]"):
                return items
            if not self._take(b","):
                raise self._error("a comma or the end of an array is missing")

    def _scalar(self, token: bytes) -> Any:
        try:
            return msgspec.json.decode(token)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._position -= len(token)
            raise self._error(str(error)) from None

    def _token(self, pattern: re.Pattern[bytes], wanted: str) -> bytes:
        match = pattern.match(self._data, self._position)
        if match is None:
            raise self._error(f"{wanted} is missing or has no end")
        self._position = match.end()
        return match.group()

    def _peek(self) -> bytes:
        """The next byte that is not white space; nothing at the end."""
        match = _SPACE.match(self._data, self._position)
        if match:
            self._position = match.end()
        return self._data[self._position : self._position + 1]

    def _take(self, mark: bytes) -> bool:
        if self._peek() != mark:
            return False
        self._position += 1
        return True

    def _error(self, why: str) -> BodyError:
        near = self._data[self._position : self._position + 20]
        return BodyError(f"not JSON at byte {self._position} of {len(self._data)}, {near!r}: {why}")


class _Writer:
    """Walks through a value; what JSON proper says the same way is msgspec's to write, in C."""

    __slots__ = ("_add", "_pause", "_standard")

    def __init__(self, parts: list[bytes], *, standard: bool, pause: Callable[[], None]) -> None:
        self._add = parts.append
        self._standard = standard
        self._pause = pause

    def value(self, value: Any) -> None:
        if value is None or isinstance(value, str | int):
            self._add(_encode_json(value))
        elif isinstance(value, float):
            # Java has no literal for the others either and writes null.
            self._add(_encode_json(value if isfinite(value) else None))
        elif isinstance(value, Mapping):
            self._mapping(value)
        elif isinstance(value, msgspec.Struct) and _is_plain(value.__class__):
            self._add(_encode_plain(value))
        elif isinstance(value, msgspec.Struct) or hasattr(value, "_fields"):
            self._members((name, getattr(value, field)) for name, field in _names(value.__class__))
        elif isinstance(value, AbstractSet):
            self._array(sorted(value))
        elif isinstance(value, list | tuple):
            self._array(value)
        else:
            raise TypeError(f"cannot encode {value!r} of type {type(value).__name__} as JSON")

    def _array(self, items: Iterable[Any]) -> None:
        mark = b"["
        for item in items:
            self._add(mark)
            self.value(item)
            mark = b","
        self._add(b"]" if mark == b"," else b"[]")

    def _members(self, members: Iterable[tuple[bytes, Any]]) -> None:
        mark = b"{"
        for key, item in members:
            if item is not None:
                self._add(mark + key + b":")
                self.value(item)
                mark = b","
        self._add(b"}" if mark == b"," else b"{}")

    def _mapping(self, value: Mapping[Any, Any]) -> None:
        if value and not self._standard and _INTEGERS.issuperset(map(type, value)):
            items = value.values()
            if _INTEGERS.issuperset(map(type, items)):  # as the offsets of a group
                pairs = [b"%d:%d" % pair for pair in value.items()]
                self._add(b"{" + b",".join(pairs) + b"}")
                return
        self._members(self._items(value))

    def _items(self, value: Mapping[Any, Any]) -> Iterator[tuple[bytes, Any]]:
        for number, (key, item) in enumerate(value.items(), 1):
            yield self._key(key), item
            if not number % _STRETCH:
                self._pause()

    def _key(self, key: object) -> bytes:
        if isinstance(key, str):
            return _encode_json(key)
        if type(key) is int:
            return b'"%d"' % key if self._standard else b"%d" % key
        if self._standard or not (isinstance(key, msgspec.Struct) or hasattr(key, "_fields")):
            raise TypeError(f"{key!r} of type {type(key).__name__} is no key of a JSON object")
        return encode(key)


def _encode_plain(value: msgspec.Struct) -> bytes:
    data = _encode_sorted(value)
    at = data.find(_NULL)
    while at >= 0:
        end = at + len(_NULL)
        # Within a string a quote has a backslash before it, and before a string there is no name.
        if data[at - 1 : at].isalnum() and data[end] in _MEMBER_ENDS:
            start = data.rfind(b'"', 0, at)
            if data[end] == _COMMA:
                end += 1
            elif data[start - 1] == _COMMA:
                start -= 1
            data = data[:start] + data[end:]
            end = start
        at = data.find(_NULL, max(0, end - 1))
    return data


@cache
def _is_plain(owner: type[msgspec.Struct]) -> bool:
    """Whether a class holds, however deep, only what JSON and the dialect write the same way."""
    return _is_plain_type(msgspec.inspect.type_info(owner))


def _is_plain_type(found: msgspec.inspect.Type) -> bool:
    if isinstance(found, msgspec.inspect.UnionType):
        return all(map(_is_plain_type, found.types))
    if isinstance(found, msgspec.inspect.StructType):
        return all(_is_plain_type(field.type) for field in found.fields)
    if isinstance(found, msgspec.inspect.ListType | msgspec.inspect.FrozenSetType):
        return _is_plain_type(found.item_type)
    if isinstance(found, msgspec.inspect.DictType):
        return isinstance(found.key_type, _Text) and isinstance(found.value_type, _Text)
    return isinstance(found, _PLAIN_TYPES)


@cache
def _names(owner: Any) -> list[tuple[bytes, str]]:
    """A class's member names as encoded keys, each with its attribute, in the order of Java."""
    fields: tuple[str, ...]
    if issubclass(owner, msgspec.Struct):
        fields = owner.__struct_fields__
        names = owner.__struct_encode_fields__
    else:
        fields = owner._fields
        names = tuple(_AFTER_UNDERSCORE.sub(lambda m: m[1].upper(), field) for field in fields)
    pairs = sorted(zip(names, fields, strict=True))
    return [(msgspec.json.encode(name), field) for name, field in pairs]


_encode_json = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_COMMA = ord(",")
_MEMBER_ENDS = b",}"
_INTEGERS = frozenset({int})
_Text = msgspec.inspect.StrType
_PLAIN_TYPES = (
    _Text,
    msgspec.inspect.IntType,
    msgspec.inspect.BoolType,
    msgspec.inspect.NoneType,
)
