"""Java's format of properties: one ``name=value`` a line, as ``broker.conf`` holds them.

Reads what java.util.Properties.load does, and writes what it reads back the same. Computes only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_NAME: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|\\$", re.DOTALL)
_SHORT: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse_properties(text: str) -> dict[str, str]:
    r"""The values by name; of a name that is there twice, the last.

    A backslash at the end joins a line to the next one; ``\uXXXX`` with too few digits is taken
    as it stands, which Java refuses.
    """
    return dict(_pair(line) for _, line in _logical_lines(text))


def format_properties(values: Mapping[str, str]) -> str:
    """A line for each value, which :func:`parse_properties` and Java read back the same."""
    return "".join(f"{_line(name, value)}\n" for name, value in values.items())


def replace_properties(text: str, values: Mapping[str, str]) -> str:
    """``text`` with other values: in their own places, new ones at the end; the rest stays."""
    left = dict(values)
    lines = _LINE_END.split(text)
    changed: list[str] = []
    done = 0
    for (first, end), line in _logical_lines(text):
        changed += lines[done:first]
        name = _pair(line)[0]
        if name in values:
            if name in left:
                changed.append(_line(name, left.pop(name)))
        else:
            changed += lines[first:end]
        done = end
    changed += lines[done:]
    while changed and not changed[-1]:
        changed.pop()
    changed += [_line(name, value) for name, value in left.items()]
    return "".join(f"{line}\n" for line in changed)


def decode_text(data: bytes) -> str:
    """A file's text: UTF-8, or what Java takes it for, Latin-1."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """The lines that hold a pair, joined with those they go on in, and which those are."""
    lines = _LINE_END.split(text)
    at = 0
    while at < len(lines):
        first, line = at, lines[at].lstrip(_BLANKS)
        at += 1
        if not line or line[0] in "#!":
            continue
        while _goes_on(line):
            line = line[:-1]
            if at == len(lines):
                break
            line += lines[at].lstrip(_BLANKS)
            at += 1
        yield (first, at), line


def _goes_on(line: str) -> bool:
    """Whether the line ends in a backslash that no other one escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _pair(line: str) -> tuple[str, str]:
    name = _NAME.match(line)
    assert name is not None  # noqa: S101 - it matches the empty text
    separator = _SEPARATOR.match(line, name.end())
    assert separator is not None  # noqa: S101 - it does, too
    return _unescaped(name[0]), _unescaped(line[separator.end() :])


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_meaning, text)
    return _PAIR.sub(_joined, text)


def _joined(pair: re.Match[str]) -> str:
    """The character of two units."""
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _meaning(escape: re.Match[str]) -> str:
    what = escape[1] or ""
    if len(what) == 5:
        return chr(int(what[1:], 16))
    return _SHORT.get(what, what)


def _line(name: str, value: str) -> str:
    return f"{_escaped(name, also='=: #!')}={_escaped_value(value)}"


def _escaped_value(value: str) -> str:
    """Blanks count but in front."""
    rest = value.lstrip(" ")
    return "\\ " * (len(value) - len(rest)) + _escaped(rest)


def _escaped(text: str, also: str = "") -> str:
    return "".join(
        _TO_ESCAPE.get(char) or (f"\\{char}" if char in also else _as_ascii(char)) for char in text
    )


def _as_ascii(char: str) -> str:
    """Other than ASCII as Java's own unit of 16 bits."""
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
