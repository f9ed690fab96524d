"""Commands decoded in one pass with their header are as those decoded step by step."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.codes import RequestCode
from orbitmq.errors import HeaderError
from orbitmq.wire.command import (
    JSON,
    Header,
    RemotingCommand,
    decode_command,
    encode_request,
)
from orbitmq.wire.frames import decode_frames
from orbitmq.wire.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(1 << 65), 1 << 65) | st.integers(-2, 100)
ODD = st.one_of(
    TEXTS,
    NUMBERS,
    NUMBERS.map(str),
    st.sampled_from(["+07", "1.0", "1e3", " 1", "yes", "true", "FALSE", "null", ""]),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(), max_size=2),
)
OUTER = st.fixed_dictionaries(
    {},
    optional={
        "opaque": ODD,
        "flag": ODD,
        "language": ODD,
        "remark": ODD,
        "version": ODD,
        "serializeTypeCurrentRPC": ODD,
        "-body": ODD,
        "-typed": ODD,
        "-ext": ODD,
        "-head": ODD,
        "code": st.sampled_from([10, 310, 320, 11, "310", 310.0]),
    },
)


def valid_fields(code: int) -> st.SearchStrategy[dict[str, object]]:
    """What a client puts into a header."""
    kinds: dict[type, st.SearchStrategy[str]] = {
        msgspec.inspect.IntType: st.integers(0, 99).map(str),
        msgspec.inspect.StrType: TEXTS,
    }
    fields = {}
    for field in msgspec.inspect.type_info(HEADERS[code]).fields:  # type: ignore[attr-defined]
        kind = getattr(field.type, "types", (field.type,))[0]
        fields[field.encode_name] = kinds.get(type(kind), st.sampled_from(["true", "false"]))
    return st.fixed_dictionaries(fields)


def outcome(decode: Callable[[], object]) -> object:
    """What it gives, or the text of its HeaderError."""
    try:
        return decode()
    except HeaderError as error:
        return f"HeaderError: {error}"


def parts(header: bytes) -> list[object]:
    """All that can be asked of the command with this JSON header that comes in a frame."""
    frame = struct.pack(">II", 8 + len(header), len(header)) + header + b"body"
    commands, end = decode_frames(frame, len(frame), decode_command)
    try:
        command = commands[0] if commands else decode_command(JSON, header, b"body")
    except HeaderError as error:
        assert end == 0
        return [str(error)]
    assert end == len(frame)
    return [
        (command.code, command.opaque, command.flag, command.remark, command.language),
        (command.version, command.serialize_type, command.body, command.head.replace(b" ", b"")),
        outcome(lambda: command.ext_fields),
        *(outcome(lambda kind=kind: command.header(kind)) for kind in set(HEADERS.values())),  # type: ignore[misc]
        outcome(lambda: command.header(PullMessageRequestHeader)),
    ]


def check(start: bytes, rest: bytes) -> None:
    """A space before the code has a command decoded step by step."""
    at_once, by_steps = (
        [re.sub(r"byte \d+", "byte", str(part)) for part in parts(opening + start + rest)]
        for opening in (b"{", b"{ ")
    )
    assert at_once == by_steps


@given(st.data())
def test_what_clients_send_is_decoded_at_once(data: st.DataObject) -> None:
    code = data.draw(st.sampled_from(list(HEADERS)))
    fields = data.draw(valid_fields(code))
    header_type = HEADERS[code]
    frame = encode_request(code, 7, {name: str(value) for name, value in fields.items()}, b"")
    command = decode_command(JSON, frame[8:], b"")
    assert type(command) is not RemotingCommand
    assert command.header(header_type) is command.header(header_type)
    assert command.ext_fields == fields
    check(frame[9:20], frame[20:])


@given(st.data())
def test_odd_json_gives_the_same_as_step_by_step(data: st.DataObject) -> None:
    code = data.draw(st.sampled_from(list(HEADERS)))
    fields = data.draw(valid_fields(code))
    names = st.sampled_from([*fields, "AccessKey", "unknown"])
    for name, value in data.draw(st.dictionaries(names, ODD, max_size=3)).items():
        fields[name] = value
    for name in data.draw(st.sets(names, max_size=2)):
        fields.pop(name, None)
    ext: object = data.draw(st.sampled_from([fields] * 8 + [None, [], "x"]))
    head = {"extFields": ext, **data.draw(OUTER)}
    shuffled = dict(data.draw(st.permutations(list(head.items()))))
    rest = b"," + msgspec.json.encode(shuffled)[1:]
    check(b'"code":%d' % code, rest)


@given(st.sampled_from(sorted(HEADERS)), st.binary(max_size=60))
def test_garbage_gives_the_same_as_step_by_step(code: int, garbage: bytes) -> None:
    check(b'"code":%d' % code, garbage)


@pytest.mark.parametrize("code", [3100, 3200, 100])
def test_longer_codes_are_others(code: int) -> None:
    frame = encode_request(code, 1, {"topic": "T"})
    command = decode_command(JSON, frame[8:], b"")
    assert (command.code, command.ext_fields) == (code, {"topic": "T"})


def test_a_field_given_twice_counts_as_in_other_commands() -> None:
    frame = encode_request(310, 1, {"a": "g"})
    check(frame[9:20], frame[20:].replace(b'"a":"g"', b'"a":"g","a":"h","e":"x","e":"1"'))
