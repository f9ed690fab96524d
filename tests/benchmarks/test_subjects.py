"""What `python -m benchmarks` measures, a moment of each on our broker alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import broker_figures, flames, machine
from benchmarks.broker_figures import Case, load_figures
from benchmarks.brokers import RunningBroker, fill, in_turn, orbitmq_broker
from benchmarks.connection_figures import connection_figures
from benchmarks.plan import Outcome
from benchmarks.results import HEADINGS, cells, compare, compare_outcomes, line, markdown
from benchmarks.scaling import scaling_figures
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.results import Result


def broker_named(name: str) -> RunningBroker:
    return RunningBroker("", name, [], 0)


def test_rounds_take_turns_and_the_first_does_not_count() -> None:
    asked: list[str] = []

    def measure(broker: RunningBroker) -> int:
        asked.append(broker.address)
        return len(asked)

    rows = in_turn(2, [broker_named("a"), broker_named("b")], measure)
    assert "".join(asked) == "abbaab"
    assert rows == [[4, 3], [5, 6]]


def test_the_ratio_is_the_median_of_pairs() -> None:
    result = compare("sends", "/s", [[10.0, 5.0], [30.0, 10.0], [9.0, 9.0]], 2.0)
    assert (result.ours, result.apache) == (10.0, 9.0)
    assert (result.low, result.ratio, result.high) == (1.0, 2.0, 3.0)
    less = compare("latency", "us", [[10.0, 5.0]], None, less=True)
    assert less.ratio == 0.5


def test_processor_time_stands_beside_rates() -> None:
    result = compare_outcomes("sends", [[Outcome(100, 1.0, 0.001), Outcome(50, 1.0, 0.002)]], None)
    assert (result.cpu, result.apache_cpu) == (10.0, 40.0)
    alone = compare_outcomes("sends", [[Outcome(100, 1.0, 0.001)]], None)
    assert (alone.cpu, alone.apache_cpu, alone.ratio) == (10.0, None, None)
    assert line(cells(alone)).split()[-1] == "10.00"
    assert markdown([result]).count("|\n") == 3
    assert len(cells(result)) == len(HEADINGS)


def test_the_interpreter_is_named() -> None:
    described = machine.describe()
    assert {"Python", "core", "uvloop", "machine"} <= described.keys()
    assert machine.build_of_python() in described["Python"]


def measured(results: Iterator[Result]) -> dict[str, Result]:
    return {result.name: result for result in results}


def test_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_figures, "FILLED", {100: 2048})
    cases = [Case("send", "send", window=8, most=50)]
    with orbitmq_broker("sync") as broker:
        fill(broker, "bench-send-100", 0)
        found = measured(load_figures(cases, [broker], 60.0, 1, sync=True))
    result = found["send, sync flush"]
    assert result.aim == broker_figures.SYNC_AIM
    assert result.ours > 0
    assert result.cpu is not None


def test_connections() -> None:
    found = measured(connection_figures(None, 0.05, 1, connections=40, held=40))
    assert found["40 connections, time to connect"].ours > 0
    assert found["40 held pulls, wake-up p99"].ours > 0


def test_scaling(tmp_path: Path) -> None:
    subjects = {"held pulls": (2, 5)}
    written = tmp_path / "scaling.json"
    found = measured(scaling_figures(0.1, 1, tmp_path, subjects, written))
    assert {"send, 2 held pulls", "pull 32, 5 held pulls"} <= found.keys()
    assert json.loads(written.read_text())["held pulls"].keys() == {"2", "5"}
    assert (tmp_path / "scaling-held-pulls.svg").read_text().startswith("<svg")


def test_flames(tmp_path: Path) -> None:
    loads = {"sends": flames.LOADS["sends"]}
    found = measured(flames.flame_figures(0.05, tmp_path, 2048, loads))
    assert "send, 64 in flight: the broker's thread" in found
    assert (tmp_path / "flame-sends.svg").read_text().startswith("<svg")


def test_the_sampler_sees_a_broker_at_work() -> None:
    with flames.sampled_broker() as (broker, take_stacks):

        def functions() -> str:
            fill(broker, "sampled", 10_000)
            return "\n".join(name for stack in take_stacks() for name in stack)

        eventually(lambda: "Sending.send_batch" in functions(), "a sample of what sends batches")
