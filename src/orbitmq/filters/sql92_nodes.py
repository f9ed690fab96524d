"""The parts of an SQL92 expression: each checks what it is made of, and becomes a function.

A node is immutable; its ``evaluate`` takes a way to look properties up and gives a value, or None
for SQL's NULL. What Java refuses when it builds an expression raises Refused here, and the parser
adds where. Follows ComparisonExpression, UnaryExpression, LogicExpression and ConstantExpression.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from orbitmq.filters.sql92_values import Value, compare, compare_as_numbers

Lookup: TypeAlias = Callable[[str], str | None]
"""Gives the value of a property, or None where a message has none; a dict's ``get`` does."""

Evaluate: TypeAlias = Callable[[Lookup], Value | None]
Test: TypeAlias = Callable[[Lookup], bool | None]

MAX_HEIGHT: Final = 128
"""How deep an expression may be nested; Java's is bounded by the stack of its thread."""
TOO_DEEP: Final = "it is nested too deep: put fewer parentheses or tests into each other"

_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


class Refused(Exception):  # noqa: N818 - what is raised to the user is a ConfigError
    """The parts do not fit; the text says why, and what would."""


class Kind(Enum):
    """What a node stands for, which decides where it may stand."""

    LITERAL = "literal"
    PROPERTY = "property"
    NUMBER = "number"
    CONDITION = "condition"


class Node(NamedTuple):
    """A part of an expression; ``value`` is that of a literal, or a property's name."""

    kind: Kind
    evaluate: Evaluate
    value: Value | None = None
    height: int = 1

    @property
    def is_condition(self) -> bool:
        """Whether it is true, false or NULL, as it stands (Java's BooleanExpression)."""
        if self.kind is Kind.LITERAL:
            return self.value is None or isinstance(self.value, bool)
        return self.kind is Kind.CONDITION

    def __str__(self) -> str:
        if self.kind is Kind.LITERAL:
            return "NULL" if self.value is None else repr(self.value)
        return str(self.value) if self.kind is Kind.PROPERTY else f"a {self.kind.value}"


def literal(value: Value | None) -> Node:
    """A number, a string, TRUE, FALSE or NULL."""
    return Node(Kind.LITERAL, lambda _: value, value)


def message_property(name: str) -> Node:
    """The value of a property, a string or NULL."""
    return Node(Kind.PROPERTY, lambda lookup: lookup(name), name)


def negative(operand: Node) -> Node:
    """The number with the other sign; NULL for what is no number, which a property is not."""
    inner = operand.evaluate

    def evaluate(lookup: Lookup) -> Value | None:
        value = inner(lookup)
        if isinstance(value, (bool, str)) or value is None:
            return None
        return -value

    return Node(Kind.NUMBER, evaluate, height=_height(operand))


def condition(operand: Node) -> Test:
    """What ``operand`` says as a condition; a property is false, as strings are no booleans."""
    inner = operand.evaluate
    if operand.is_condition:
        return inner  # type: ignore[return-value]
    if operand.kind is Kind.PROPERTY:
        return lambda lookup: None if inner(lookup) is None else False
    raise Refused(f"{operand} is neither true nor false: compare it with something")


def both(operands: Sequence[Node]) -> Node:
    """AND: false if one is, else NULL if one is; nothing behind a false one is looked at."""
    return _decided_by(False, operands)


def either(operands: Sequence[Node]) -> Node:
    """OR: true if one is, else NULL if one is; nothing behind a true one is looked at."""
    return _decided_by(True, operands)


def _decided_by(decisive: bool, operands: Sequence[Node]) -> Node:
    tests = tuple(map(condition, operands))

    def evaluate(lookup: Lookup) -> bool | None:
        result: bool | None = not decisive
        for test in tests:
            value = test(lookup)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return _condition(evaluate, *operands)


