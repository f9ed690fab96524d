"""Settings as text, a line each: ``key=value``, as Java's ``Properties`` reads and writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_END: Final = re.compile(r"(?<!\\)((?:\\\\)*)([ \t\f]*[=:][ \t\f]*|[ \t\f]+)")


def decode_properties_text(text: str) -> dict[str, str]:
    r"""The keys and values of ``text``; the last counts of those with the same key.

    Lines that begin with ``#`` or ``!`` are comments, ``\`` at the end joins the next line.
    (MixAll.string2Properties)
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY_END.search(line)
        if match is None:
            key, value = line, ""
        else:
            key, value = line[: match.start()] + match.group(1), line[match.end() :]
        found[_unescaped(key)] = _unescaped(value)
    return found


def encode_properties_text(values: Mapping[str, str]) -> str:
    """A line ``key=value`` each, read back as they were (MixAll.properties2String).

    Java's own writes no escapes; so does this for what needs none.
    """
    return "".join(
        f"{_escaped(key, key=True)}={_escaped(value)}\n" for key, value in values.items()
    )


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        pending += stripped
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
        else:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def letter(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _LETTERS.get(code, code)

    return _ESCAPE.sub(letter, text) if "\\" in text else text


def _escaped(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if key:
        return re.sub(r"([=: \t\f#!])", r"\\\1", escaped)
    return "\\" + escaped if escaped[:1] in (" ", "\t", "\f") else escaped
