"""Subscriptions by SQL92: a condition on a message's properties, as Apache's brokers read it.

Conditions such as ``price > 10``, ``carrier IN ('UA', 'AA')`` or ``origin IS NOT NULL`` are joined
by AND, OR and NOT; a message is sent when the whole is true, and not when it is false or NULL, or
when a property is not the number it is compared with. The quirks are Java's too: NOT binds closest,
so what is negated is put in parentheses, and a number without a point is compared only with
properties that are integers. Follows SqlFilter and SelectorParser of RocketMQ 5.5, whose grammar is
that of 4.9 with CONTAINS, STARTSWITH and ENDSWITH.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from orbitmq.filters.sql92_nodes import Lookup
from orbitmq.filters.sql92_parser import parse
from orbitmq.filters.sql92_values import EvaluationError

log = logging.getLogger("orbitmq.filters")

SHORT_LENGTH: Final = 4_096
"""Up to how many characters 256 expressions are remembered; 16 of longer ones. A stranger's may be
as long as any, and what they are compiled into takes several times as much."""


class SqlExpression:
    """A compiled expression; made by :func:`compile_sql`.

    ``text`` is what was compiled, ``ignored`` what of it comes after its end: Java's parser takes
    ``a = 1 b = 2`` for ``a = 1``. ``tests`` says about how many properties are looked up.
    """

    __slots__ = ("_test", "ignored", "tests", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._test, self.ignored, self.tests = parse(text)

    def evaluate(self, lookup: Lookup) -> bool | None:
        """The outcome for a message whose properties ``lookup`` gives; None is SQL's NULL.

        Raises EvaluationError when values cannot be compared.
        """
        return self._test(lookup)

    def matches(self, lookup: Lookup) -> bool:
        """Whether the message is wanted; not where values cannot be compared."""
        try:
            return self._test(lookup) is True
        except EvaluationError as error:
            log.debug("%s does not match: %s", self.text, error)
            return False


def compile_sql(text: str) -> SqlExpression:
    """Compile an expression; those compiled lately are remembered, of long ones fewer.

    Raises:
        ConfigError: what Apache's brokers refuse, and besides an expression of more than 65,536
            characters or 512 tests, or nested more than some hundred levels deep.
    """
    return _short(text) if len(text) <= SHORT_LENGTH else _long(text)


_short: Final = lru_cache(maxsize=256)(SqlExpression)
_long: Final = lru_cache(maxsize=16)(SqlExpression)
