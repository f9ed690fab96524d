"""Java's format of properties, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.properties_file import (
    decode_text,
    format_properties,
    parse_properties,
    replace_properties,
)

TEXTS = st.text(max_size=20)
TABLES = st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=6)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1\nb 2\r\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n! b=2\n\n   \nc=3", {"c": "3"}),
        ("   a=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a=one \\\n    two", {"a": "one two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\\u00fcber\\ttab", {"a": "über\ttab"}),
        ("a=\\ud83d\\ude80", {"a": "🚀"}),
        ("a=\\uZZZZ", {"a": "uZZZZ"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("", {}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


@given(TABLES)
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    text = format_properties(values)
    assert parse_properties(text) == values
    assert text.isascii()


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    parse_properties(text)


@given(TABLES, TABLES)
def test_replaced_values_are_there_and_the_others_stay(
    before: dict[str, str], changes: dict[str, str]
) -> None:
    text = "# a comment\n" + format_properties(before)
    changed = replace_properties(text, changes)
    assert parse_properties(changed) == before | changes
    assert changed.startswith("# a comment\n")


def test_comments_and_order_stay() -> None:
    text = "# ports\nlistenPort=1\n\n# more\nbrokerName = \\\n  a\nlistenPort=2\n"
    assert replace_properties(text, {"brokerName": "b", "traceOn": "false"}) == (
        "# ports\nlistenPort=1\n\n# more\nbrokerName=b\nlistenPort=2\ntraceOn=false\n"
    )


def test_a_value_that_is_there_twice_is_written_once() -> None:
    assert replace_properties("a=1\nb=2\na=3\n", {"a": "4"}) == "a=4\nb=2\n"


def test_a_file_is_utf_8_or_latin_1() -> None:
    assert decode_text("ü".encode()) == decode_text("ü".encode("latin-1")) == "ü"
