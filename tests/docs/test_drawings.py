"""The drawings are what their program draws, and pages show them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.drawings.__main__ import PICTURES, draw
from tests.docs.snippets import ROOT

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 6.2
"""About the width of one in pixels."""


def test_the_pictures_are_those_of_the_program(tmp_path: Path) -> None:
    draw(tmp_path)
    for name in PICTURES:
        drawn = (tmp_path / f"{name}.svg").read_text("utf-8")
        kept = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text("utf-8")
        assert kept == drawn, f"{name}: run python -m docs.drawings"


@pytest.mark.parametrize("name", PICTURES)
def test_words_stay_in_their_picture(name: str) -> None:
    root = ET.fromstring(PICTURES[name]().svg())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for element in root.iter(f"{SVG}text"):
        words, anchor = element.text or "", element.attrib["text-anchor"]
        wide = LETTER * len(words)
        left = float(element.attrib["x"]) - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        assert left >= 0, words
        assert left + wide <= width, words
        assert 0 < float(element.attrib["y"]) < height, words


def test_pages_show_them_all() -> None:
    shown: set[str] = set()
    for page in (ROOT / "docs").glob("*.md"):
        shown.update(re.findall(r"!\[[^\]]+\]\(pictures/([^)]+)\.svg\)", page.read_text("utf-8")))
    assert {*PICTURES} <= shown
