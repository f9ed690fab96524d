"""Which topic and group names are legal, and how the others are described."""

from __future__ import annotations

import pytest

from orbitmq.errors import IllegalNameError
from orbitmq.names import (
    check_group,
    check_topic,
    dlq_topic,
    is_system_topic,
    retry_topic,
)


@pytest.mark.parametrize("name", ["T", "a-b_c|d%e9", "%RETRY%g", "x" * 127, "%DLQ%" + "x" * 250])
def test_legal_topics_pass(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is blank"),
        ("  ", "is blank"),
        ("a.b", r"illegal character '\.'"),
        ("a/b", "illegal character '/'"),
        ("été", "illegal character 'é'"),
        ("a\n", r"illegal character '\\n'"),
        ("x" * 128, "has 128 characters: use 127 at most"),
        ("%RETRY%" + "x" * 249, "has 256 characters: use 255 at most"),
    ],
)
def test_illegal_topics_are_described(name: str, reason: str) -> None:
    with pytest.raises(IllegalNameError, match=reason):
        check_topic(name)


def test_groups_have_a_limit_of_their_own() -> None:
    check_group("x" * 120)
    with pytest.raises(IllegalNameError, match=r"group name .* has 121 characters: use 120"):
        check_group("x" * 121)


def test_derived_and_system_names() -> None:
    assert (retry_topic("g"), dlq_topic("g")) == ("%RETRY%g", "%DLQ%g")
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("orders")
