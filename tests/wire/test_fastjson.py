"""fastjson's dialect is read and written as Java does, and garbage is refused with its place."""

from __future__ import annotations

import json
import string
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.wire import fastjson

GOLDEN = Path(__file__).parent / "golden"
LIBRARIES: dict[str, str] = json.loads((GOLDEN / "fastjson.json").read_text("utf-8"))
BODIES: dict[str, dict[str, str]] = json.loads((GOLDEN / "bodies.json").read_text("utf-8"))


class Point(NamedTuple):
    point_y: int
    point_x: int


class Flight(msgspec.Struct, rename="camel"):
    tail_number: str
    carrier: str | None = None


text = st.text(st.characters(codec="utf-8"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
points = st.builds(Point, st.integers(0, 9), st.integers(0, 9))
standard_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=30
)
dialect_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(text | st.integers(-(2**63), 2**63 - 1), inner)
        | st.dictionaries(points, inner)
    ),
    max_leaves=30,
)


def to_point(value: dict[str, int]) -> Point:
    return Point(value["pointY"], value["pointX"])


def without_null_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_null_members(v) for k, v in value.items() if v is not None}
    return [without_null_members(item) for item in value] if isinstance(value, list) else value


@given(dialect_values)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert fastjson.decode(fastjson.encode(value), to_point) == without_null_members(value)


@given(standard_values)
def test_standard_json_is_read(value: Any) -> None:
    assert fastjson.decode(json.dumps(value).encode()) == value


@given(standard_values)
def test_the_reader_of_the_dialect_reads_standard_json_too(value: Any) -> None:
    # An unquoted key keeps the fast reader of standard JSON from doing the work.
    data = b"{0:" + json.dumps(value, indent=1).encode() + b"}"
    assert fastjson.decode(data) == {0: value}


@given(standard_values)
def test_written_for_standard_readers_it_is_standard(value: Any) -> None:
    data = fastjson.encode({7: value, "7th": value}, standard=True)
    assert json.loads(data) == without_null_members({"7": value, "7th": value})


@pytest.mark.parametrize("version", LIBRARIES)
def test_what_the_java_libraries_write(version: str) -> None:
    value = fastjson.decode(LIBRARIES[version].encode())
    controls = "".join(map(chr, range(0x24))) + "\x7f\x80\x9f\u2028\u2029\\/'<>&é中\U0001f600"
    assert value['k"\\\x01ey'] == controls
    assert value["ints"] == {-1: True, 5: [1, 2]}
    assert value["longs"] == {1234567890123: "v"}
    assert value["odd"] == {"true": 1, "1.5": 2, "null": 3, "c": 4}
    assert (value["d"], value["nan"], value["big"], value["bd"]) == (1.5e300, None, -(2**63), 1e30)


def test_object_keys() -> None:
    data = b'{{"b":1,"a":"x"}:{2:[{}]}, {}:null}'
    assert fastjson.decode(data) == {(("a", "x"), ("b", 1)): {2: [{}]}, (): None}
    assert fastjson.decode(b'{{"pointX":1,"pointY":2}:3}', to_point) == {Point(2, 1): 3}


def test_structs_and_named_tuples_become_objects_in_the_order_of_java() -> None:
    value = {Point(2, 1): Flight("N14228", "UA"), "none": Flight("N1")}
    assert fastjson.encode(value) == (
        b'{{"pointX":1,"pointY":2}:{"carrier":"UA","tailNumber":"N14228"},'
        b'"none":{"tailNumber":"N1"}}'
    )


def test_java_has_no_literal_for_odd_floats() -> None:
    assert fastjson.encode([float("nan"), float("inf")]) == b"[null,null]"


def test_sets_are_written_sorted() -> None:
    assert fastjson.encode({"tags": frozenset("cab"), "codes": set()}) == (
        b'{"tags":["a","b","c"],"codes":[]}'
    )


@pytest.mark.parametrize("value", [{1.5: "x"}, {True: 1}, {"x": object()}, {b"x": 1}])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        fastjson.encode(value)


def test_an_object_key_has_no_standard_form() -> None:
    with pytest.raises(TypeError, match="no key of a JSON object"):
        fastjson.encode({Point(1, 2): 3}, standard=True)


