"""A streaming query's progress for people: a bar in a terminal, or in a notebook."""

from __future__ import annotations

import html
import shutil
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeAlias

from orbitmq.spark.progress.lag import Lag
from orbitmq.spark.progress.listener import QueryProgress, query_progress, shown_lag
from orbitmq.spark.source.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

INTERVAL_SECONDS: Final = 0.5
"""How often the query is asked."""

_BAR: Final = 24
_WIDTH: Final = 100


class Standing(NamedTuple):
    """How far a query is: ``done`` of ``total`` messages since its progress is being shown.

    ``total`` grows as messages arrive; it is None for a query that reads nothing of ours.
    """

    name: str
    done: int
    total: int | None
    rate: float
    lag: Lag | None


def show_progress(
    query: StreamingQuery,
    *,
    background: bool | None = None,
    file: TextIO | None = None,
    interval: float = INTERVAL_SECONDS,
) -> None:
    """Show how far ``query`` is until it ends: a progress bar in a terminal or a notebook.

    Shown are the messages read of those there are, the rate and the lag. In a terminal this waits
    for the query as ``query.awaitTermination()`` does, and raises what that raises; Ctrl-C ends the
    showing, not the query. In a notebook it returns at once and the bar goes on below the cell;
    ``background`` chooses otherwise. What is written to a ``file`` (default ``sys.stderr``) that is
    no terminal is a line a batch. ``interval`` is in seconds.
    """
    display = _notebook_display()
    if display is not None and file is None:
        draw = _drawing_in_notebook(display)
    else:
        draw = _drawing_in(file or sys.stderr)
    if background if background is not None else display is not None:
        follower = threading.Thread(
            target=_follow_quietly, args=(query, draw, interval), name="show-progress", daemon=True
        )
        follower.start()
        return
    try:
        _follow(query, draw, interval)
    except KeyboardInterrupt:
        return


class Tracker:
    """Adds up the progress reports of one query."""

    def __init__(self) -> None:
        self._begin: Offsets = {}
        self._rows = 0
        self._batch_id = -1
        self.standing: Standing | None = None

    @property
    def batch_id(self) -> int:
        """The last batch taken in, -1 before the first."""
        return self._batch_id

    def add(self, progress: QueryProgress) -> None:
        """Take a report in, of the batch of the one before or a later one."""
        if progress.batch_id > self._batch_id:
            self._rows += progress.rows
        self._batch_id = progress.batch_id
        for source in progress.sources:
            self._begin = source.begin | self._begin
        done: int = self._rows
        total = None
        if progress.sources:
            begin = self._begin
            done = sum(_moved(begin, source.end) for source in progress.sources)
            total = sum(
                max(_moved(begin, source.latest), _moved(begin, source.end))
                for source in progress.sources
            )
        self.standing = Standing(progress.name, done, total, progress.processed, progress.lag)


def text_bar(standing: Standing, width: int = _WIDTH) -> str:
    """The line a terminal shows, of ``width`` characters at most."""
    if standing.total is None:
        text = f"{standing.name} {standing.done:,} rows"
    else:
        share = standing.done / standing.total if standing.total else 1.0
        filled = int(share * _BAR)
        bar = "█" * filled + "░" * (_BAR - filled)
        text = f"{standing.name} {bar} {int(share * 100):3d}% "
        text += f"{standing.done:,} of {standing.total:,} messages"
    text += f", {standing.rate:,.0f}/s"
    if standing.lag is not None:
        text += f", {shown_lag(standing.lag)}"
    return text if len(text) <= width else text[: width - 1] + "…"


def html_bar(standing: Standing) -> str:
    """What a notebook shows."""
    text = html.escape(text_bar(standing._replace(name=""), 200).strip("█░ "))
    name = html.escape(standing.name)
    value = (
        "" if standing.total is None else f' value="{standing.done}" max="{max(standing.total, 1)}"'
    )
    return f'<div><b>{name}</b> <progress{value} style="width:20em"></progress> {text}</div>'


def _moved(begin: Offsets, end: Offsets) -> int:
    return sum(max(offset - begin.get(queue, offset), 0) for queue, offset in end.items())


class Look(NamedTuple):
    """A look at a query: whether a batch is ``new`` since the last one, and whether it ended."""

    standing: Standing
    new: bool
    last: bool


Draw: TypeAlias = Callable[[Look], None]


def _follow(query: StreamingQuery, draw: Draw, interval: float) -> None:
    tracker = Tracker()
    running = True
    try:
        while running:
            running = not query.awaitTermination(interval)  # type: ignore[arg-type]
            _look(query, tracker, draw, last=not running)
    except BaseException:
        _look(query, tracker, draw, last=True)
        raise


def _follow_quietly(query: StreamingQuery, draw: Draw, interval: float) -> None:
    """As _follow; whoever waits for the query hears of its error."""
    try:
        _follow(query, draw, interval)
    except Exception:  # noqa: BLE001 - the query keeps it: query.exception()
        return


def _look(query: StreamingQuery, tracker: Tracker, draw: Draw, *, last: bool) -> None:
    latest, seen = query.lastProgress, tracker.batch_id
    if latest is not None:
        # Reports are long where there are many queues: look at each but once.
        missed = seen < 0 or latest.batchId > seen + 1
        for report in query.recentProgress if missed else [latest]:
            if report.batchId >= max(seen, tracker.batch_id):
                tracker.add(query_progress(report))
    if tracker.standing is not None:
        draw(Look(tracker.standing, tracker.batch_id > seen, last))


def _drawing_in(file: TextIO) -> Draw:
    if not file.isatty():

        def line(look: Look) -> None:
            if look.new:
                file.write(text_bar(look.standing) + "\n")
                file.flush()

        return line

    def bar(look: Look) -> None:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns - 1
        file.write("\r\x1b[K" + text_bar(look.standing, width) + ("\n" if look.last else ""))
        file.flush()

    return bar


def _drawing_in_notebook(display: Any) -> Draw:
    from IPython.display import HTML

    page: Any = HTML  # IPython's own types leave it out
    # Here, not with the first figures: those come from a thread, which knows no cell.
    handle = display(page(""), display_id=True)

    def bar(look: Look) -> None:
        handle.update(page(html_bar(look.standing)))

    return bar


def _notebook_display() -> Any:
    """IPython's display function where a notebook would show what it is given, else None."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    return display if shell is not None and hasattr(shell, "kernel") else None
