from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.errors import InvalidMessageError
from orbitmq.wire.properties import (
    SYSTEM_PROPERTIES,
    decode_properties,
    encode_properties,
    find_property,
    find_property_within,
)

GOLDEN = Path(__file__).parent / "golden"

names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1)
# Bytes in which the separators and a few names come up all the time.
noisy = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"\xff", b"\xe2\x82", b"\xc3\xa9"])
).map(b"".join)


def golden(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text())["cases"]
    return cases


@pytest.mark.parametrize("case", golden("record_properties.json"), ids=lambda case: case["hex"])
def test_encodes_and_decodes_as_java(case: dict[str, Any]) -> None:
    encoded = bytes.fromhex(case["hex"])
    assert encode_properties(case["given"]) == encoded
    assert decode_properties(encoded) == case["read"]


@pytest.mark.parametrize("case", golden("record_odd_properties.json"), ids=lambda case: case["hex"])
def test_reads_odd_properties_as_java(case: dict[str, Any]) -> None:
    found = decode_properties(bytes.fromhex(case["hex"]))
    # How many U+FFFD stand for an encoded surrogate differs between Java (1) and Python (3).
    assert squeeze(found) == squeeze(case["read"])


def squeeze(properties: dict[str, str]) -> dict[str, str]:
    return {
        name: value.replace("\ufffd\ufffd\ufffd", "\ufffd") for name, value in properties.items()
    }


@given(st.dictionaries(names, values))
def test_round_trip(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)
    assert decode_properties(encoded) == properties
    assert decode_properties(memoryview(encoded)) == properties
    assert decode_properties(encoded.removesuffix(b"\x02")) == properties  # the form of 4.9
    for name, value in properties.items():
        assert find_property(encoded, name) == value


def test_an_empty_value_is_written_but_not_read() -> None:
    encoded = encode_properties({"a": "", "b": "1"})
    assert encoded == b"a\x01\x02b\x011\x02"
    assert decode_properties(encoded) == {"b": "1"}
    assert find_property(encoded, "a") is None


@pytest.mark.parametrize(
    "properties", [{"a\x01b": "v"}, {"a\x02": "v"}, {"a": "v\x02w"}, {"a": "1", "b": "\x02"}]
)
def test_refuses_separators_that_could_not_be_read_back(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError, match="separator"):
        encode_properties(properties)


def test_refuses_a_lone_surrogate() -> None:
    with pytest.raises(InvalidMessageError, match="Unicode"):
        encode_properties({"a": "\ud800"})


@given(noisy, st.sampled_from(["a", "TAGS", "TAGSa", "é", "", "\x01", "a\x02", "\ud800"]))
@example(b"a\x01x\x02a\x01\x02", "a")
@example(b"\x01x\x02", "")
@example(b"TAGS\x01a\x02x\x01TAGS\x01TAGS\x01y\x02", "TAGS")
@example(b"x\x01TAGS\x01y\x02aTAGS\x01z\x02", "TAGS")
def test_find_agrees_with_decode(data: bytes, name: str) -> None:
    expected = decode_properties(data).get(name)
    assert find_property(data, name) == expected
    around = b"TAGS\x01no\x02" + data + b"a\x01no\x02TAGS\x01no\x02"
    assert find_property_within(around, 8, 8 + len(data), name) == expected


def test_system_properties_are_the_names_java_reserves() -> None:
    assert len(SYSTEM_PROPERTIES) == 54
    assert "TAGS" in SYSTEM_PROPERTIES
    assert "__SHARDINGKEY" not in SYSTEM_PROPERTIES
