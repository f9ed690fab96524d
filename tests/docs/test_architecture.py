"""docs/architecture.md and the tables of docs/consumers.md show the house as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import orbitmq

PACKAGE = Path(orbitmq.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["architecture.md", "consumers.md"])
def test_modules_that_a_page_names_are_there(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    named = set(re.findall(r"(?<![\w/.])((?:[a-z]\w*/)*\w+\.py)\b", text))
    assert len(named) > 10
    missing = {name for name in named if not (PACKAGE / name).is_file()}
    assert missing - {"tests/test_layering.py"} == set()


def test_the_house_shows_every_room() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    house = text.split("```")[1]
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms == {name for name in re.findall(r"(\w+)/(?=\s)", house) if name in rooms}
