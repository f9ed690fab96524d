"""`make core`: what it says, and that nothing stops where the compiled core cannot be built."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SPEED = Path(__file__).parents[1] / "speed"
# Stands for pip: notes what it is asked for, and does what BEHAVIOUR says.
STUB = """
import sys, time
from pathlib import Path
with Path({asked!r}).open("a") as asked:
    asked.write(sys.argv[1] + "\\n")
if sys.argv[1] == "install":
    {behaviour}
"""


class Installer:
    """speed/install.py with a pip that only notes, and a cargo as a test wants it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = importlib.util.spec_from_file_location("speed_install", SPEED / "install.py")
        assert spec is not None
        assert spec.loader is not None
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.folder = folder
        crate = folder / "speed"
        (crate / "src").mkdir(parents=True)
        (crate / "src/lib.rs").write_text("// the first version\n")
        self.source = crate / "src/lib.rs"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        monkeypatch.setenv("PATH", str(bin_folder))
        monkeypatch.delenv("ORBITMQ_SPEED", raising=False)
        for name, value in {
            "CRATE": crate,
            "STAMP": folder / "stamp",
            "LOG": folder / "log",
            "PIP": [sys.executable, str(folder / "pip.py")],
            "WHICH": "print('the core')",
        }.items():
            monkeypatch.setattr(self.module, name, value)
        self.cargo("exit 0")
        self.pip("pass")

    def cargo(self, does: str) -> None:
        path = self.folder / "bin/cargo"
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    def pip(self, behaviour: str) -> None:
        text = STUB.format(asked=str(self.folder / "asked"), behaviour=behaviour)
        (self.folder / "pip.py").write_text(text)

    @property
    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    return Installer(tmp_path, monkeypatch)


def test_it_is_built_once_and_again_when_a_source_changes(
    installer: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.module.main()
    assert capsys.readouterr().out.splitlines()[-1] == "core: the core"
    installer.module.main()
    assert capsys.readouterr().out == "core: the core\n"
    assert installer.asked == ["install"]
    installer.source.write_text("// another version\n")
    installer.module.main()
    assert installer.asked == ["install", "install"]


def test_without_rust_the_line_says_so(
    installer: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    (installer.folder / "bin/cargo").unlink()
    installer.module.main()
    assert capsys.readouterr().out.startswith("core: the core (no Rust compiler;")
    assert installer.asked == ["uninstall"]  # one of other sources must not run


def test_a_cargo_without_a_toolchain_is_none(
    installer: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.cargo("echo 'error: no default toolchain' >&2; exit 1")
    installer.module.main()
    assert "(cargo does not work: error: no default toolchain)" in capsys.readouterr().out


def test_a_build_that_fails_says_why_and_is_tried_again(
    installer: Installer, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.pip("print('  error: subprocess-exited'); sys.exit('error: no such crate: pyo3')")
    installer.module.main()
    said = capsys.readouterr().out.splitlines()[-1]
    assert (
        said
        == f"core: the core (its build failed: no such crate: pyo3; see {installer.module.LOG})"
    )
    assert installer.asked == ["install", "uninstall"]
    installer.pip("pass")
    installer.module.main()
    assert capsys.readouterr().out.splitlines()[-1] == "core: the core"


def test_a_build_that_hangs_is_given_up(
    installer: Installer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installer.pip("time.sleep(600)")
    monkeypatch.setattr(installer.module, "PATIENCE", 1)
    installer.module.main()
    assert "not done within 1 s" in capsys.readouterr().out


def test_an_unwanted_core_is_not_built(
    installer: Installer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORBITMQ_SPEED", "0")
    installer.module.main()
    assert capsys.readouterr().out == "core: the core (ORBITMQ_SPEED=0)\n"
    assert installer.asked == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_a_build_leaves_behind_is_ignored() -> None:
    if not (SPEED.parent / ".git").exists():
        pytest.skip("not a git checkout")
    ignored = subprocess.run(
        ["git", "check-ignore", "speed/target/release/x.so", "speed/Cargo.lock"],
        cwd=SPEED.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ignored.stdout.split() == ["speed/target/release/x.so", "speed/Cargo.lock"]
