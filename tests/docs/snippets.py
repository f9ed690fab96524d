"""Finds the code blocks of the documentation, so that tests run what readers copy."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:9876"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(document: str, language: str = "python") -> list[str]:
    """The document's code blocks in one language, in their order."""
    text = (ROOT / document).read_text()
    return [code for name, code in _BLOCK.findall(text) if name == language]


def snippet(document: str, containing: str, language: str = "python") -> str:
    """The one block that contains a text; it is an error if there are several or none."""
    (code,) = [code for code in snippets(document, language) if containing in code]
    return code


def table_rows(document: str, heading: str = "") -> list[list[str]]:
    """The rows that begin with a name, of its tables or of those below one heading."""
    text = (ROOT / document).read_text("utf-8")
    if heading:
        text = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def run(code: str, name_server: str, **names: object) -> dict[str, object]:
    """Execute a block with the documented name server replaced by a running one."""
    scope: dict[str, object] = {"__name__": "snippet", **names}
    exec(compile(code.replace(ADDRESS, name_server), "snippet", "exec"), scope)
    return scope
