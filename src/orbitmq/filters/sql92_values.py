"""Values of SQL92 expressions: what Java makes of two of them that are compared.

A message's properties are strings; they become numbers where they meet a number, by the rules of
Java's own classes, which are stricter than Python's for integers (no spaces, the range of the other
side) and looser for floating point (a suffix, hexadecimal). Follows ComparisonExpression.__compare
and the valueOf methods it calls.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import copysign, inf, isnan
from typing import Final, TypeAlias

Value: TypeAlias = str | bool | int | float
"""A String, Boolean, Integer or Long, or Double. An int of more than 31 bits is a Long."""

MAX_INTEGER: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1

_SHORT: Final = 64
"""From how many characters on a number is remembered once it was read: hundreds of tests may read
the same property of a message, which may have 32,767 characters."""

_DIGITS: Final = re.compile(r"[+-]?\d+")
_LAST_CHAR: Final = "\uffff"  # Java reads digits char by char: none beyond
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))
_DECIMAL: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|([+-]?(?:NaN|Infinity))"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


class EvaluationError(ValueError):
    """Values that cannot be compared, as a property ``abc`` with a number: no match."""


def compare(left: Value, right: Value) -> int:
    """Less than, equal to or greater than 0 as ``left`` is to ``right``.

    -1 for types that have nothing in common, such as a boolean and a number. Raises
    EvaluationError where a string is not the number or boolean it is compared with.
    """
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        if isinstance(right, bool):
            return (left.lower() == "true") - right
        return _compare_numbers(_number_like(left, right), right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError(f"{left} stands before {right!r}: Java cannot convert that")
        return left - right if isinstance(right, bool) else -1
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        right = _number_like(right, left)
    return _compare_numbers(left, right)


def compare_as_numbers(left: Value, right: Value) -> int:
    """As :func:`compare`, for ``<`` and its like: two strings are compared as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return _compare_numbers(to_double(left), to_double(right))
    return compare(left, right)


def to_integer(text: str, highest: int = MAX_INTEGER) -> int:
    """``Integer.valueOf``, or ``Long.valueOf`` with its ``highest``; else EvaluationError."""
    return _to_integer(text, highest) if len(text) <= _SHORT else _to_long_integer(text, highest)


def to_double(text: str) -> float:
    """``Double.valueOf``; else EvaluationError."""
    return _to_double(text) if len(text) <= _SHORT else _to_long_double(text)


def _to_integer(text: str, highest: int) -> int:
    if _DIGITS.fullmatch(text) and max(text) <= _LAST_CHAR:
        try:
            value = int(text)
        except ValueError:  # more digits than Python converts
            value = highest + 1
        if -highest - 1 <= value <= highest:
            return value
    raise EvaluationError(f"{text[:99]!r} is no integer from {-highest - 1} to {highest}")


def _to_double(text: str) -> float:
    trimmed = text.strip(_TRIMMED)
    if match := _DECIMAL.fullmatch(trimmed):
        return float(match[1] or match[2])
    if match := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return copysign(inf, -1 if trimmed.startswith("-") else 1)
    raise EvaluationError(f"{text[:99]!r} is no number")


_to_long_integer = lru_cache(maxsize=64)(_to_integer)
_to_long_double = lru_cache(maxsize=64)(_to_double)


def _number_like(text: str, other: float) -> float:
    """``text`` as a number of the type of ``other``."""
    if isinstance(other, int):
        return to_integer(text, MAX_INTEGER if -MAX_INTEGER <= other <= MAX_INTEGER else MAX_LONG)
    return to_double(text)


def _compare_numbers(left: float, right: float) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return _compare_doubles(float(left), float(right))


def _compare_doubles(left: float, right: float) -> int:
    """``Double.compareTo``: -0.0 comes before 0.0, and NaN, equal to itself, after all others."""
    if left < right:
        return -1
    if left > right:
        return 1
    if isnan(left) or isnan(right):
        return isnan(left) - isnan(right)
    return int(copysign(1, left) - copysign(1, right))
