"""Every link between the pages leads somewhere, and the chapter on Spark names all its pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What can stand behind # in a link to a page: its headings, as they are made names of."""
    text = _CODE.sub("", page.read_text("utf-8"))
    names = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_chapter_on_spark_names_all_its_pages() -> None:
    text = (DOCS / "spark.md").read_text("utf-8")
    chapter = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \|", text, re.MULTILINE)
    assert sorted(chapter) == sorted(path.name for path in DOCS.glob("spark-*.md"))
