"""A figure beside Apache's, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from benchmarks.plan import Outcome

HEADINGS = ("", "", "OrbitMQ", "Apache", "ratio", "from", "to", "aim", "CPU us", "Apache", "ratio")
PLAIN_HEADINGS = ("plain", "ratio", "CPU us")
_WIDTHS = (60, 11, 12, 12, 8, 8, 8, 6, 9, 9, 8, 12, 8, 9)


@dataclass
class Result:
    """A figure of ours, Apache's beside it where it ran, and the ratio (above 1 is better).

    The ratio is the median of the rounds' ratios, which went from ``low`` to ``high``. ``cpu`` and
    ``apache_cpu`` are the microseconds of the brokers' processor time a message, ``cpu_ratio`` the
    median of the rounds' ratios of them. ``plain`` is a figure of ours on plain Python beside the
    others, ``plain_ratio`` to Apache's.
    """

    name: str
    unit: str
    ours: float
    apache: float | None = None
    ratio: float | None = None
    aim: float | None = None
    low: float | None = None
    high: float | None = None
    cpu: float | None = None
    apache_cpu: float | None = None
    cpu_ratio: float | None = None
    plain: float | None = None
    plain_ratio: float | None = None
    plain_cpu: float | None = None


def compare(
    name: str, unit: str, rounds: list[list[float]], aim: float | None, *, less: bool = False
) -> Result:
    """The medians of several rounds, and the median of the rounds' ratios.

    A row has ours, the rival's, and that of ours on plain Python; the last two may not be there.
    """
    result = Result(name, unit, median(row[0] for row in rounds), aim=aim)
    if len(rounds[0]) > 1:
        ratios = [_ratio(*row[:2][:: -1 if less else 1]) for row in rounds]
        result.apache = median(row[1] for row in rounds)
        result.ratio, result.low, result.high = median(ratios), min(ratios), max(ratios)
    if len(rounds[0]) > 2:
        others = [_ratio(*(row[2], row[1])[:: -1 if less else 1]) for row in rounds]
        result.plain, result.plain_ratio = median(row[2] for row in rounds), median(others)
    return result


def compare_outcomes(name: str, rounds: list[list[Outcome]], aim: float | None) -> Result:
    """As :func:`compare`, of messages a second, with the processor time beside them."""
    rates = [[outcome.rate for outcome in row] for row in rounds]
    result = compare(name, "messages/s", rates, aim)
    costs = [[outcome.cpu for outcome in row] for row in rounds]
    spent = compare(name, "us", costs, None, less=True)
    result.cpu, result.apache_cpu, result.cpu_ratio = spent.ours, spent.apache, spent.ratio
    result.plain_cpu = spent.plain
    return result


def _ratio(over: float, under: float) -> float:
    return over / under if under else inf


def figures_in(output: str) -> list[float]:
    """The numbers after a program's last ``@@``; Apache's client may print lines of its own."""
    return [float(word) for word in output.rpartition("@@")[2].split()]


def cells(result: Result) -> list[str]:
    """The columns of the table, as HEADINGS names them, and PLAIN_HEADINGS where there are such."""
    ratios = (result.ratio, result.low, result.high)
    columns = [
        *(result.name, result.unit, figure(result.ours), _shown(result.apache, figure)),
        *(_shown(ratio) for ratio in ratios),
        _shown(result.aim, "{:.1f}".format),
        *(_shown(cost) for cost in (result.cpu, result.apache_cpu, result.cpu_ratio)),
    ]
    if result.plain is not None:
        columns += [figure(result.plain), _shown(result.plain_ratio), _shown(result.plain_cpu)]
    return columns


def _shown(value: float | None, show: Callable[[float], str] = "{:.2f}".format) -> str:
    return "" if value is None else show(value)


def line(columns: Sequence[str]) -> str:
    """One line of the table: names to the left, numbers to the right."""
    pairs = list(zip(columns, _WIDTHS, strict=False))
    return "".join(
        [f"{text:<{width}}" for text, width in pairs[:2]]
        + [f"{text:>{width}}" for text, width in pairs[2:]]
    )


def headings(rival: str = "Apache", *, plain: bool = False) -> list[str]:
    """What stands over the columns."""
    words = [word.replace("Apache", rival) for word in HEADINGS]
    return [*words, *PLAIN_HEADINGS] if plain else words


def markdown(results: Sequence[Result], rival: str = "Apache") -> str:
    """The table as documents have it."""
    columns = max(map(len, map(cells, results)), default=len(HEADINGS))
    rows = [headings(rival, plain=True)[:columns], ["---"] * columns]
    rows += [row + [""] * (columns - len(row)) for row in map(cells, results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def figure(value: float) -> str:
    """A figure, with decimals only where they tell something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
