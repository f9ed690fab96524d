"""RemotingCommand: one request or response, and how it becomes bytes.

A frame is ``length(4) | serializeType << 24 + headerLength (4) | header | body``, all big-endian;
the length counts what follows it. The header is JSON (type 0) or RocketMQ's binary form (type 1);
see ``RemotingCommand`` and ``RocketMQSerializable`` of Apache RocketMQ. ``extFields``, the
command's own arguments, stay undecoded until a handler asks for its typed header; those of commands
that come in masses are decoded with the command (:func:`decode_at_once`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec

from orbitmq.codes import LANGUAGE, LANGUAGES, PROTOCOL_VERSION
from orbitmq.errors import HeaderError

JSON: Final = 0
"""Serialize type of a JSON header."""
BINARY: Final = 1
"""Serialize type of RocketMQ's binary header (Java's ``SerializeType.ROCKETMQ``)."""

RESPONSE: Final = 1
"""Flag bit of a response."""
ONEWAY: Final = 2
"""Flag bit of a request that wants no response."""

MAX_HEADER_LENGTH: Final = 0xFFFFFF

_LENGTHS = struct.Struct(">II")
_BINARY_HEAD = struct.Struct(">hBhiii")
_INTEGER = re.compile(r"[+-]?\d{1,999}")
_EMPTY = msgspec.Raw(b"{}")
_HeaderT = TypeVar("_HeaderT", bound="Header")


class Header(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """Base of the typed headers: a command's ``extFields`` with names and types.

    On the wire every value is a string; numbers and booleans are converted both ways. A field
    that is None is not sent.
    """

    def ext_fields(self) -> dict[str, str]:
        """The fields as they stand on the wire."""
        return {
            name: value if type(value) is str else _text(value)
            for name, value in zip(_wire_names(type(self)), _values(self), strict=True)
            if value is not None
        }


class RemotingCommand(msgspec.Struct, gc=False):
    """One decoded request or response.

    ``ext`` is the undecoded JSON of ``extFields``; use :meth:`header` for a typed view and
    :attr:`ext_fields` for the raw strings. ``body`` may be a view of the receive buffer made for
    this frame alone, so it stays valid. ``head`` is the JSON header it was decoded from, if any;
    ``typed`` is its typed header, where that was decoded with it.
    """

    code: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: msgspec.Raw = msgspec.field(default=_EMPTY, name="extFields")
    language: str | int = "JAVA"
    version: int = 0
    serialize_type: int = msgspec.field(default=JSON, name="-serializeType")
    body: Any = msgspec.field(default=b"", name="-body")
    head: bytes = msgspec.field(default=b"", name="-head")
    typed: Any = msgspec.field(default=None, name="-typed")

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender of this request wants no response."""
        return bool(self.flag & ONEWAY)

    @property
    def ext_fields(self) -> dict[str, str]:
        """``extFields`` as strings, numbers included; empty when there are none."""
        try:
            fields = _EXT_DECODER.decode(self.ext)
        except _UNREADABLE as error:
            raise HeaderError(f"extFields of command {self.code}: {error}") from error
        return {name: _text(value) for name, value in (fields or {}).items() if value is not None}

    def header(self, header_type: type[_HeaderT]) -> _HeaderT:
        """``extFields`` as a typed header.

        Raises HeaderError naming the field that is missing or has a wrong type.
        """
        try:
            header: _HeaderT = _DECODE[header_type](self.ext)
            return header
        except _UNREADABLE as error:
            fields = _as_java_reads(self.ext_fields, header_type)
            with suppress(msgspec.ValidationError):
                return msgspec.convert(fields, header_type, strict=False)
            raise HeaderError(
                f"command {self.code} has no valid {header_type.__name__}: {error}"
            ) from error


class _CommandAtOnce(RemotingCommand, kw_only=True):
    """A command whose extFields were decoded with it: they are ``typed``, and not in ``ext``."""

    ext: msgspec.Raw = msgspec.field(default=_EMPTY, name="-ext")

    @property
    def ext_fields(self) -> dict[str, str]:
        """As of any command."""
        return _decode_json(self.head).ext_fields

    def header(self, header_type: type[_HeaderT]) -> _HeaderT:
        """As of any command."""
        typed = self.typed
        return typed if type(typed) is header_type else _decode_json(self.head).header(header_type)


