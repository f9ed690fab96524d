"""Commands survive both header forms; what is not a command raises HeaderError."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.codes import LANGUAGE, PROTOCOL_VERSION
from orbitmq.errors import HeaderError
from orbitmq.wire import headers as header_types
from orbitmq.wire.command import (
    BINARY,
    JSON,
    Header,
    RemotingCommand,
    decode_command,
    encode_request,
    encode_response,
)
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.headers import TopicQueueRequestHeader, UpdateConsumerOffsetRequestHeader

serialize_types = st.sampled_from([JSON, BINARY])
texts = st.text(st.characters(codec="utf-8"), max_size=40)
extensions = st.dictionaries(texts, texts, max_size=8)
ALL_HEADERS = [
    value
    for value in vars(header_types).values()
    if isinstance(value, type) and issubclass(value, Header) and value is not Header
]


def values_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[object]:
    """Values of a header's field."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return st.one_of(*map(values_of, kind.types))
    if isinstance(kind, msgspec.inspect.IntType):
        return st.integers(kind.ge, kind.le)
    if isinstance(kind, msgspec.inspect.StrType):
        return texts
    return st.none() if isinstance(kind, msgspec.inspect.NoneType) else st.booleans()


def decode_one(frame: bytes) -> RemotingCommand:
    (command,) = FrameDecoder().feed(frame)
    return command


@given(
    code=st.integers(0, 32767),
    opaque=st.integers(0, 2**31 - 1),
    extension=extensions,
    body=st.binary(max_size=300),
    oneway=st.booleans(),
    serialize_type=serialize_types,
)
def test_requests_round_trip(
    code: int,
    opaque: int,
    extension: dict[str, str],
    body: bytes,
    oneway: bool,
    serialize_type: int,
) -> None:
    command = decode_one(
        encode_request(code, opaque, extension, body, oneway=oneway, serialize_type=serialize_type)
    )
    assert (command.code, command.opaque, command.body) == (code, opaque, body)
    assert command.ext_fields == extension
    assert command.is_oneway is oneway
    assert not command.is_response
    assert command.serialize_type == serialize_type
    assert (command.language, command.version) == (LANGUAGE, PROTOCOL_VERSION)


@given(remark=st.none() | texts, extension=extensions, serialize_type=serialize_types)
def test_responses_answer_in_the_form_of_the_request(
    remark: str | None, extension: dict[str, str], serialize_type: int
) -> None:
    request = decode_one(encode_request(11, 77, serialize_type=serialize_type))
    head = encode_response(request, 19, extension, remark=remark, body_length=3)
    response = decode_one(head + b"abc")
    assert response.is_response
    assert (response.code, response.opaque, response.body) == (19, 77, b"abc")
    assert (response.remark or None) == (remark or None)
    assert response.ext_fields == extension
    assert response.serialize_type == serialize_type


@given(data=st.data(), serialize_type=serialize_types)
@pytest.mark.parametrize("header_type", ALL_HEADERS, ids=lambda type_: type_.__name__)
def test_typed_headers_round_trip_as_strings(
    header_type: type[Header], data: st.DataObject, serialize_type: int
) -> None:
    values = {}
    info = msgspec.inspect.type_info(header_type)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        values[field.name] = data.draw(values_of(field.type), field.name)
    header = header_type(**values)
    command = decode_one(encode_request(1, 1, header, serialize_type=serialize_type))
    assert command.header(header_type) == header
    assert all(isinstance(value, str) for value in command.ext_fields.values())


def test_ext_fields_that_are_numbers_are_read_too() -> None:
    command = decode_command(
        JSON, b'{"code":31,"extFields":{"topic":"t","queueId":3,"x":null,"b":true}}', b""
    )
    assert command.header(header_types.TopicQueueRequestHeader).queue_id == 3
    assert command.ext_fields == {"topic": "t", "queueId": "3", "b": "true"}


