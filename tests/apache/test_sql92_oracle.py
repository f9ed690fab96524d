"""Thousands of SQL92 expressions mean here what they mean to Apache's own filter classes."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from orbitmq.errors import ConfigError
from orbitmq.filters.sql92 import compile_sql
from orbitmq.filters.sql92_values import EvaluationError
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram, options
from tests.filters.sql92_cases import NEW_WORDS, Case, cases

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]

COUNT = 8_000


@pytest.mark.parametrize(("version", "words"), [(NEWEST, NEW_WORDS), (OLDEST, ())])
def test_expressions_are_judged_as_by_apaches_classes(
    version: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    release = release_or_skip(version)
    given = cases(Random(92), COUNT, words=words)
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    with JavaProgram(release, "SqlExpressions", options({"cases": file})) as program:
        program.wait()
        judged = program.wait_for("outcomes")
    ours = [outcomes(case) for case in given]
    different = [
        (case, java, mine)
        for case, java, mine in zip(given, judged, ours, strict=True)
        if java != mine
    ]
    assert not different, f"{len(different)} differ, such as {different[:3]}"
    seen = Counter(outcome for one in judged for outcome in one)
    assert min(seen[kind] for kind in ("refused", "true", "false", "null", "error")) > COUNT // 40


def outcomes(case: Case) -> list[str]:
    try:
        expression = compile_sql(case.expression)
    except ConfigError:
        return ["refused"]
    found = []
    for message in case.messages:
        try:
            value = expression.evaluate(message.get)
        except EvaluationError:
            found.append("error")
        else:
            found.append("null" if value is None else str(value).lower())
    return found
