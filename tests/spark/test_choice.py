"""Which topics and queues are read."""

from __future__ import annotations

import pytest

from orbitmq.errors import IllegalNameError
from orbitmq.spark.source.choice import (
    Choice,
    parse_assign,
    parse_pattern,
    parse_topic,
    parse_topics,
)
from orbitmq.spark.source.offsets import Queue

NAMES = ["flights", "flights-eu", "bookings", "%RETRY%g", "%DLQ%flights", "RMQ_SYS_TRACE_TOPIC",
         "rmq_sys_wheel_timer", "DefaultCluster"]  # fmt: skip


def test_topics_by_name() -> None:
    assert parse_topic("flights") == Choice(("flights",))
    assert parse_topics(" b, a ,b,") == Choice(("b", "a"))
    assert parse_topic("flights").only_topic == "flights"
    assert parse_topics("b,a").only_topic is None
    assert parse_topics("b,a").matching(NAMES) == ("b", "a")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("flights", ("flights",)),
        ("flights.*", ("flights", "flights-eu")),
        (".*", ("bookings", "flights", "flights-eu")),
        ("%DLQ%.*", ("%DLQ%flights",)),
        ("nothing", ()),
    ],
)
def test_topics_by_pattern(pattern: str, found: tuple[str, ...]) -> None:
    choice = parse_pattern(pattern)
    assert choice.matching(NAMES, {"DefaultCluster"}) == found
    assert choice.only_topic is None


def test_queues() -> None:
    by_broker = parse_assign('{"T": {"broker-a": [0, 2]}}')
    assert by_broker.topics == ("T",)
    assert [by_broker.takes(Queue("T", name, 0)) for name in ("broker-a", "broker-b")] == [
        True,
        False,
    ]
    assert not by_broker.takes(Queue("T", "broker-a", 1))
    assert by_broker.missing([Queue("T", "broker-a", 0)]) == ["queue 2 of T on broker-a"]
    everywhere = parse_assign('{"T": [1], "U": {"broker-a": [0]}}')
    assert everywhere.topics == ("T", "U")
    assert everywhere.takes(Queue("T", "broker-b", 1))
    assert everywhere.missing([Queue("T", "x", 1), Queue("U", "broker-b", 0)]) == [
        "queue 0 of U on broker-a"
    ]
    assert parse_topic("T").takes(Queue("T", "any", 9))
    assert parse_topic("T").missing([]) == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"T": 1}', '{"T": ["0"]}', '{"T": [-1]}', '{"T": [true]}', '{"T": {"a": 1}}',
     '{"T": []}', '{"T": "12"}', '{"T": [[0]]}', "[" * 100_000],
)  # fmt: skip
def test_other_assignments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON of queue ids"):
        parse_assign(text)


def test_names_and_patterns_are_checked() -> None:
    with pytest.raises(IllegalNameError):
        parse_topics("flights,no spaces")
    with pytest.raises(IllegalNameError):
        parse_assign('{"no spaces": [0]}')
    with pytest.raises(ValueError, match="joined by"):
        parse_topics(" , ")
    for pattern in ("", "(", "[a"):
        with pytest.raises(ValueError, match="a regular expression"):
            parse_pattern(pattern)
