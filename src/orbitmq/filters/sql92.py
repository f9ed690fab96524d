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
from threading import Lock
from typing import Final

from orbitmq.filters.sql92_nodes import Lookup
from orbitmq.filters.sql92_parser import parse
from orbitmq.filters.sql92_values import EvaluationError

log = logging.getLogger("orbitmq.filters")

MAX_COMPILED_LENGTH: Final = 1 << 20
"""How long the expressions that are remembered may be together, in characters."""


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


class _Compiled:
    """The expressions compiled lately, the latest last, as long as they are short together."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._expressions: dict[str, SqlExpression] = {}
        self._length = 0

    def get(self, text: str) -> SqlExpression:
        with self._lock:
            known = self._expressions.pop(text, None)
            if known is not None:
                self._expressions[text] = known
                return known
        compiled = SqlExpression(text)
        with self._lock:
            if text not in self._expressions:
                self._expressions[text] = compiled
                self._length += len(text)
            while self._length > MAX_COMPILED_LENGTH:
                oldest = next(iter(self._expressions))
                del self._expressions[oldest]
                self._length -= len(oldest)
        return compiled


_COMPILED: Final = _Compiled()


def compile_sql(text: str) -> SqlExpression:
    """Compile an expression; those compiled lately are remembered.

    Raises:
        ConfigError: what Apache's brokers refuse, and besides an expression of more than 65,536
            characters or 512 tests, or nested more than some hundred levels deep.
    """
    return _COMPILED.get(text)
