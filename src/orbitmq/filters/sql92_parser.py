"""From the text of an SQL92 expression to its nodes, by the grammar of Apache's brokers.

Tokens are read one ahead, as Java's parser does: it stops at the first token that cannot go on, and
never looks at what is behind. So ``a = 1 b = 2`` means ``a = 1``; what is left over is told.
Follows SelectorParser.jj: NOT and the signs bind closest, then comparisons, then ``=``, ``<>`` and
IS, then AND, then OR, each from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isinf
from typing import Final, NamedTuple, ParamSpec, TypeVar

from orbitmq.errors import ConfigError
from orbitmq.filters import sql92_nodes as nodes
from orbitmq.filters.sql92_nodes import MAX_HEIGHT, TOO_DEEP, Node, Refused
from orbitmq.filters.sql92_values import MAX_LONG

MAX_LENGTH: Final = 65_536
"""How long an expression may be, in characters; Java has no limit but that of a frame."""

MAX_TESTS: Final = 512
"""How many tests, signs and NOTs there may be, and ANDs and ORs, of which those in a row are one.
A broker runs them for every message, on its one loop; Java has threads for that, and no limit."""
_TOO_MANY: Final = (
    f"it has more than {MAX_TESTS} tests: ask for many values of a property by IN ('a', 'b')"
)

_SHOWN: Final = 60
"""How much of a long expression an error shows on either side of the place."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*.*?\*/)+", re.DOTALL)
_SKIPPED_IN_LAST_LINE: Final = re.compile(r"(?:[ \t\f]+|/\*.*?\*/)+")
_TOKEN: Final = re.compile(
    r"""
      (?P<float> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
               | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<integer> 0 | [1-9][0-9]*[lL]? )
    | (?P<string> '[^']*(?:''[^']*)*' )
    | (?P<word> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<operator> <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_STRING: Final = re.compile(r"'[^']*(?:''[^']*)*'")
_STRINGS: Final = re.compile(
    rf"\([ \t\n\r\f]*{_STRING.pattern}(?:[ \t\n\r\f]*,[ \t\n\r\f]*{_STRING.pattern})*[ \t\n\r\f]*\)"
)
_LAST_COMMENT: Final = re.compile(r"--[^\n\r]*")
_KEYWORDS: Final = frozenset(
    {
        "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS",
        "STARTSWITH", "ENDSWITH",
    }
)  # fmt: skip
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}

_PREFIXES: Final[dict[str, Callable[[Node], Node]]] = {
    "+": lambda operand: operand,
    "-": nodes.negative,
    "NOT": nodes.negated,
}

_OR, _AND, _EQUALITY, _COMPARISON = range(4)
_LEVELS: Final = {
    "OR": _OR, "AND": _AND, "=": _EQUALITY, "<>": _EQUALITY, "IS": _EQUALITY, ">": _COMPARISON,
    ">=": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON, "NOT": _COMPARISON, "IN": _COMPARISON,
    "BETWEEN": _COMPARISON, "CONTAINS": _COMPARISON, "STARTSWITH": _COMPARISON,
    "ENDSWITH": _COMPARISON,
}  # fmt: skip


class Parsed(NamedTuple):
    """What an expression means, and what of it Java ignores because it comes behind the end.

    ``tests`` are as many as MAX_TESTS counts.
    """

    test: nodes.Test
    ignored: str
    tests: int


class _Token(NamedTuple):
    """``kind`` is that of ``_TOKEN``, a keyword in capitals, an operator itself, or ``end``."""

    kind: str
    text: str
    start: int


def parse(text: str) -> Parsed:
    """Parse an expression. ConfigError, with the place and the remedy, for what Java refuses."""
    if len(text) > MAX_LENGTH:
        allowed = f"it has {len(text)} characters, {MAX_LENGTH} at most: split it"
        raise ConfigError("expression", f"{text[:_SHOWN]}...", allowed)
    return _Parser(text).parse()


class _Parser:
    """Recursive descent with one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._token = self._scan(0)
        self._depth = 0
        self._tests = 0

    def parse(self) -> Parsed:
        """The whole expression."""
        first = self._token
        node = self._expression(_OR)
        test = self._make(first, nodes.condition, node)
        rest = self._text[self._token.start :]
        return Parsed(test, "" if _LAST_COMMENT.fullmatch(rest) else rest, self._tests)

    # Grammar

    def _expression(self, level: int) -> Node:
        """What the operators of ``level`` and above join."""
        self._depth += 1
        if self._depth > MAX_HEIGHT:
            raise self._error(self._token, TOO_DEEP)
        left = self._operand()
        closest = _COMPARISON
        while level <= (found := _LEVELS.get(self._token.kind, -1)) <= closest:
            left = self._joined(left, found)
            closest = found  # what binds closer has had its turn: Java stops there
        self._depth -= 1
        return left

    def _joined(self, left: Node, level: int) -> Node:
        """``left`` with the operator that comes now, and with what that needs."""
        token = self._advance()
        kind = token.kind
        if level <= _AND:
            return self._logic(token, left, level)
        if kind == "IS":
            return self._null_test(token, left)
        if level == _EQUALITY:
            same = self._make(token, nodes.equal, left, self._expression(_COMPARISON))
            return same if kind == "=" else self._make(token, nodes.negated, same)
        if kind[0] in "<>":
            return self._make(token, nodes.ordered, kind, left, self._operand())
        wanted = kind != "NOT"
        return self._property_test(token if wanted else self._advance(), left, wanted=wanted)

    def _logic(self, token: _Token, left: Node, level: int) -> Node:
        operands = [left, self._expression(level + 1)]
        while self._token.kind == token.kind:
            self._advance()
            operands.append(self._expression(level + 1))
        join = nodes.either if level == _OR else nodes.both
        return self._make(token, join, operands)

    def _null_test(self, token: _Token, left: Node) -> Node:
        wanted = self._token.kind != "NOT"
        if not wanted:
            self._advance()
        self._expect("NULL", "NULL or NOT NULL after IS")
        test = self._make(token, nodes.is_null, left)
        return test if wanted else self._make(token, nodes.negated, test)

    def _property_test(self, token: _Token, left: Node, *, wanted: bool) -> Node:
        """BETWEEN, IN, CONTAINS and its like; unless ``wanted`` there was a NOT before."""
        if token.kind == "BETWEEN":
            low = self._operand()
            self._expect("AND", "AND and the other end of BETWEEN")
            make = nodes.between if wanted else nodes.not_between
            return self._make(token, make, left, low, self._operand())
        if token.kind == "IN":
            return self._make(token, nodes.one_of, left, self._strings(), wanted=wanted)
        if token.kind in {"CONTAINS", "STARTSWITH", "ENDSWITH"}:
            search = self._string()
            return self._make(token, nodes.text_test, token.kind, left, search, wanted=wanted)
        raise self._error(token, "NOT stands before BETWEEN, IN, CONTAINS...; to join use AND NOT")

    def _operand(self) -> Node:
        """A literal, a property or something in parentheses, with the signs and NOTs before."""
        prefixes = []
        while self._token.kind in _PREFIXES:
            prefixes.append(self._advance())
            if len(prefixes) > MAX_TESTS:
                raise self._error(self._token, TOO_DEEP)
        node = self._in_parentheses() if self._token.kind == "(" else self._single()
        for prefix in reversed(prefixes):
            node = self._make(prefix, _PREFIXES[prefix.kind], node)
        return node

    def _in_parentheses(self) -> Node:
        self._advance()
        node = self._expression(_OR)
        self._expect(")", "a ) for the ( before")
        return node

    def _single(self) -> Node:
        token = self._advance()
        if token.kind == "word":
            return nodes.message_property(token.text)
        if token.kind == "string":
            return nodes.literal(_decoded(token))
        if token.kind == "integer":
            return nodes.literal(self._integer(token))
        if token.kind == "float":
            return nodes.literal(self._float(token))
        if token.kind in _CONSTANTS:
            return nodes.literal(_CONSTANTS[token.kind])
        raise self._error(token, "here must be a property, a number, or a string in single quotes")

    def _strings(self) -> list[str]:
        if found := _STRINGS.match(self._text, self._token.start):  # thousands, token by token?
            self._token = self._scan(found.end())
            return [text[1:-1].replace("''", "'") for text in _STRING.findall(found[0])]
        self._expect("(", "a ( and strings after IN")
        texts = [self._string()]
        while self._token.kind == ",":
            self._advance()
            texts.append(self._string())
        self._expect(")", "a ) behind the strings of IN, and commas between them")
        return texts

    def _string(self) -> str:
        return _decoded(self._expect("string", "a string in single quotes"))

    def _integer(self, token: _Token) -> int:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(MAX_LONG)) or int(digits) > MAX_LONG:
            raise self._error(token, f"an integer is {MAX_LONG} at most: write it with a point")
        return int(digits)

    def _float(self, token: _Token) -> float:
        value = float(token.text)
        if not value or isinf(value):
            remedy = "write a smaller one" if value else "zero is 0"
            raise self._error(token, f"a number with a point is 4.9e-324 to 1.79e308: {remedy}")
        return value

    # Tokens

    def _advance(self) -> _Token:
        token = self._token
        self._token = self._scan(token.start + len(token.text))
        return token

    def _expect(self, kind: str, what: str) -> _Token:
        if self._token.kind != kind:
            raise self._error(self._token, f"here must be {what}")
        return self._advance()

    def _scan(self, start: int) -> _Token:
        # Where no line ends a comment cannot either: to look for it costs time at every minus.
        skip = _SKIPPED_IN_LAST_LINE if start >= self._last_line else _SKIPPED
        if skipped := skip.match(self._text, start):
            start = skipped.end()
        match = _TOKEN.match(self._text, start)
        if match is None:
            if start < len(self._text):
                raise self._bad_character(start)
            return _Token("end", "", start)
        kind, text = str(match.lastgroup), match[0]
        if kind == "operator":
            kind = text
        elif kind == "word" and text.upper() in _KEYWORDS:
            kind = text.upper()
        return _Token(kind, text, start)

    # Errors

    def _make(
        self, token: _Token, make: Callable[_P, _T], *parts: _P.args, **named: _P.kwargs
    ) -> _T:
        """What ``make`` makes, or the error at ``token`` that it cannot, or is one too many."""
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise self._error(token, _TOO_MANY)
        try:
            return make(*parts, **named)
        except Refused as error:
            raise self._error(token, str(error)) from error

    def _bad_character(self, start: int) -> ConfigError:
        reason = "no expression has this outside of a string, which is in single quotes"
        if self._text[start] == "'":
            reason = "this string does not end: add a single quote (inside a string write two)"
        elif self._text.startswith("/*", start):
            reason = "this comment does not end: add */"
        return self._error(_Token("bad", self._text[start], start), reason)

    def _error(self, token: _Token, reason: str) -> ConfigError:
        place, text = token.start, token.text[:_SHOWN]
        where = f"at character {place + 1}, {text!r}" if text else "at its end"
        return ConfigError("expression", self._around(place), f"{where}: {reason}")

    def _around(self, place: int) -> str:
        """The expression, or what of a long one is near the place."""
        begin, end = max(0, place - _SHOWN), place + _SHOWN
        before, after = "..." if begin else "", "..." if end < len(self._text) else ""
        return before + self._text[begin:end] + after


def _decoded(token: _Token) -> str:
    return token.text[1:-1].replace("''", "'")
