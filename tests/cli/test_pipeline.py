"""``orbitmq pipeline``: the project it writes, and how it is run."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

from orbitmq.cli import main, pipeline

pytest.importorskip("pyspark")


def written(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_project_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "shop"
    assert main(["pipeline", "init", str(project), "--topic", "sales", "--results", "sums"]) == 0
    assert f"run it with: orbitmq pipeline run {project}" in capsys.readouterr().out
    files = written(project)
    assert files.keys() == {
        "spark-pipeline.yml",
        "conf/spark-defaults.conf",
        *(f"transformations/{name}" for name in ("bronze.py", "cleaned.py", "results.py")),
        "transformations/totals.sql",
    }
    assert not any("@" in text.replace("@dp.", "") for text in files.values())
    for name, text in files.items():
        if name.endswith(".py"):
            ast.parse(text)
    settings = dict(
        line.strip().replace('"', "").split(": ", 1)
        for line in files["spark-pipeline.yml"].splitlines()
        if line.startswith("  spark.orbitmq.")
    )
    assert settings == {
        "spark.orbitmq.nameServer": "127.0.0.1:9876",
        "spark.orbitmq.topic": "sales",
        "spark.orbitmq.group": "pipeline-sales",
        "spark.orbitmq.results": "sums",
        "spark.orbitmq.deadLetters": "sales-rejected",
    }
    assert f"storage: file://{project}/pipeline-storage\n" in files["spark-pipeline.yml"]


def test_what_is_there_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").write_text("mine")
    assert main(["pipeline", "init", str(tmp_path)]) == 2
    assert "a new or empty directory" in capsys.readouterr().err
    assert written(tmp_path) == {"notes": "mine"}
    for options in (["--topic", "no topic"], ["--name-server", "nowhere"], ["--group", "a b"]):
        assert main(["pipeline", "init", str(tmp_path / "new"), *options]) == 2
    assert main(["pipeline", "init", str(tmp_path / "with space")]) == 2
    assert "a path without space" in capsys.readouterr().err
    assert written(tmp_path) == {"notes": "mine"}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spark-pipelines that writes down how it was called, and ends with 3."""
    monkeypatch.setattr(pipeline, "find_spec", lambda _: True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    called = tmp_path / "called"
    script = tmp_path / "bin" / "spark-pipelines"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\necho "$@" "$PYSPARK_PYTHON" "$SPARK_CONF_DIR" "$PWD" > {called}\nexit 3\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return called


def test_a_project_is_run(tmp_path: Path, fake: Path) -> None:
    project = tmp_path / "shop"
    main(["pipeline", "init", str(project)])
    where = f"{tmp_path / 'python'} {project}/conf {project}"
    assert main(["pipeline", "run", str(project)]) == 3
    assert fake.read_text().strip() == f"run --spec spark-pipeline.yml {where}"
    assert main(["pipeline", "run", str(project), "--full-refresh-all"]) == 3
    assert "run --spec spark-pipeline.yml --full-refresh-all" in fake.read_text()
    assert main(["pipeline", "run", str(project), "--dry-run"]) == 3
    assert "dry-run --spec" in fake.read_text()


def test_what_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["pipeline", "run", str(tmp_path)]) == 2
    assert "a project: it has a file spark-pipeline.yml" in capsys.readouterr().err
    main(["pipeline", "init", str(tmp_path / "shop")])
    monkeypatch.setattr(pipeline, "find_spec", lambda name: None if name == "grpc" else True)
    assert main(["pipeline", "run", str(tmp_path / "shop")]) == 2
    assert "grpc is not installed: pip install 'orbitmq[pipelines]'" in capsys.readouterr().err