def test_a_command_without_ext_fields_has_none() -> None:
    assert decode_command(JSON, b'{"code":105}', b"").ext_fields == {}
    assert decode_command(JSON, b'{"code":105,"extFields":null}', b"").ext_fields == {}


@pytest.mark.parametrize(
    ("extension", "named"),
    [({"topic": "t"}, "queueId"), ({"topic": "t", "queueId": "x"}, "queueId")],
)
def test_a_wrong_field_is_named(extension: dict[str, str], named: str) -> None:
    command = decode_one(encode_request(31, 1, extension))
    with pytest.raises(HeaderError, match=named):
        command.header(header_types.TopicQueueRequestHeader)


@given(serialize_type=st.integers(0, 3), header=st.binary(max_size=80))
def test_garbage_headers_raise_only_wire_errors(serialize_type: int, header: bytes) -> None:
    with suppress(HeaderError):
        assert isinstance(decode_command(serialize_type, header, b"").ext_fields, dict)


@given(
    extension=extensions, cut=st.integers(0, 200), at=st.integers(0, 200), byte=st.integers(0, 255)
)
def test_damaged_binary_headers_raise_only_wire_errors(
    extension: dict[str, str], cut: int, at: int, byte: int
) -> None:
    header = bytearray(encode_request(10, 1, extension, serialize_type=BINARY)[8:])
    header[at % len(header)] = byte
    with suppress(HeaderError):
        decode_command(BINARY, bytes(header[: len(header) - cut % len(header)]), b"")


def test_ext_fields_that_are_no_text_are_refused() -> None:
    """They are looked into only when a handler asks for them."""
    command = decode_command(JSON, b'{"code":11,"extFields":{"topic":"\x99"}}', b"")
    with pytest.raises(HeaderError, match="extFields of command 11"):
        _ = command.ext_fields
    with pytest.raises(HeaderError, match="extFields of command 11"):
        command.header(UpdateConsumerOffsetRequestHeader)


def test_deeply_nested_json_is_refused() -> None:
    deep = b'{"extFields":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
    with pytest.raises(HeaderError):
        decode_command(JSON, deep, b"").ext_fields  # noqa: B018 - decoding is the point


@pytest.mark.parametrize("serialize_type", [JSON, BINARY])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0000123", 123),
        ("+7", 7),
        ("-00", 0),
        ("-0000000000000000000000009", -9),
        ("\u0663", 3),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("+1180591620717411303424", None),
        ("0" * 5_000 + "1", None),
        (" 7", None),
        ("+", None),
        ("0x7", None),
        ("", None),
    ],
)
def test_numbers_are_those_javas_parse_long_reads(
    serialize_type: int, text: str, number: int | None
) -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": text}
    frame = encode_request(15, 1, fields, serialize_type=serialize_type)
    command = decode_command(serialize_type, frame[8:], b"")
    if number is None:
        with pytest.raises(HeaderError, match="UpdateConsumerOffsetRequestHeader.*commitOffset"):
            command.header(UpdateConsumerOffsetRequestHeader)
    else:
        header = command.header(UpdateConsumerOffsetRequestHeader)
        assert (header.commit_offset, header.queue_id) == (number, 0)


@pytest.mark.parametrize(("text", "number"), [("-002147483648", -(1 << 31)), ("2147483648", None)])
def test_a_number_that_is_javas_int_has_32_bits(text: str, number: int | None) -> None:
    frame = encode_request(30, 1, {"topic": "T", "queueId": text})
    command = decode_command(JSON, frame[8:], b"")
    if number is None:
        with pytest.raises(HeaderError, match="2147483647.*queueId"):
            command.header(TopicQueueRequestHeader)
    else:
        assert command.header(TopicQueueRequestHeader).queue_id == number


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)]
)
def test_booleans_are_those_javas_parse_boolean_reads(text: str, value: bool) -> None:
    frame = encode_request(30, 1, {"topic": "T", "queueId": "+1", "committed": text})
    assert decode_command(JSON, frame[8:], b"").header(TopicQueueRequestHeader).committed is value
