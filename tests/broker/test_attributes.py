"""Attributes of topics and groups: how changes are written, and which there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.broker.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    Attribute,
    altered,
    parse_changes,
)
from orbitmq.errors import BrokerError

NAME = st.text("abc.", min_size=1, max_size=3)
VALUE = st.text("xyz1-", max_size=4)
ANY = {
    name: Attribute(changeable=True, problem=lambda _value: None)
    for name in ("a", "b", "c", "a.b", "b.c")
}


@given(st.dictionaries(NAME, VALUE | st.none(), max_size=4))
def test_changes_that_are_written_as_java_does_are_read(changes: dict[str, str | None]) -> None:
    written = {
        f"-{name}" if value is None else f"+{name}": value or "" for name, value in changes.items()
    }
    text = ",".join(
        name if name.startswith("-") else f"{name}={value}" for name, value in written.items()
    )
    assert parse_changes(text) == written


@given(st.text("+-=,ab. \x00é", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        changes = parse_changes(text)
    except BrokerError as error:
        assert error.code == codes.SYSTEM_ERROR  # noqa: PT017 - nothing else may come
    else:
        assert all(name[0] in "+-" for name in changes)


@given(
    st.dictionaries(st.sampled_from(list(ANY)), VALUE),
    st.dictionaries(st.sampled_from(list(ANY)), VALUE | st.none()),
)
def test_a_change_sets_and_removes(current: dict[str, str], wanted: dict[str, str | None]) -> None:
    changes = {}
    expected = dict(current)
    for name, value in wanted.items():
        if value is not None:
            changes[f"+{name}"] = expected[name] = value
        elif name in current:
            changes[f"-{name}"] = ""
            del expected[name]
    assert altered(current, changes, ANY) == expected


@pytest.mark.parametrize(
    "text",
    ["a", "a=b", "=", "+a", "-a=b", "+a=b=c", "+a=1,+a=2", ",", "+a=b,,+c=d", " +a=b"],
)
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(BrokerError, match="no change|twice"):
        altered(None, parse_changes(text), ANY)


@pytest.mark.parametrize(
    ("current", "text", "reason"),
    [
        (None, "+=x", "no change"),
        (None, "++a=x", "no change"),
        (None, "+no-dash=x", "no change"),
        (None, "+unknown=x", "there is no 'unknown'"),
        (None, "-message.type", "not set"),
        ({}, "-message.type", "not set"),
        (None, "+message.type=normal", "use UNSPECIFIED, NORMAL"),
        (None, "+message.type=LITE", "lite topics are not here yet"),
        (None, "+message.type=", "use UNSPECIFIED"),
        (None, "+queue.type=BatchCQ", "batch consume queues are not here"),
        (None, "+cleanup.policy=COMPACTION", "compaction is not here"),
        (None, "+cleanup.policy=delete", "use"),
        (None, "+reserve.time=-2", "-1 to 9223372036854775807"),
        (None, "+reserve.time=1e3", "use a number"),
        (None, "+reserve.time=" + "9" * 30, "use a number"),
        ({}, "+queue.type=SimpleCQ", "stays as it was"),
        ({"cleanup.policy": "DELETE"}, "-cleanup.policy", "stays as it was"),
    ],
)
def test_attributes_no_topic_has_are_refused(
    current: dict[str, str] | None, text: str, reason: str
) -> None:
    with pytest.raises(BrokerError, match=reason) as caught:
        altered(current, parse_changes(text), TOPIC_ATTRIBUTES)
    assert caught.value.code == codes.SYSTEM_ERROR


def test_a_topics_and_a_groups_attributes_are_taken() -> None:
    made = "+message.type=FIFO,+queue.type=SimpleCQ,+cleanup.policy=DELETE,+reserve.time=-1"
    topic = altered(None, parse_changes(made), TOPIC_ATTRIBUTES)
    changed = altered(topic, parse_changes("+message.type=DELAY,-reserve.time"), TOPIC_ATTRIBUTES)
    assert changed == {
        "message.type": "DELAY", "queue.type": "SimpleCQ", "cleanup.policy": "DELETE",
    }  # fmt: skip
    assert altered(None, {"+priority.factor": "100"}, GROUP_ATTRIBUTES) == {
        "priority.factor": "100"
    }
    for wrong in ("101", "-1", ""):
        with pytest.raises(BrokerError, match="0 to 100"):
            altered(None, {"+priority.factor": wrong}, GROUP_ATTRIBUTES)
    with pytest.raises(BrokerError, match="lite topics"):
        altered({}, {"+lite.bind.topic": "T"}, GROUP_ATTRIBUTES)
