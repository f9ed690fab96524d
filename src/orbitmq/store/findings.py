"""What a look through a store directory found."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

_MOST_KEPT: Final = 1_000


class Problem(NamedTuple):
    """One thing that is not as it should be.

    ``kind`` is what it is about: ``log``, ``tail``, ``queue``, ``index``, ``timers``, ``config`` or
    ``checkpoint``. ``offset`` is physical for the log, of a slot of timers its time, else that of
    the entry; ``end`` is where a damaged part ends, 0 where that means nothing. ``topic`` and
    ``queue_id`` name a queue.
    """

    kind: str
    path: Path
    offset: int
    what: str
    end: int = 0
    topic: str = ""
    queue_id: int = -1

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.what}"


class Findings:
    """``problems``, a thousand at most; ``count`` counts all of them.

    ``notes`` are worth knowing, but nothing to repair; ``messages`` is how many records are sound,
    ``end`` where the last of them ends.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.count = 0
        self.messages = 0
        self.end = 0
        self.queues: set[tuple[str, int]] = set()
        self.kinds: set[str] = set()

    def add(self, problem: Problem) -> None:
        """Take a problem in."""
        self.count += 1
        self.kinds.add(problem.kind)
        if problem.queue_id >= 0:
            self.queues.add((problem.topic, problem.queue_id))
        if len(self.problems) < _MOST_KEPT:
            self.problems.append(problem)

    def note(self, text: str) -> None:
        """Take a note."""
        self.notes.append(text)
