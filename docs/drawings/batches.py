"""The drawings of what happens in time: a micro-batch, its tasks, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from docs.drawings.shapes import GREY, Drawing, Kind
from orbitmq.spark.source.planning import QueueRange, TaskLimits, pack

LIVES: Final = ("broker", "source", "Spark", "checkpoint", "tasks", "sink")
_STEPS: Final = (
    ("Spark", "source", "what is there after offset 100?"),
    ("source", "broker", "ends of queues? the group has come to 100"),
    ("source", "Spark", "250"),
    ("Spark", "checkpoint", "batch 7 reads 100 to 250"),
    ("Spark", "tasks", "a range of offsets each"),
    ("tasks", "broker", "pull what the range has"),
    ("tasks", "sink", "rows"),
    ("Spark", "checkpoint", "batch 7 is done"),
    ("Spark", "source", "what is there after offset 250?"),
    ("source", "broker", "the group has come to 250; no news? wait for some"),
)


def micro_batch() -> Drawing:
    """Who says what to whom."""
    drawing = Drawing(800, 470, "The life of a micro-batch")
    places: dict[str, float] = {}
    kinds: dict[str, Kind] = {"broker": "broker", "checkpoint": "kept", "sink": "broker"}
    for number, name in enumerate(LIVES):
        x = places[name] = 62.0 + 135 * number
        drawing.box(x - 54, 8, 108, 30, name, kind=kinds.get(name, "spark"))
        drawing.line((x, 38), (x, 462), dashed=True)
    for number, (start, end, words) in enumerate(_STEPS):
        y = 78 + 41 * number
        drawing.arrow((places[start], y), (places[end], y))
        left = min(places[start], places[end])
        drawing.number(left + 16, y - 14, str(number + 1))
        drawing.words(left + 32, y - 9, words, over_lines=True)
    return drawing


def tasks() -> Drawing:
    """Queues packed into tasks as the planner packs them, kept whole and split."""
    rows = {0: 120_000, 1: 30_000, 2: 20_000, 3: 20_000, 4: 10_000}
    ranges = [QueueRange("flights", "broker-a", number, "", 0, n) for number, n in rows.items()]
    drawing = Drawing(800, 330, "Queues packed into tasks")
    drawing.words(8, 20, "five queues, 200,000 offsets to read, maxTasks=3", bold=True)
    for number, size in rows.items():
        _bar(drawing, 64, 34 + 24 * number, [(f"{size // 1000}k", size, number)])
        drawing.words(8, 50 + 24 * number, f"queue {number}")
    for number, (words, limits) in enumerate(
        (
            ("a stream: queues stay whole, and in order", TaskLimits(most=3)),
            (
                "a batch, or splitQueues=true: a long queue is shared",
                TaskLimits(most=3, split_queues=True),
            ),
        )
    ):
        left = 8 + 400 * number
        drawing.words(left, 192, words, bold=True)
        for place, task in enumerate(pack(ranges, limits)):
            pieces = [
                (f"{item.queue_id}", item.end - item.begin, item.queue_id) for item in task.value
            ]
            drawing.words(left, 220 + 28 * place, f"task {place + 1}")
            _bar(drawing, left + 56, 204 + 28 * place, pieces)
    drawing.words(
        8,
        308,
        "A further task costs a batch about 4 ms, so small batches have one task, and one more for"
        " each 10,000 offsets.",
        colour=GREY,
    )
    return drawing


def _bar(drawing: Drawing, x: float, y: float, pieces: Sequence[tuple[str, int, int]]) -> None:
    """Pieces in a row, as long as they have rows, in the colours of their queues."""
    kinds: tuple[Kind, ...] = ("broker", "spark", "yours", "kept", "plain")
    for words, rows, queue in pieces:
        width = rows / 1000 * 2.6
        drawing.box(x, y, width, 22, words, kind=kinds[queue])
        x += width


def lag() -> Drawing:
    """What of a queue is read, being read, and waiting."""
    drawing = Drawing(800, 118, "The lag of a stream")
    pieces: tuple[tuple[str, float, Kind], ...] = (
        ("read: 1,280,000 messages", 330, "kept"),
        ("this batch: 100,000", 150, "spark"),
        ("the lag: 720,000 messages", 240, "broker"),
    )
    x = 40.0
    for words, width, kind in pieces:
        drawing.box(x, 14, width, 34, words, kind=kind)
        x += width
    drawing.arrow((522, 82), (522, 50), colour=GREY)
    drawing.words(516, 98, "the oldest that waits: 8.1 s since it was stored", anchor="middle")
    drawing.arrow((x, 82), (x, 50), colour=GREY)
    drawing.words(x, 98, "the end", anchor="middle")
    drawing.arrow((40, 82), (40, 50), colour=GREY)
    drawing.words(8, 98, "first message of all queues")
    return drawing


def guarantees() -> Drawing:
    """What is done in which order, and what each crash leaves."""
    drawing = Drawing(800, 452, "Crashes, and what they leave")
    rows: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
        (
            "at_least_once",
            ("rows are sent|and acknowledged", "the task|has succeeded", "Spark notes:|batch done"),
            (
                "what was acknowledged before is there twice",
                "all of the batch is there twice",
            ),
        ),
        (
            "idempotent",
            (
                "a note: batch 7,|queues end at 100",
                "rows are sent|and acknowledged",
                "the task|has succeeded",
                "Spark notes:|batch done",
            ),
            (
                "nothing was sent before: once",
                "the task reads what came since the note, and sends what is missing: once",
                "the same, and nothing is missing: once",
            ),
        ),
        (
            "exactly_once",
            (
                "staged on brokers:|nobody gets them",
                "the driver stores:|these count",
                "they are|delivered",
                "Spark notes:|batch done",
            ),
            (
                "what is staged is dropped, all is sent anew: once",
                "the decision is found, what is missing is delivered, and nothing staged: once",
                "the same, and nothing is missing: once",
            ),
        ),
    )
    drawing.crash(14, 18)
    drawing.words(
        28, 22, "the task, the executor or the driver is killed; Spark runs the batch again"
    )
    top = 34.0
    for name, steps, ends in rows:
        drawing.words(8, top + 36, name, bold=True)
        x, width = 116.0, 132.0
        gap = (800 - 8 - x - 4 * width) / 3
        for number, step in enumerate(steps):
            kind: Kind = "spark" if "Spark" in step or "task" in step else "broker"
            box = drawing.box(x, top + 8, width, 50, kind=kind)
            drawing.words(x + width / 2, top + 29, *step.split("|"), anchor="middle")
            if number < len(steps) - 1:
                drawing.arrow(box.right, (x + width + gap, top + 33))
                drawing.crash(x + width + gap / 2, top + 33, "abc"[number])
            x += width + gap
        for number, end in enumerate(ends):
            drawing.words(116, top + 80 + 18 * number, "abc"[number], bold=True, colour="#b32424")
            drawing.words(134, top + 80 + 18 * number, end)
        top += 84 + 18 * len(ends) + 14
    return drawing