def negated(operand: Node) -> Node:
    """NOT: NULL stays NULL."""
    test = condition(operand)

    def evaluate(lookup: Lookup) -> bool | None:
        value = test(lookup)
        return None if value is None else not value

    return _condition(evaluate, operand)


def equal(left: Node, right: Node) -> Node:
    """``=``: NULL where the left side alone is, true where both are."""
    for side in (left, right):
        if side.kind is Kind.LITERAL and side.value is None:
            raise Refused("nothing equals NULL: write IS NULL or IS NOT NULL")
    if left.kind is right.kind is Kind.LITERAL and left.is_condition and not right.is_condition:
        raise Refused(f"{left} cannot be compared with {right}")
    return _equal(left, right)


def is_null(operand: Node) -> Node:
    """IS NULL: true or false."""
    return _equal(operand, literal(None))


def _equal(left: Node, right: Node) -> Node:
    of_left, of_right = left.evaluate, right.evaluate

    def evaluate(lookup: Lookup) -> bool | None:
        one, other = of_left(lookup), of_right(lookup)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return _condition(evaluate, left, right)


def ordered(operator: str, left: Node, right: Node) -> Node:
    """``>``, ``>=``, ``<`` or ``<=``, of numbers; NULL where a side is."""
    for side in (left, right):
        if side.is_condition or (side.kind is Kind.LITERAL and isinstance(side.value, str)):
            hint = ": put what a NOT is about in parentheses" if side.is_condition else ""
            raise Refused(f"{operator} compares numbers and properties, {side} is neither{hint}")
    of_left, of_right, accepts = left.evaluate, right.evaluate, _ORDERS[operator]

    def evaluate(lookup: Lookup) -> bool | None:
        one = of_left(lookup)
        if one is None:
            return None
        other = of_right(lookup)
        return None if other is None else accepts(compare_as_numbers(one, other))

    return _condition(evaluate, left, right)


def between(operand: Node, low: Node, high: Node) -> Node:
    """BETWEEN, its ends included."""
    parts = both([ordered(">=", operand, low), ordered("<=", operand, high)])
    if low.kind is high.kind is Kind.LITERAL and _is_greater(low.value, high.value):
        raise Refused(f"there is nothing between {low} and {high}: write the lower one first")
    return parts


def not_between(operand: Node, low: Node, high: Node) -> Node:
    """NOT BETWEEN; Java lets its ends stand in any order."""
    return either([ordered("<", operand, low), ordered(">", operand, high)])


def text_test(operator: str, operand: Node, search: str, *, wanted: bool) -> Node:
    """CONTAINS, STARTSWITH or ENDSWITH, or not so: never NULL, and false for what is no string.

    An empty ``search`` is in nothing, nor not in it.
    """
    inner, test = operand.evaluate, _TEXT_TESTS[operator]

    def evaluate(lookup: Lookup) -> bool:
        value = inner(lookup) if search else None
        return isinstance(value, str) and test(value, search) is wanted

    return _condition(evaluate, operand)


def one_of(operand: Node, texts: Collection[str], *, wanted: bool) -> Node:
    """IN, or NOT IN, of a property; NULL where the message has none."""
    if operand.kind is not Kind.PROPERTY:
        raise Refused(f"IN asks for a property, not for {operand}")
    inner, members = operand.evaluate, frozenset(texts)

    def evaluate(lookup: Lookup) -> bool | None:
        value = inner(lookup)
        return None if value is None else (value in members) is wanted

    return _condition(evaluate, operand)


def _condition(test: Test, *parts: Node) -> Node:
    return Node(Kind.CONDITION, test, height=_height(*parts))


def _height(*parts: Node) -> int:
    height = 1 + max(part.height for part in parts)
    if height > MAX_HEIGHT:
        raise Refused(TOO_DEEP)
    return height


def _is_greater(low: Value | None, high: Value | None) -> bool:
    return low is not None and high is not None and compare(high, low) < 0
