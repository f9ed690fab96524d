"""The repository names no machine, path or host of whoever worked on it, and locks its versions."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Written in two halves, so that this file does not name them itself.
MACHINE_PATHS = [
    a + b for a, b in [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/")]
]
INDEXES = [
    a + b
    for a, b in [("index", "-url"), ("find", "-links"), ("pypi.org/", "simple"), ("repo.", "maven")]
]


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_file_names_a_machine_or_an_index() -> None:
    forbidden = re.compile("|".join(map(re.escape, MACHINE_PATHS + INDEXES)).encode())
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked_files()
        for match in forbidden.finditer(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_locks_hold_versions_and_hashes_only(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert "://" not in text
    for requirement in text.replace("\\\n", " ").splitlines():
        assert re.match(r"[a-z0-9_.-]+==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", requirement)


def test_the_lock_covers_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = {
        re.split(r"[\[<>=; ]", requirement)[0].lower()
        for requirement in [*project["dependencies"], *(r for extra in extras for r in extra)]
    }
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    locked = set(re.findall(r"^([a-z0-9_.-]+)==", lock, re.MULTILINE))
    # orbitmq-speed is built of speed/, by `make core`.
    assert wanted - {"orbitmq", "orbitmq-speed"} <= locked


def test_the_core_depends_on_msgspec_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [re.split(r"[<>=]", name)[0] for name in project["dependencies"]] == ["msgspec"]


def test_ci_runs_the_tests_and_requires_apache() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    text = script.read_text("utf-8")
    assert "set -euo pipefail" in text
    assert "ORBITMQ_REQUIRE_APACHE=1" in text
    assert re.search(r"^(exec )?make test$", text, re.MULTILINE)
