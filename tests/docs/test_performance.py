"""What docs/performance.md and docs/benchmarks.md name and show is there."""

from __future__ import annotations

import re
import shlex
from xml.etree import ElementTree as ET

import pytest

from benchmarks.scaling import SUBJECTS as SCALED
from benchmarks.subjects import GROUPS, SUBJECTS
from tests.docs.snippets import ROOT, run, snippet, snippets

PERFORMANCE = "docs/performance.md"
PAGES = [PERFORMANCE, "docs/benchmarks.md"]


def commands(page: str) -> list[list[str]]:
    """The words after `python -m benchmarks`, wherever the page says it."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"python -m benchmarks((?: [^`#\n]*)?)(?=[`#\n])", text)
    return [shlex.split(words) for words in found]


@pytest.mark.parametrize("page", PAGES)
def test_subjects_and_options_are_those_there_are(page: str) -> None:
    options = {
        "--seconds",
        "--rounds",
        "--alone",
        "--pictures",
        "--largest",
        "--against",
        "--plain",
    }
    named = commands(page)
    assert len(named) > 1
    for words in named:
        subjects = {word for word in words if re.fullmatch("[a-z][a-z-]*", word)} - {"build"}
        assert subjects <= {*SUBJECTS, *GROUPS}
        assert {word for word in words if word.startswith("--")} <= options


def test_every_subject_is_described() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    rows = text[text.index("| subject |") :].split("\n\n")[0]
    named = re.findall(r"`([\w-]+)`", rows)
    assert set(SUBJECTS) <= set(named)


def test_every_picture_is_one() -> None:
    text = (ROOT / PERFORMANCE).read_text("utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    for name in pictures:
        root = ET.fromstring((ROOT / "docs" / name).read_text("utf-8"))
        assert root.tag.endswith("svg")
    for subject in SCALED:
        assert f"pictures/scaling-{subject.replace(' ', '-')}.svg" in pictures


def test_every_module_is_there() -> None:
    text = (ROOT / PERFORMANCE).read_text("utf-8")
    modules = set(re.findall(r"`([a-z_/]+\.py)`", text))
    assert modules
    assert {name for name in modules if not (ROOT / "src" / "orbitmq" / name).is_file()} == set()


def test_how_to_see_what_built_the_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PERFORMANCE, "sysconfig"), "")
    assert capsys.readouterr().out in {"PGO\n", "PGO is not recorded\n"}
    assert len(snippets(PERFORMANCE)) == 1
