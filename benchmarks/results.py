"""A figure beside Apache's, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median


@dataclass
class Result:
    """A figure of ours, Apache's beside it where it ran, and the ratio (above 1 is better)."""

    name: str
    unit: str
    ours: float
    apache: float | None = None
    ratio: float | None = None
    aim: float | None = None


def compare(
    name: str, unit: str, rounds: list[list[float]], aim: float | None, *, less: bool = False
) -> Result:
    """The medians of several rounds, ours first, and the median of the rounds' ratios."""
    ours = median(row[0] for row in rounds)
    if len(rounds[0]) == 1:
        return Result(name, unit, ours, aim=aim)
    ratio = median(_ratio(row[1], row[0]) if less else _ratio(row[0], row[1]) for row in rounds)
    return Result(name, unit, ours, median(row[1] for row in rounds), ratio, aim)


def _ratio(over: float, under: float) -> float:
    return over / under if under else inf


def figures_in(output: str) -> list[float]:
    """The numbers after a program's last ``@@``; Apache's client may print lines of its own."""
    return [float(word) for word in output.rpartition("@@")[2].split()]


def show(result: Result) -> None:
    """One line of the table."""
    apache = "" if result.apache is None else figure(result.apache)
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    aim = "" if result.aim is None else f"{result.aim:.1f}"
    print(
        f"{result.name:<50}{result.unit:<11}{figure(result.ours):>12}{apache:>12}{ratio:>8}{aim:>6}"
    )


def figure(value: float) -> str:
    """A figure, with decimals only where they tell something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
