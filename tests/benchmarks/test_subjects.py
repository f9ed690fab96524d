"""What `python -m benchmarks` measures, a moment of each on our broker alone."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from benchmarks import broker_figures, flames, machine
from benchmarks.broker_figures import Case, load_figures
from benchmarks.brokers import PLAIN, RunningBroker, fill, in_turn, orbitmq_broker
from benchmarks.connection_figures import connection_figures
from benchmarks.plan import Outcome
from benchmarks.results import (
    HEADINGS,
    PLAIN_HEADINGS,
    cells,
    compare,
    compare_outcomes,
    line,
    markdown,
)
from benchmarks.sampled_broker import OUTSIDE, stack_of
from benchmarks.scaling import scaling_figures
from orbitmq.net.dispatcher import Dispatcher
from orbitmq.wire.command import RemotingCommand
from tests.docs.snippets import ROOT
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.results import Result
    from orbitmq.net.connection import Connection


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
    assert (result.cpu, result.apache_cpu, result.cpu_ratio) == (10.0, 40.0, 4.0)
    alone = compare_outcomes("sends", [[Outcome(100, 1.0, 0.001)]], None)
    assert (alone.cpu, alone.apache_cpu, alone.ratio) == (10.0, None, None)
    assert line(cells(alone)).split()[-1] == "10.00"
    assert markdown([result]).count("|\n") == 3
    assert len(cells(result)) == len(HEADINGS)


def test_plain_python_stands_beside_the_compiled_core() -> None:
    result = compare("sends", "/s", [[40.0, 10.0, 20.0], [60.0, 20.0, 20.0]], None)
    assert (result.ratio, result.plain, result.plain_ratio) == (3.5, 20.0, 1.5)
    assert compare("latency", "us", [[1.0, 4.0, 2.0]], None, less=True).plain_ratio == 2.0
    assert len(cells(result)) == len(HEADINGS) + len(PLAIN_HEADINGS)
    alone = compare("memory", "MB", [[1.0]], None)
    assert len({row.count("|") for row in markdown([result, alone]).splitlines()}) == 1


def test_another_version_and_plain_python_stand_beside_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_figures, "MIXED", Case("mixed", "mixed", connections=3))
    (result,) = broker_figures.mixed_figures([ROOT / "src", PLAIN], 0.1, 1)
    assert result.ratio is not None
    assert result.apache_cpu is not None
    assert result.plain is not None
    assert result.plain_cpu is not None


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
    found = measured(connection_figures([], 0.05, 1, connections=40, held=40))
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
    page = tmp_path / "performance.md"
    page.write_text((ROOT / "docs/performance.md").read_text("utf-8"))
    found = measured(flames.flame_figures(0.05, tmp_path / "pictures", 2048, loads, page))
    assert "send, 64 in flight: the broker's thread" in found
    table = "| us a message | send, 64 in flight |\n"
    assert page.read_text("utf-8").count(table) == 1
    assert (tmp_path / "pictures" / "flame-sends.svg").read_text().startswith("<svg")


def test_time_is_told_by_module() -> None:
    stacks = {
        ("loop:uvloop and kernel",): 3e6,
        ("loop:uvloop and kernel", "wire.record:encode_record"): 1e6,
        ("loop:uvloop and kernel", "wire.record:encode_batch"): 5e6,
    }
    costs = flames.by_module(stacks, Outcome(900, 1.0, 0.018, [100.0]))
    assert costs == {
        "wire/record.py": 6.0,
        "uvloop and kernel": 3.0,
        flames.THREAD: 9.0,
        flames.ALL_THREADS: 20.0,
    }
    assert flames.table({"send": costs}).splitlines()[2:] == [
        "| `wire/record.py` | 6.00 |",
        "| uvloop and kernel | 3.00 |",
        "| the broker's thread | 9.00 |",
        "| all threads | 20.00 |",
    ]


def test_a_stack_begins_where_the_loop_calls() -> None:
    stacks: list[tuple[str, ...]] = []

    def handler(_command: RemotingCommand, _connection: Connection) -> None:
        stacks.append(stack_of(sys._getframe(1)))

    async def dispatch() -> None:
        Dispatcher({7: handler}).dispatch(RemotingCommand(code=7), cast("Connection", None))

    asyncio.run(dispatch())
    assert stacks == [(OUTSIDE, "net.dispatcher:Dispatcher.dispatch")]


def test_the_sampler_sees_a_broker_at_work() -> None:
    with flames.sampled_broker() as (broker, take_stacks):

        def functions() -> str:
            fill(broker, "sampled", 10_000)
            return "\n".join(name for stack in take_stacks() for name in stack)

        eventually(lambda: "Sending.send_batch" in functions(), "a sample of what sends batches")
