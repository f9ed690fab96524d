"""Expressions and messages to judge SQL92 filters by: valid ones, and ones that are nearly so."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

NEW_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
"""The keywords that RocketMQ 4.9 does not have."""

PROPERTIES = ("price", "carrier", "a", "$b_1", "missing", "flag")
VALUES = (
    "0", "1", "-1", "+5", "007", "10", "10.5", " 10", "10 ", "1_0", "1e3", "1E-3", "2147483647",
    "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "UA",
    "AA", "it's", "true", "TRUE", "false", "NaN", "Infinity", "-Infinity", "inf", "-0.0", "0.0",
    "1f", "1d", "1L", "0x10", "0x1p4", ".5", "5.", ".", "1e400", "-1e400", "1e-400", "\u0663",
    "\uff15", "\U0001d7d7", "Z\u00fcrich", " ", "\x00 3\x1f", "\u00a07", "--1", "1 2",
)  # fmt: skip
LITERALS = (
    "0", "1", "5", "10", "007", "10L", "5l", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "99999999999999999999999", "10.5", "5.", ".5", "1e3", "1.5E-3", "2e+2",
    "0.0", "0e1", "1e400", "1e-400", "5e", "'UA'", "'it''s'", "''", "'10'", "'a", "'Z\u00fcrich'",
    "TRUE", "false", "NULL", "null",
)  # fmt: skip
OPERATORS = ("=", "<>", ">", ">=", "<", "<=")
SOUP = (
    *PROPERTIES, *LITERALS, *OPERATORS, "AND", "OR", "NOT", "IS", "IN", "BETWEEN", "(", ")", ",",
    "+", "-", "!=", "*", "#", "--", "-- note\n", "/* x */", "/* ", "\t", "\f", "and", "Or", "nOt",
    "\u00e9", "\u0131s", ";", ".", '"',
)  # fmt: skip


class Case(NamedTuple):
    """An expression, and the properties of some messages."""

    expression: str
    messages: list[dict[str, str]]


def cases(random: Random, count: int, *, words: tuple[str, ...] = NEW_WORDS) -> list[Case]:
    """``count`` cases; ``words`` are the newer keywords to use."""
    return [
        Case(expression(random, words), [message(random) for _ in range(4)]) for _ in range(count)
    ]


def message(random: Random) -> dict[str, str]:
    """The properties of a message."""
    return {name: random.choice(VALUES) for name in PROPERTIES if random.random() < 0.7}


def expression(random: Random, words: tuple[str, ...] = NEW_WORDS) -> str:
    """An expression: as the grammar says, damaged, or any tokens."""
    kind = random.random()
    if kind < 0.1:
        return _spaced(random, random.choices((*SOUP, *words), k=random.randint(0, 8)))
    tokens = _either(random, words, 3)
    if kind < 0.4:
        for _ in range(random.randint(1, 2)):
            place = random.randrange(len(tokens) + 1)
            tokens[place : place + random.randint(0, 1)] = random.choices(
                (*SOUP, *words), k=random.randint(0, 1)
            )
    return _spaced(random, tokens)


def _spaced(random: Random, tokens: list[str]) -> str:
    if random.random() < 0.8:
        return " ".join(tokens)
    return "".join(token + random.choice(("", " ", " ", "\n", "/**/")) for token in tokens)


def _either(random: Random, words: tuple[str, ...], depth: int) -> list[str]:
    tokens = _condition(random, words, depth)
    while random.random() < 0.3:
        tokens += [random.choice(("AND", "OR", "and")), *_condition(random, words, depth)]
    return tokens


def _condition(random: Random, words: tuple[str, ...], depth: int) -> list[str]:
    kind = random.randrange(9)
    operand = _operand(random, words, depth)
    negation = random.choice(([], ["NOT"]))
    if kind < 2:
        return [*operand, random.choice(OPERATORS), *_operand(random, words, depth)]
    if kind == 2:
        return [random.choice(PROPERTIES), random.choice(OPERATORS), _literal(random)]
    if kind == 3:
        ends = [*_operand(random, words, depth), "AND", *_operand(random, words, depth)]
        return [*operand, *negation, "BETWEEN", *ends]
    if kind == 4:
        texts = random.choices(("'UA'", "'10'", "'it''s'", "''"), k=random.randint(1, 6))
        return [*operand, *negation, "IN", "(", *", ".join(texts).split(" "), ")"]
    if kind == 5:
        return [*operand, "IS", *negation, "NULL"]
    if kind == 6 and words:
        return [*operand, *negation, random.choice(words), random.choice(("'A'", "'1'", "''"))]
    if kind == 7 and depth:
        return ["NOT", "(", *_either(random, words, depth - 1), ")"]
    return operand


def _operand(random: Random, words: tuple[str, ...], depth: int) -> list[str]:
    kind = random.random()
    if kind < 0.6:
        return [random.choice(PROPERTIES)]
    if kind < 0.85 or not depth:
        return [_literal(random)]
    if kind < 0.95:
        return [random.choice(("-", "+", "NOT", "- -")), *_operand(random, words, depth - 1)]
    return ["(", *_either(random, words, depth - 1), ")"]


def _literal(random: Random) -> str:
    return random.choice(LITERALS) if random.random() < 0.5 else str(random.randint(0, 20))
