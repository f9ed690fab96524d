"""Plots as SVG, small enough to be read as text and compared by git."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 120, 40, 48
_COLOURS = ("#1f6fb4", "#d1642a", "#3a8f4d", "#8a56a8")
_FONT = 'font-family="sans-serif" font-size="12"'

Points = Sequence[tuple[float, float]]


def line_plot(title: str, across: str, up: str, lines: Mapping[str, Points]) -> str:
    """An SVG with one line for each name; x is logarithmic, y begins at 0.

    ``across`` and ``up`` say what the axes are. Every x is above 0.
    """
    xs = sorted({x for points in lines.values() for x, _ in points})
    top = _round_up(max(y for points in lines.values() for _, y in points))
    low, high = math.log10(xs[0]), math.log10(xs[-1])
    inner_width, inner_height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log10(x) - low) / ((high - low) or 1)
        return _LEFT + share * inner_width, _TOP + (1 - y / top) * inner_height

    parts = [_text(_LEFT, 22, title, weight="bold")]
    for step in range(5):
        value = top * step / 4
        _, y = place(xs[0], value)
        parts += [
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>',
            _text(_LEFT - 6, y + 4, f"{value:g}", anchor="end"),
        ]
    parts += [_text(place(x, 0)[0], HEIGHT - 30, _short(x), anchor="middle") for x in xs]
    parts += [
        _text(_LEFT + inner_width / 2, HEIGHT - 10, across, anchor="middle"),
        f'<g transform="translate(14 {_TOP + inner_height / 2}) rotate(-90)">',
        _text(0, 0, up, anchor="middle"),
        "</g>",
    ]
    for (name, points), colour in zip(lines.items(), _COLOURS, strict=False):
        parts += _line(name, [place(*point) for point in points], colour)
    return svg(WIDTH, HEIGHT, parts)


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    """A whole document, on white, so that it can be read on dark pages too."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" {_FONT}>'
    )
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])


def write(path: Path, document: str) -> None:
    """Write a picture, and its directory if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document)


def _line(name: str, points: Points, colour: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points),
        _text(points[-1][0] + 8, points[-1][1] + 4, name, colour=colour),
    ]


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "", colour: str = "#222"
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{bold}>'
        f"{escape(text)}</text>"
    )


def _round_up(value: float) -> float:
    """The next number above it of 1, 2, 4 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 8, 10) if value <= power * step)


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
