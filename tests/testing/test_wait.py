"""The wait that tests use ends as soon as its condition holds, and says what never came."""

from __future__ import annotations

import pytest

from orbitmq.testing.wait import wait_until


def test_it_returns_the_first_true_answer() -> None:
    answers = iter([0, None, "", "there", "later"])
    assert wait_until(lambda: next(answers)) == "there"


def test_it_asks_at_least_once() -> None:
    assert wait_until(lambda: True, timeout=0)


def test_it_says_what_did_not_come() -> None:
    with pytest.raises(TimeoutError, match="a second broker did not come true within 0.01 s"):
        wait_until(lambda: False, "a second broker", timeout=0.01)
