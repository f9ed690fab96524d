"""What the pages on Spark say that an error says, the source says."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.snippets import ROOT

SOURCE = ROOT / "src" / "orbitmq"
OF_OTHERS = (
    "Failed to find the data source",
    "No module named",
    "LOCATION_ALREADY_EXISTS",
    "Remote cannot be specified with master",
    "Could not serialize object",
    "cannot pickle",
)
"""Spark's own, and Python's."""
_TABLE = re.compile(r"^\| what it says \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)


def texts_of_the_source() -> str:
    """All its strings, with a space for each value that is put into them."""
    found = []
    typed = SOURCE / "wire" / "message_types.py"
    for path in [*SOURCE.glob("spark/**/*.py"), *SOURCE.glob("cli/*.py"), typed]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [str(getattr(part, "value", "")) for part in node.values]
                pairs = zip(node.values, parts, strict=True)
                found.append("".join(t if isinstance(n, ast.Constant) else " " for n, t in pairs))
    return "\n".join(found)


def told() -> list[str]:
    """The texts in the first cells of the tables of errors."""
    cells = []
    for page in sorted((ROOT / "docs").glob("spark*.md")):
        for table in _TABLE.findall(page.read_text("utf-8")):
            cells += [line.split("|")[1] for line in table.splitlines()]
    return [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]


def pieces(text: str) -> list[str]:
    """What of a text does not depend on the case: runs of words without values."""
    return [
        piece.strip()
        for piece in re.split(r"'[^']*'(?!s)|[\d.]+(?::\d+)?|\.\.\.|=|[(),;]", text)
        if len(piece.split()) > 1
    ]


@pytest.fixture(scope="module")
def source() -> str:
    return texts_of_the_source()


def test_there_are_such_tables() -> None:
    assert len(told()) > 20


@pytest.mark.parametrize("text", told())
def test_an_error_is_told_as_it_is(text: str, source: str) -> None:
    if any(known in text for known in OF_OTHERS):
        return
    assert pieces(text)
    for piece in pieces(text):
        assert piece in source
