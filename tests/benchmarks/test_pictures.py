"""Plots and flame graphs are pictures, and show what they were given."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.flame_svg import flame_graph
from benchmarks.plots import line_plot

SVG = "{http://www.w3.org/2000/svg}"


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(document).iter(f"{SVG}text")]


def test_a_plot_has_its_lines_and_its_axes() -> None:
    plot = line_plot("a < b", "topics", "us", {"send": [(1, 3.5), (1000, 7)], "pull": [(1, 1)]})
    root = ET.fromstring(plot)
    assert len(list(root.iter(f"{SVG}polyline"))) == 2
    assert {"a < b", "topics", "us", "send", "pull", "1", "1k", "0", "8"} <= set(texts(plot))


def test_a_plot_of_one_size() -> None:
    assert "send" in texts(line_plot("one", "topics", "us", {"send": [(10, 0.0)]}))


def test_a_flame_graph_shows_shares() -> None:
    stacks = {("loop:kernel",): 1.0, ("loop:kernel", "broker.sending:Sending.send"): 3.0}
    root = ET.fromstring(flame_graph("sends", stacks))
    titles = {element.text for element in root.iter(f"{SVG}title")}
    assert titles == {
        "all: 100.0%",
        "loop:kernel: 100.0%",
        "broker.sending:Sending.send: 75.0%",
    }


def test_a_flame_graph_of_nothing() -> None:
    assert texts(flame_graph("nothing", {})) == ["nothing"]