def test_an_unpaired_surrogate_is_refused() -> None:
    with pytest.raises(BodyError, match="surrogates not allowed"):
        fastjson.encode({"tags": "\ud83d"})
    with pytest.raises(BodyError, match="at byte 3"):
        fastjson.decode(rb'{0:"\ud83d"}')


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "byte 0 of 0"),
        (b"{", "byte 1"),
        (b"{0", "byte 2"),
        (b"{0:", "byte 3"),
        (b"{0:1", "byte 4"),
        (b"{0:1,", "byte 5"),
        (b"{0:1,}", "byte 5"),
        (b"{0:1]", "byte 4"),
        (b"{0:1}}", "byte 5"),
        (b"{0:01}", "byte 3"),
        (b"{0:nope}", "byte 3"),
        (b'{0:"open', "byte 3"),
        (b'{0:"\x01"}', "byte 3"),
        (b'{0:"\xff"}', "byte 3"),
        (b"[0:1]", "byte 2"),
        (b"{[1]:2}", "byte 1"),
        (b"{'a':2}x", "byte 7"),
        (b"{{1:2}:3,{}:4", "byte 13"),
        (b'{{"a":[]}:1}', "byte 9 .* the object before is no key"),
        (b'{{"a":1,2:3}:4}', "byte 12 .* the object before is no key"),
    ],
)
def test_garbage_is_refused_with_its_place(data: bytes, place: str) -> None:
    with pytest.raises(BodyError, match=place):
        fastjson.decode(data)


@pytest.mark.parametrize("unit", [b"[", b"{0:", b"{", b'{"a":', b"{0:["])
def test_nesting_is_bounded(unit: bytes) -> None:
    with pytest.raises(BodyError, match="nest"):
        fastjson.decode(unit * 100_000)


DIALECT = [value.encode() for value in [*LIBRARIES.values(), *BODIES["5.5.0"].values()]]


@given(data=st.binary() | st.text(string.punctuation + "01truefalsn eE").map(str.encode))
@example(data=b"\xef\xbb\xbf{}")
def test_garbage_raises_nothing_but_body_error(data: bytes) -> None:
    with suppress(BodyError):
        fastjson.decode(data)


@given(
    data=st.sampled_from(DIALECT),
    at=st.integers(0),
    change=st.binary(max_size=3),
    cut=st.booleans(),
)
def test_damaged_bodies_raise_nothing_but_body_error(
    data: bytes, at: int, change: bytes, cut: bool
) -> None:
    at %= len(data)
    damaged = data[:at] + change + (b"" if cut else data[at + len(change) :])
    with suppress(BodyError):
        fastjson.decode(damaged)


class _Inner(msgspec.Struct, rename="camel"):
    of_inner: str | None = None
    b: int | None = None


class _Plain(msgspec.Struct, rename="camel"):
    z_name: str | None = None
    a_name: str | None = None
    inner: _Inner | None = None
    inners: list[_Inner] = []
    names: dict[str, str] = {}
    numbers: frozenset[int] = frozenset()
    flag: bool = True


_texts = st.text() | st.sampled_from(
    ['":null', 'x":null,', '\\":null', ',"b":null}', ":null,", ":null"]
)
_optional = st.none() | _texts
_inners = st.builds(_Inner, of_inner=_optional, b=st.none() | st.integers(-(1 << 63), 1 << 63))


@given(
    st.builds(
        _Plain,
        z_name=_optional,
        a_name=_optional,
        inner=st.none() | _inners,
        inners=st.lists(_inners, max_size=3),
        names=st.dictionaries(_texts, _texts, max_size=3),
        numbers=st.frozensets(st.integers(-(1 << 63), 1 << 63), max_size=3),
        flag=st.booleans(),
    )
)
def test_structs_of_plain_values_are_written_as_any_others(plain: _Plain) -> None:
    """By the encoder in C, and member by member, come the same bytes."""

    def members(value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            return {name: members(getattr(value, field)) for name, field in sorted(names)}
        if isinstance(value, dict):
            return dict(sorted(value.items()))
        return list(map(members, value)) if isinstance(value, list) else value

    try:
        expected = fastjson.encode(members(plain))
    except BodyError:  # a lone surrogate
        with pytest.raises(BodyError):
            fastjson.encode(plain)
    else:
        assert fastjson.encode(plain) == expected


@pytest.mark.parametrize("count", [0, 199, 200, 1_001])
def test_within_long_mappings_there_are_pauses(count: int) -> None:
    pauses: list[None] = []
    value = {str(number): {"a": 1} for number in range(count)}
    written = fastjson.encode(value, pause=lambda: pauses.append(None))
    assert written == fastjson.encode(value)
    assert len(pauses) == count // 200
