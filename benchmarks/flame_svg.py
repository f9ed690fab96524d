"""Flame graphs as SVG: what calls what, as wide as the time that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from benchmarks.plots import svg

WIDTH = 1200
_ROW, _TOP, _MARGIN = 17, 44, 10
_NARROWEST = 0.6
_LETTER = 6.4
_COLOURS = {
    "net": "#9cc3e6",
    "wire": "#a9d8a4",
    "broker": "#f6c177",
    "store": "#ec9f9f",
    "loop": "#d5d5d5",
}
_OTHER = "#e3d5ee"

Stack = tuple[str, ...]


@dataclass
class _Frame:
    """A function called along one way, and the time spent in it."""

    name: str
    time: float = 0.0
    calls: dict[str, _Frame] = field(default_factory=dict)

    def depth(self) -> int:
        return 1 + max((call.depth() for call in self.calls.values()), default=0)


def flame_graph(title: str, stacks: Mapping[Stack, float]) -> str:
    """An SVG of these stacks, outermost first, with the time each took; below is who calls.

    A name is ``layer.module:function``; the layer gives the colour. The whole width is the sum of
    the times; the share of each is told where the pointer rests.
    """
    root = _Frame("all")
    for stack, time in stacks.items():
        root.time += time
        frame = root
        for name in stack:
            frame = frame.calls.setdefault(name, _Frame(name))
            frame.time += time
    height = _TOP + _ROW * root.depth() + _MARGIN
    parts = [f'<text x="{_MARGIN}" y="24" font-weight="bold">{escape(title)}</text>']
    if root.time > 0:
        scale = (WIDTH - 2 * _MARGIN) / root.time
        _draw(root, _MARGIN, height - _MARGIN - _ROW, scale, root.time, parts)
    return svg(WIDTH, height, parts)


def _draw(
    frame: _Frame, left: float, top: float, scale: float, whole: float, parts: list[str]
) -> None:
    width = frame.time * scale
    if width < _NARROWEST:
        return
    layer = frame.name.split(":")[0].split(".")[0]
    share = f"{escape(frame.name)}: {frame.time / whole:.1%}"
    room = int((width - 4) / _LETTER)
    label = frame.name if len(frame.name) <= room else frame.name.rpartition(":")[2][:room]
    parts.append(
        f'<g><title>{share}</title><rect x="{left:.1f}" y="{top}" width="{width - 0.4:.1f}" '
        f'height="{_ROW - 1}" fill="{_COLOURS.get(layer, _OTHER)}"/>'
        + (f'<text x="{left + 3:.1f}" y="{top + 12}">{escape(label)}</text>' if room > 2 else "")
        + "</g>"
    )
    for call in sorted(frame.calls.values(), key=lambda call: call.name):
        _draw(call, left, top - _ROW, scale, whole, parts)
        left += call.time * scale
