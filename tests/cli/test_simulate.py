"""``orbitmq simulate rebalance``: its figures, its tables, and what it refuses."""

from __future__ import annotations

import json
import sys
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.allocate import AllocateAveragely, AllocateAveragelyByCircle
from orbitmq.cli import main
from orbitmq.cli.simulation import Scenario, least_moves, simulate
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue

COMMAND = ["simulate", "rebalance"]
SMALL = Scenario(
    queues=40, brokers=3, rooms=2, clients=4, join=2, leave=1, rounds=3, virtual_nodes=10, seed=7
)
NAMES = ["averagely", "circle", "machine-room", "nearby", "consistent-hash"]


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "b", number) for number in range(count)]


def outcome(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main([*COMMAND, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_moves_and_balance_are_counted() -> None:
    groups = [["a", "b"], ["a", "b", "c"], ["c"]]
    ends = 0

    def on_step() -> None:
        nonlocal ends
        ends += 1

    start, grown, shrunk = simulate(AllocateAveragely(), queues(9), groups, on_step)
    assert ends == 3
    # a 0-4, b 5-8
    assert (start.clients, start.joined, start.left, start.moved) == (2, 0, 0, 0)
    assert (start.smallest, start.mean, start.largest, start.deviation) == (4, 4.5, 5, 0.5)
    # a 0-2, b 3-5, c 6-8: 3 and 4 go to b, 6-8 to c; but 2 of a and 1 of b would have done for c
    assert (grown.joined, grown.left, grown.moved, grown.least, grown.avoidable) == (1, 0, 5, 3, 2)
    # c gets all
    assert (shrunk.joined, shrunk.left, shrunk.moved, shrunk.least) == (0, 2, 6, 6)
    assert shrunk.deviation == 0


def test_clients_without_queues_are_idle() -> None:
    (step,) = simulate(AllocateAveragelyByCircle(), queues(2), [["a", "b", "c", "d"]])
    assert (step.smallest, step.largest, step.idle) == (0, 1, 2)


@pytest.mark.parametrize(
    ("before", "after", "least"),
    [
        ({"a": 5, "b": 4}, {"a": 3, "b": 3, "c": 3}, 3),
        ({"a": 5, "b": 4}, {"a": 4, "b": 5}, 0),  # each could have kept what it had
        ({"a": 5, "b": 4}, {"b": 9}, 5),
        ({"a": 2}, {"c": 2}, 2),
    ],
)
def test_the_least_that_must_move(
    before: dict[str, int], after: dict[str, int], least: int
) -> None:
    assert least_moves(before, after) == least


scenarios = st.builds(
    lambda queues, brokers, rooms, **rest: Scenario(
        queues=queues, brokers=min(brokers, queues), rooms=min(rooms, brokers, queues), **rest
    ),
    queues=st.integers(1, 60),
    brokers=st.integers(1, 5),
    rooms=st.integers(1, 3),
    clients=st.integers(3, 20),
    join=st.integers(1, 3),
    leave=st.integers(0, 1),
    rounds=st.integers(0, 3),
    virtual_nodes=st.integers(1, 10),
    seed=st.integers(0, 99),
)


@settings(deadline=None)
@given(scenario=scenarios)
def test_every_strategy_gives_out_all_queues_and_moves_at_least_what_must(
    scenario: Scenario,
) -> None:
    everything, groups = scenario.message_queues(), scenario.groups()
    assert len(set(everything)) == scenario.queues
    assert len({queue.broker_name for queue in everything}) == scenario.brokers
    for strategy in scenario.strategies().values():
        for step, group in zip(simulate(strategy, everything, groups), groups, strict=True):
            assert step.clients == len(set(group))
            assert round(step.mean * step.clients) == scenario.queues
            assert 0 <= step.avoidable <= step.moved <= scenario.queues


def test_consumers_leave_and_join() -> None:
    groups = list(map(set, SMALL.groups()))
    assert [len(group) for group in groups] == [4, 5, 6, 7]
    for before, after in pairwise(groups):
        assert (len(before - after), len(after - before)) == (1, 2)
    assert SMALL.groups() == SMALL.groups()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"queues": 0}, "--queues=0 is not allowed: 1 or more"),
        ({"virtual_nodes": 0}, "--virtual-nodes=0 is not allowed: 1 or more"),
        ({"join": -1}, "--join=-1 is not allowed: 0 or more"),
        ({"brokers": 41}, "--brokers=41 is not allowed: at most the 40 queues"),
        ({"rooms": 4}, "--rooms=4 is not allowed: at most the 3 brokers"),
        (
            {"leave": 4},
            "--leave=4 is not allowed: 2 clients are there before round 2, and one must be after",
        ),
    ],
)
def test_a_group_that_cannot_be_is_refused(change: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Scenario(**(vars(SMALL) | change))
    assert text in str(caught.value)


def test_the_command_prints_a_table_for_each_strategy_and_the_sums(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*COMMAND, "--rounds", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""  # no bar where nobody looks
    about, *tables, totals = out.removesuffix("\n").split("\n\n")
    assert about == (
        "queues 1,000, brokers 4, machine rooms 2, clients 10; rounds 2, in each 1 leave and 2 join"
    )
    assert [table.partition("\n")[0] for table in tables] == NAMES
    head, start, first, second = tables[0].split("\n")[1:]
    assert head.split() == (
        "round clients joined left min mean max deviation idle moved least avoidable".split()
    )
    assert start.split() == "start 10 100 100.0 100 0.00 0".split()
    assert first.split()[:4] == "1 11 +2 -1".split()
    assert len(second) == len(head)  # the columns stand below each other
    moved = [int(line.split()[9]) for line in (first, second)]
    assert totals.split("\n")[2].split()[6] == f"{sum(moved):,}"


class Terminal(StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("rich", [True, False])
def test_on_a_terminal_a_bar_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, rich: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    outcome(capsys)
    assert ("balancing" in terminal.getvalue()) == rich


def test_the_command_prints_json_of_the_chosen_strategies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--strategy", "circle", "consistent-hash", "--virtual-nodes", "40", "--seed", "3"]
    printed = outcome(capsys, *options)
    assert printed["scenario"]["virtual_nodes"] == 40
    assert list(printed["strategies"]) == ["circle", "consistent-hash"]
    steps = printed["strategies"]["consistent-hash"]
    assert [step["clients"] for step in steps] == [10, 11, 12, 13, 14, 15]
    assert all(step["avoidable"] == step["moved"] - step["least"] for step in steps)
    assert outcome(capsys, *options) == printed
    assert outcome(capsys, *options, "--seed", "4") != printed


def test_the_command_knows_every_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(outcome(capsys, "--rounds", "0")["strategies"]) == NAMES
    for name in NAMES:
        assert list(outcome(capsys, "--strategy", name)["strategies"]) == [name]


def test_many_queues_and_many_clients(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--queues", "100000", "--clients", "10000", "--rounds", "1"]
    for steps in outcome(capsys, *size)["strategies"].values():
        assert [step["clients"] for step in steps] == [10_000, 10_001]
        assert steps[1]["moved"] > 0


def test_the_command_says_in_one_line_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--queues", "3"]) == 2
    assert capsys.readouterr() == (
        "",
        "orbitmq: --brokers=4 is not allowed: at most the 3 queues\n",
    )
    with pytest.raises(SystemExit) as caught:
        main([*COMMAND, "--strategy", "config"])
    assert caught.value.code == 2
    assert "invalid choice: 'config'" in capsys.readouterr().err
