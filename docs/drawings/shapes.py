"""What the drawings of the documentation are made of: boxes, arrows and words, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final, Literal, NamedTuple

from benchmarks.plots import svg

Kind = Literal["broker", "spark", "yours", "kept", "lost", "plain"]
Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

FILLS: Final[Mapping[Kind, str]] = {
    "broker": "#fbe0b5",
    "spark": "#cfe3f5",
    "yours": "#cfead0",
    "kept": "#e8e8e8",
    "lost": "#f6caca",
    "plain": "#ffffff",
}
"""What belongs to RocketMQ, to Spark, to the user; what is kept on a disk; what fails."""
INK, GREY, RED = "#222222", "#666666", "#b32424"
LINE: Final = 16
"""From one line of words to the next."""

_HEADS = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    f'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
    for name, colour in (("ink", INK), ("grey", GREY), ("red", RED))
)


class Box(NamedTuple):
    """Where a box is."""

    x: float
    y: float
    width: float
    height: float

    def at(self, across: float, down: float) -> Point:
        """A point of it: 0 is left or top, 1 right or bottom."""
        return self.x + across * self.width, self.y + down * self.height

    @property
    def left(self) -> Point:
        """The middle of its left side."""
        return self.at(0, 0.5)

    @property
    def right(self) -> Point:
        """The middle of its right side."""
        return self.at(1, 0.5)

    @property
    def top(self) -> Point:
        """The middle of its upper side."""
        return self.at(0.5, 0)

    @property
    def bottom(self) -> Point:
        """The middle of its lower side."""
        return self.at(0.5, 1)


class Drawing:
    """A picture of so many pixels; ``title`` is what it is called where it cannot be seen."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._parts = [f"<title>{escape(title)}</title>", f"<defs>{_HEADS}</defs>"]

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, kind: Kind = "plain"
    ) -> Box:
        """A box with words in its middle, those of the first line bold where there are more."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'fill="{FILLS[kind]}" stroke="{GREY}"/>'
        )
        first = y + height / 2 + 4 - (len(lines) - 1) * LINE / 2
        for number, line in enumerate(lines):
            self.words(
                x + width / 2,
                first + number * LINE,
                line,
                anchor="middle",
                bold=number == 0 and len(lines) > 1,
            )
        return Box(x, y, width, height)

    def frame(self, x: float, y: float, width: float, height: float, title: str) -> Box:
        """A dashed frame around others, its title in its upper left corner."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" '
            f'fill="none" stroke="{GREY}" stroke-dasharray="5 4"/>'
        )
        self.words(x + 10, y + 18, title, bold=True)
        return Box(x, y, width, height)

    def words(
        self,
        x: float,
        y: float,
        *lines: str,
        anchor: Anchor = "start",
        bold: bool = False,
        colour: str = INK,
        over_lines: bool = False,
    ) -> None:
        """Words, line below line; with ``over_lines`` on a little white of their own."""
        weight = ' font-weight="bold"' if bold else ""
        if over_lines:
            weight += ' paint-order="stroke" stroke="#ffffff" stroke-width="5"'
        for number, line in enumerate(lines):
            self._parts.append(
                f'<text x="{x:g}" y="{y + number * LINE:g}" fill="{colour}" '
                f'text-anchor="{anchor}"{weight}>{escape(line)}</text>'
            )

    def arrow(self, *points: Point, dashed: bool = False, colour: str = INK) -> None:
        """A line through these points, with a head at the last."""
        name = {INK: "ink", GREY: "grey", RED: "red"}[colour]
        self._line(points, dashed=dashed, colour=colour, head=f' marker-end="url(#{name})"')

    def line(self, *points: Point, dashed: bool = False, colour: str = GREY) -> None:
        """A line without a head."""
        self._line(points, dashed=dashed, colour=colour, head="")

    def crash(self, x: float, y: float, name: str = "") -> None:
        """A red cross, and its name above it."""
        self._parts.append(
            f'<path d="M{x - 6:g} {y - 6:g} L{x + 6:g} {y + 6:g} '
            f'M{x + 6:g} {y - 6:g} L{x - 6:g} {y + 6:g}" stroke="{RED}" stroke-width="3"/>'
        )
        self.words(x, y - 11, name, anchor="middle", bold=True, colour=RED)

    def number(self, x: float, y: float, text: str) -> None:
        """A number in a circle."""
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="10" fill="{INK}"/>')
        self.words(x, y + 4, text, anchor="middle", bold=True, colour="#ffffff")

    def svg(self) -> str:
        """The whole picture."""
        return svg(*self._size, self._parts)

    def _line(self, points: tuple[Point, ...], *, dashed: bool, colour: str, head: str) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        through = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(
            f'<polyline points="{through}" fill="none" stroke="{colour}" '
            f'stroke-width="1.5"{dashes}{head}/>'
        )
