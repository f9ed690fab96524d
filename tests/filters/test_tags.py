"""Tag expressions give what Java's FilterAPI gives, and let through what Java lets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigError
from orbitmq.filters.subscription import build_subscription
from orbitmq.filters.tags import (
    SUB_ALL,
    matches_tags,
    parse_tags,
    wanted_codes,
)
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.ids import tags_code


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA || TagB ||  || TagA ||", {"TagA", "TagB"}),
        ("\tTagA\x00\n||\u3000B\u3000", {"TagA", "\u3000B\u3000"}),
        ("TagA | TagB", {"TagA | TagB"}),
        ("TagA ||| TagB", {"TagA", "| TagB"}),
        ("* || TagA", {"*", "TagA"}),
        (" || ", set()),
        (" ", set()),
    ],
)
def test_an_expression_is_split_as_in_java(expression: str, tags: set[str]) -> None:
    assert parse_tags(expression) == frozenset(tags)
    subscription = build_subscription("flights", expression, sub_version=7)
    assert subscription == SubscriptionData(
        "flights", expression, frozenset(tags), frozenset(map(tags_code, tags)), 7
    )


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_every_message(expression: str | None) -> None:
    assert parse_tags(expression) is None
    assert build_subscription("flights", expression) == SubscriptionData("flights", SUB_ALL)


def test_codes_are_javas_hash_codes() -> None:
    assert build_subscription("flights", "TagA || TagB").code_set == {2598919, 2598920}


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_only_separators_are_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"expression='\|"):
        build_subscription("flights", expression)


def test_another_expression_type_is_refused() -> None:
    assert build_subscription("flights", "A", None) == build_subscription("flights", "A", "TAG")
    with pytest.raises(ConfigError, match="expression_type='REGEX' is not allowed: 'TAG' or"):
        build_subscription("flights", "a.*", "REGEX")


def test_the_broker_filters_by_code() -> None:
    wanted = wanted_codes(build_subscription("flights", "TagA || TagB"))
    assert wanted is not None
    assert [tag for tag in ("TagA", "TagB", "TagC", None) if tags_code(tag) in wanted] == [
        "TagA",
        "TagB",
    ]


def test_the_broker_sends_all() -> None:
    assert wanted_codes(build_subscription("flights")) is None
    by_class = SubscriptionData("flights", "TagA", class_filter_mode=True)
    assert wanted_codes(by_class) is None


def test_blank_tags_match_nothing_on_the_broker_as_in_java() -> None:
    subscription = build_subscription("flights", " || ")
    wanted = wanted_codes(subscription)
    assert wanted is not None
    assert tags_code("TagA") not in wanted
    assert tags_code(None) not in wanted
    assert matches_tags(subscription, "TagA")


def test_the_client_tells_tags_with_one_code_apart() -> None:
    assert tags_code("Aa") == tags_code("BB")
    subscription = build_subscription("flights", "Aa")
    wanted = wanted_codes(subscription)
    assert wanted is not None
    assert tags_code("BB") in wanted
    assert matches_tags(subscription, "Aa")
    assert not matches_tags(subscription, "BB")
    assert not matches_tags(subscription, None)


def test_the_client_takes_all_that_a_subscription_without_tags_brings() -> None:
    assert matches_tags(build_subscription("flights"), None)
    assert matches_tags(SubscriptionData("f", "A", frozenset("A"), class_filter_mode=True), "B")


plain_tags = st.text(st.characters(codec="utf-8", exclude_characters="|"), min_size=1).filter(
    lambda tag: tag != "*" and all(ord(tag[end]) > ord(" ") for end in (0, -1))
)


@given(st.sets(plain_tags, min_size=1), plain_tags)
def test_broker_and_client_agree(tags: set[str], tag: str) -> None:
    expression = " || ".join(sorted(tags))
    subscription = build_subscription("flights", expression)
    assert parse_tags(expression) == frozenset(tags)
    wanted = wanted_codes(subscription)
    assert wanted is not None
    for candidate in tags:
        assert tags_code(candidate) in wanted
        assert matches_tags(subscription, candidate)
    assert matches_tags(subscription, tag) == (tag in tags)
