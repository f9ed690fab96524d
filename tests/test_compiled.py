"""The compiled core: taken where it fits, left alone where it is unwanted, and never in the way."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import orbitmq
from orbitmq import __version__, compiled
from orbitmq.cli import main

ROOT = Path(__file__).parents[1]
SPEED = ROOT / "speed"


def module_of(interface: int) -> ModuleType:
    module = ModuleType("orbitmq_speed")
    vars(module)["INTERFACE"] = interface
    return module


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if nobody had said that plain Python is to run."""
    monkeypatch.delenv("ORBITMQ_SPEED", raising=False)
    return monkeypatch


def test_a_core_that_fits_is_taken(wanted: pytest.MonkeyPatch) -> None:
    fitting = module_of(compiled.INTERFACE)
    wanted.setitem(sys.modules, "orbitmq_speed", fitting)
    assert compiled._load() is fitting


def test_no_core_is_no_matter(wanted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    wanted.setattr(importlib, "import_module", missing)
    assert compiled._load() is None
    assert caplog.messages == []


def test_an_unwanted_core_is_left_alone(
    wanted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted.setitem(sys.modules, "orbitmq_speed", module_of(compiled.INTERFACE))
    wanted.setenv("ORBITMQ_SPEED", "0")
    assert compiled._load() is None
    assert caplog.messages == []


def test_a_core_of_another_interface_is_not_used(
    wanted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wanted.setitem(sys.modules, "orbitmq_speed", module_of(99))
    with caplog.at_level(logging.WARNING, "orbitmq"):
        assert compiled._load() is None
    (message,) = caplog.messages
    assert "interface 99" in message
    assert "pip install 'orbitmq[speed]'" in message


def test_a_core_that_cannot_be_loaded_is_told(
    wanted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_name: str) -> ModuleType:
        raise ImportError("undefined symbol: PyBytes")

    wanted.setattr(importlib, "import_module", broken)
    with caplog.at_level(logging.WARNING, "orbitmq"):
        assert compiled._load() is None
    (message,) = caplog.messages
    assert "undefined symbol: PyBytes" in message


@pytest.mark.parametrize("wish", ["0", "1"])
def test_a_process_says_which_core_it_runs(wish: str) -> None:
    script = "from orbitmq.compiled import CORE, TWINS; import orbitmq.wire.record; print(CORE)"
    environment = os.environ | {"ORBITMQ_SPEED": wish}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    here = importlib.util.find_spec("orbitmq_speed") is not None
    assert done.stdout.strip() == ("compiled" if wish == "1" and here else "plain Python")


def test_the_command_says_which_core_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code in {None, 0}
    assert capsys.readouterr().out == f"orbitmq {__version__}, core: {compiled.CORE}\n"


def test_the_suite_runs_on_the_core_that_was_asked_for() -> None:
    if os.environ.get("ORBITMQ_SPEED") == "0":
        assert compiled.CORE == "plain Python"
    elif importlib.util.find_spec("orbitmq_speed") is not None:
        assert compiled.CORE == "compiled"


def test_all_that_is_compiled_is_the_twin_of_something_in_python() -> None:
    module = compiled._MODULE
    if module is None:
        pytest.skip("no compiled core here")
    for found in pkgutil.walk_packages(orbitmq.__path__, "orbitmq."):
        if found.name.startswith(("orbitmq.wire.", "orbitmq.store.")):
            importlib.import_module(found.name)
    there = {name for name, value in vars(module).items() if callable(value) and name[0] != "_"}
    assert there == {name for name, (_, twin) in compiled.TWINS.items() if twin is not None}


def test_all_places_name_one_version() -> None:
    crate = tomllib.loads((SPEED / "Cargo.toml").read_text("utf-8"))["package"]
    distribution = tomllib.loads((SPEED / "pyproject.toml").read_text("utf-8"))["project"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert crate["version"] == distribution["version"]
    extra = extras["optional-dependencies"]["speed"]
    assert extra == [f"{distribution['name']}=={distribution['version']}"]


def test_both_sides_name_one_interface() -> None:
    (there,) = re.findall(
        r"const INTERFACE: u32 = (\d+);", (SPEED / "src/lib.rs").read_text("utf-8")
    )
    assert int(there) == compiled.INTERFACE


def test_the_crate_is_small_and_safe() -> None:
    manifest = tomllib.loads((SPEED / "Cargo.toml").read_text("utf-8"))
    assert manifest["lints"]["rust"]["unsafe_code"] == "forbid"
    assert re.fullmatch(r"=[\d.]+", manifest["dependencies"]["pyo3"]["version"])
    lines = [
        line.strip()
        for path in (SPEED / "src").glob("*.rs")
        for line in path.read_text("utf-8").partition("#[cfg(test)]")[0].splitlines()
    ]
    assert sum(1 for line in lines if line and not line.startswith("//")) <= 707
