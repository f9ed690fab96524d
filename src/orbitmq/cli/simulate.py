"""``orbitmq simulate rebalance``: what the strategies make of consumers that come and go."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from orbitmq.cli.progress import progress

if TYPE_CHECKING:
    from orbitmq.cli.simulation import Scenario, Step

_OPTIONS: Final = {
    "queues": (1_000, "queues of the topic"),
    "brokers": (4, "brokers they are spread over"),
    "rooms": (2, "machine rooms the brokers and clients are spread over"),
    "clients": (10, "consumers of the group at the start"),
    "join": (2, "consumers that join in each round"),
    "leave": (1, "consumers that leave in each round"),
    "rounds": (5, "rounds, with a rebalance each"),
    "virtual-nodes": (10, "points of each consumer on the ring of consistent-hash"),
    "seed": (1, "of the random client ids and of who leaves: the same seed, the same outcome"),
}
_STRATEGIES: Final = ("averagely", "circle", "machine-room", "nearby", "consistent-hash")
_STEP_COLUMNS: Final = "round clients joined left min mean max deviation idle moved least avoidable"
_TOTAL_COLUMNS: Final = "strategy min mean max deviation idle moved least avoidable"


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "simulate", help="try out settings without a broker", allow_abbrev=False
    )
    subjects = parser.add_subparsers(metavar="SUBJECT", required=True, parser_class=type(parser))
    rebalance = subjects.add_parser(
        "rebalance",
        help="how the allocation strategies divide queues as consumers come and go",
        description="Divide the queues of a topic among the consumers of a group by each "
        "strategy, let consumers leave and join, and show how even the shares are and how many "
        "queues move: 'least' is how many had to, to get shares of these sizes, the rest was "
        "'avoidable'.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, (default, help_) in _OPTIONS.items():
        rebalance.add_argument(f"--{name}", type=int, default=default, metavar="N", help=help_)
    rebalance.add_argument(
        "--strategy",
        nargs="+",
        choices=("all", *_STRATEGIES),
        default="all",
        metavar="NAME",
        help=f"{', '.join(_STRATEGIES)}; AllocateByConfig computes nothing to simulate",
    )
    rebalance.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, not tables"
    )
    rebalance.set_defaults(run=run, parser=rebalance)


def run(options: argparse.Namespace) -> None:
    """Simulate and print. Raises ConfigError when there cannot be such a group."""
    from orbitmq.cli.simulation import Scenario, simulate

    scenario = Scenario(**{name: getattr(options, name) for name in Scenario.__annotations__})
    chosen = [
        (name, strategy)
        for name, strategy in scenario.strategies().items()
        if name in options.strategy or "all" in options.strategy
    ]
    queues, groups = scenario.message_queues(), scenario.groups()
    done = count(1)
    with progress("balancing") as show:

        def on_step() -> None:
            show(next(done), len(chosen) * len(groups))

        outcomes = {name: simulate(strategy, queues, groups, on_step) for name, strategy in chosen}
    print(_as_json(scenario, outcomes) if "json" in options else _as_text(scenario, outcomes))


def _as_json(scenario: Scenario, outcomes: dict[str, list[Step]]) -> str:
    steps = {
        name: [asdict(step) | {"avoidable": step.avoidable} for step in steps]
        for name, steps in outcomes.items()
    }
    return json.dumps({"scenario": asdict(scenario), "strategies": steps}, indent=1)


def _as_text(scenario: Scenario, outcomes: dict[str, list[Step]]) -> str:
    about = (
        f"queues {scenario.queues:,}, brokers {scenario.brokers:,}, machine rooms "
        f"{scenario.rooms:,}, clients {scenario.clients:,}; rounds {scenario.rounds:,}, in each "
        f"{scenario.leave:,} leave and {scenario.join:,} join"
    )
    parts = [about]
    for name, steps in outcomes.items():
        rows = [_step_row(number, step) for number, step in enumerate(steps)]
        parts.append(f"{name}\n{_table(_STEP_COLUMNS, rows)}")
    totals = [_total_row(name, steps) for name, steps in outcomes.items()]
    parts.append(f"all rounds\n{_table(_TOTAL_COLUMNS, totals)}")
    return "\n\n".join(parts)


def _step_row(number: int, step: Step) -> list[str]:
    moves = (step.moved, step.least, step.avoidable)
    return [
        str(number) if number else "start",
        f"{step.clients:,}",
        f"+{step.joined:,}" if number else "",
        f"-{step.left:,}" if number else "",
        *_balance(step.smallest, step.mean, step.largest, step.deviation, step.idle),
        *(f"{count:,}" if number else "" for count in moves),
    ]


def _total_row(name: str, steps: Sequence[Step]) -> list[str]:
    """The extremes of the shares, the means, the most idle clients, and the sum of the moves."""
    count = len(steps)
    return [
        name,
        *_balance(
            min(step.smallest for step in steps),
            sum(step.mean for step in steps) / count,
            max(step.largest for step in steps),
            sum(step.deviation for step in steps) / count,
            max(step.idle for step in steps),
        ),
        f"{sum(step.moved for step in steps):,}",
        f"{sum(step.least for step in steps):,}",
        f"{sum(step.avoidable for step in steps):,}",
    ]


def _balance(smallest: int, mean: float, largest: int, deviation: float, idle: int) -> list[str]:
    return [f"{smallest:,}", f"{mean:,.1f}", f"{largest:,}", f"{deviation:,.2f}", f"{idle:,}"]


def _table(columns: str, rows: list[list[str]]) -> str:
    """Columns as wide as what is in them, the first to the left, the others to the right."""
    lines = [columns.split(), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for number, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