def decode_at_once(code: int, header_type: type[Header]) -> None:
    """Have JSON commands of this code decoded in one pass with their header of this type.

    For those that come in masses. Nothing else changes: where a header is not as its type says,
    the command is decoded as ever.
    """
    command_type = msgspec.defstruct(
        f"{header_type.__name__}Command",
        [("code", Literal[int(code)]), ("typed", header_type, msgspec.field(name="extFields"))],
        bases=(_CommandAtOnce,),
        kw_only=True,
        gc=False,
    )
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(command_type, strict=False)
    start = b'{"code":%d,' % code
    _AT_ONCE[start[:_START]] = decoder.decode


def decode_command(serialize_type: int, header: bytes, body: bytes | memoryview) -> RemotingCommand:
    """A command from its header bytes; ``header`` must not change afterwards.

    Raises HeaderError for an unknown serialize type or a header that is not in that form.
    """
    if serialize_type == JSON:
        try:
            command = _AT_ONCE.get(header[:_START], _decode_any)(header)
        except _UNREADABLE:
            command = _decode_json(header)
        command.head = header
    elif serialize_type == BINARY:
        command = _decode_binary(header)
    else:
        raise HeaderError(f"unknown serialize type {serialize_type}: 0 is JSON, 1 is ROCKETMQ")
    command.body = body
    return command


def _decode_json(header: bytes) -> RemotingCommand:
    try:
        return _decode_any(header)
    except _UNREADABLE as error:
        raise HeaderError(f"JSON header cannot be read: {error}") from error


def encode_request(
    code: int,
    opaque: int,
    header: Header | Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    oneway: bool = False,
    serialize_type: int = JSON,
) -> bytes:
    """A whole request frame."""
    head = encode_request_head(
        code, opaque, header, len(body), oneway=oneway, serialize_type=serialize_type
    )
    return head + body


def encode_request_head(
    code: int,
    opaque: int,
    header: Header | Mapping[str, str] | None,
    body_length: int,
    *,
    oneway: bool = False,
    serialize_type: int = JSON,
) -> bytes:
    """The head of a request frame, to be followed by ``body_length`` bytes of body."""
    flag = ONEWAY if oneway else 0
    return _encode_head(serialize_type, code, opaque, flag, header, None, body_length)


def encode_response(
    request: RemotingCommand,
    code: int,
    header: Header | Mapping[str, str] | None = None,
    *,
    remark: str | None = None,
    body_length: int = 0,
) -> bytes:
    """The head of a response frame, to be followed by ``body_length`` bytes of body.

    The response takes the request's opaque and serialize type. The body stays apart so that it
    can leave as slices of the log, uncopied.
    """
    return _encode_head(
        request.serialize_type, code, request.opaque, RESPONSE, header, remark, body_length
    )


def _encode_head(
    serialize_type: int,
    code: int,
    opaque: int,
    flag: int,
    header: Header | Mapping[str, str] | None,
    remark: str | None,
    body_length: int,
) -> bytes:
    fields = header.ext_fields() if isinstance(header, Header) else header
    if serialize_type == BINARY:
        encoded = _encode_binary(code, opaque, flag, fields or {}, remark)
    else:
        encoded = b'{"code":%d,"extFields":%b,"flag":%d,%b,"opaque":%d%b}' % (
            code,
            _encode_json(fields) if fields else b"{}",
            flag,
            _JSON_CONSTANTS,
            opaque,
            b"" if remark is None else b',"remark":' + _encode_json(remark),
        )
    length = len(encoded)
    if length > MAX_HEADER_LENGTH:
        raise HeaderError(f"header of command {code} has {length} bytes, over {MAX_HEADER_LENGTH}")
    return _LENGTHS.pack(4 + length + body_length, serialize_type << 24 | length) + encoded


def _encode_binary(
    code: int, opaque: int, flag: int, fields: Mapping[str, str], remark: str | None
) -> bytes:
    text = (remark or "").encode()
    parts = [
        _BINARY_HEAD.pack(code, _LANGUAGE_CODE, PROTOCOL_VERSION, opaque, flag, len(text)),
        text,
        b"",
    ]
    for name, value in fields.items():
        key, data = name.encode(), value.encode()
        parts += (len(key).to_bytes(2, "big"), key, len(data).to_bytes(4, "big"), data)
    parts[2] = sum(map(len, parts[3:])).to_bytes(4, "big")
    return b"".join(parts)


def _decode_binary(header: bytes) -> RemotingCommand:
    if len(header) < _BINARY_HEAD.size + 4:
        raise HeaderError(f"binary header of {len(header)} bytes is too short")
    code, language, version, opaque, flag, size = _BINARY_HEAD.unpack_from(header)
    remark, position = _take(header, _BINARY_HEAD.size, size)
    size, position = _take_length(header, position, 4)
    if position + size > len(header):
        raise HeaderError(f"binary header ends inside extFields of {size} bytes")
    fields = {}
    end = position + size
    while position < end:
        size, position = _take_length(header, position, 2)
        key, position = _take(header, position, size)
        size, position = _take_length(header, position, 4)
        fields[key], position = _take(header, position, size)
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        remark=remark or None,
        ext=msgspec.Raw(_encode_json(fields)),
        language=LANGUAGES[language] if language < len(LANGUAGES) else language,
        version=version,
        serialize_type=BINARY,
    )


def _take_length(data: bytes, position: int, width: int) -> tuple[int, int]:
    end = position + width
    if end > len(data):
        raise HeaderError(f"binary header ends inside a length at byte {position}")
    return int.from_bytes(data[position:end], "big"), end


def _take(data: bytes, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(data):
        raise HeaderError(f"binary header ends inside a string of {size} bytes")
    try:
        return data[position:end].decode(), end
    except UnicodeDecodeError as error:
        raise HeaderError(f"binary header holds bytes that are not UTF-8: {error}") from error


def _text(value: object) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


@cache
def _wire_names(header_type: type[Header]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(header_type))


def _as_java_reads(fields: dict[str, str], header_type: type[Header]) -> dict[str, Any]:
    """``fields`` with the numbers and booleans that only Java reads, such as ``+07`` and ``yes``.

    RemotingCommand.decodeCommandCustomHeader leaves them to parseLong and parseBoolean.
    """
    read: dict[str, Any] = dict(fields)
    for name, is_number in _numbers_and_booleans(header_type).items():
        text = fields.get(name)
        if text is None:
            continue
        if not is_number:
            read[name] = text.lower() == "true"
        elif _INTEGER.fullmatch(text):
            read[name] = int(text)
    return read


@cache
def _numbers_and_booleans(header_type: type[Header]) -> dict[str, bool]:
    """The wire names of a header's numbers (True) and booleans (False)."""
    found = {}
    for field in msgspec.inspect.type_info(header_type).fields:  # type: ignore[attr-defined]
        types = getattr(field.type, "types", (field.type,))
        for kind, is_number in ((msgspec.inspect.IntType, True), (msgspec.inspect.BoolType, False)):
            if any(isinstance(type_, kind) for type_ in types):
                found[field.encode_name] = is_number
    return found


class _Decoders(dict[type[Header], Callable[[msgspec.Raw], Any]]):
    """By type of header, what decodes it; made when first asked for."""

    def __missing__(self, header_type: type[Header]) -> Callable[[msgspec.Raw], Any]:
        decode = self[header_type] = msgspec.json.Decoder(header_type, strict=False).decode
        return decode


_DECODE: Final = _Decoders()

_values = msgspec.structs.astuple
_encode_json = msgspec.json.Encoder().encode
_decode_any: Callable[[bytes], RemotingCommand] = msgspec.json.Decoder(
    RemotingCommand, strict=False
).decode
_AT_ONCE: Final[dict[bytes, Callable[[bytes], RemotingCommand]]] = {}
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_START: Final = len(b'{"code":310')  # what tells one code of sends from the other
_EXT_DECODER = msgspec.json.Decoder(dict[str, str | int | float | bool | None] | None)
_LANGUAGE_CODE = LANGUAGES.index(LANGUAGE)
_JSON_CONSTANTS = b'"language":"%b","serializeTypeCurrentRPC":"JSON","version":%d' % (
    LANGUAGE.encode(),
    PROTOCOL_VERSION,
)
