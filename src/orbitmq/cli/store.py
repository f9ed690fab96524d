"""``orbitmq store check | repair | stats DIR``: look at a store directory, and mend it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import StoreError

if TYPE_CHECKING:
    from orbitmq.store.check import Layout
    from orbitmq.store.findings import Findings
    from orbitmq.store.inventory import TopicContent

FOUND: Final = 1
"""Exit code of a check that found problems, and of a repair that was not done or left some."""

_BAR: Final = 40
_BAR_SECONDS: Final = 0.1
_NO: Final = "nothing was changed"
_ABOUT: Final = {
    "check": "look at every record, queue entry, index entry and settings file; change nothing",
    "repair": "make queues and index anew from the log, cut a torn end; says what, then asks",
    "stats": "topics, messages, bytes, times, and how full the index is",
}


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "store", help="look at a store directory, and mend it", allow_abbrev=False
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=type(parser))
    for name, about in _ABOUT.items():
        action = actions.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}. The directory may be of OrbitMQ or of "
            "Apache RocketMQ 4.9 or 5.x; no broker may be using it.",
            epilog="Exit code: 0, all is well or is now; 1, there are problems; 2, it cannot be "
            "done.",
            allow_abbrev=False,
        )
        action.add_argument("directory", type=Path, metavar="DIR", help="the store directory")
        action.add_argument(
            "--max-hash-slot-num", type=int, metavar="N", help="slots of an index file"
        )
        action.add_argument(
            "--max-index-num", type=int, metavar="N", help="entries of an index file"
        )
        if name == "repair":
            action.add_argument("--yes", action="store_true", help="do not ask")
        action.set_defaults(run=_ACTIONS[name], parser=action)


def check(options: argparse.Namespace) -> int:
    """Print what is wrong. Raises StoreError when it cannot be looked at."""
    from orbitmq.store.directory import locked

    with locked(options.directory):
        findings = _looked_through(options.directory, _layout(options))
    _print(findings)
    return FOUND if findings.count else 0


def repair(options: argparse.Namespace) -> int:
    """Say what is to be done, ask, and do it. Raises StoreError when it cannot be."""
    from orbitmq.store.directory import locked
    from orbitmq.store.repair import carry_out, plan_repair

    root = options.directory
    layout = _layout(options)
    with locked(root):
        findings = _looked_through(root, layout)
    _print(findings)
    steps = plan_repair(root, findings)
    if not steps:
        print("there is nothing to repair")
        return 0
    print("\nto be done:")
    for number, step in enumerate(steps, 1):
        print(f"{number:3}. {step.what}")
    if not options.yes and not _agreed():
        print(_NO)
        return FOUND
    with _progress() as on_progress:
        try:
            backups = carry_out(root, layout, steps, on_progress)
        except OSError as error:
            raise StoreError(f"cannot repair {root}: {error}", str(root)) from error
    with locked(root):
        left = _looked_through(root, layout)
    print(f"\ndone; what was replaced is in {backups}")
    _print(left)
    return FOUND if left.count else 0


def stats(options: argparse.Namespace) -> int:
    """Print what is in the directory. Raises StoreError when it cannot be looked at."""
    from orbitmq.store.directory import locked
    from orbitmq.store.inventory import TopicContent, take_inventory

    with locked(options.directory):
        found = take_inventory(options.directory, _layout(options))
    whole = TopicContent("all topics")
    print(f"{'topic':40} {'queues':>7} {'messages':>14} {'bytes':>17}")
    for topic in found.topics:
        whole.queues += topic.queues
        whole.messages += topic.messages
        whole.bytes += topic.bytes
        print(_row(topic))
    print(_row(whole))
    print(f"\ncommit log: {found.log_files} file(s), from physical offset {found.begin_offset}")
    print(f"messages from {_time(found.begin_timestamp)} to {_time(found.end_timestamp)}")
    for file in found.index:
        print(
            f"index {file.name}: {file.entries:,} of {file.room:,} entries "
            f"({file.entries / file.room:.1%}), {file.used_slots:,} of {file.slots:,} slots, "
            f"{_time(file.begin_timestamp)} to {_time(file.end_timestamp)}"
        )
    return 0


def _row(topic: TopicContent) -> str:
    return f"{topic.topic:40} {topic.queues:7,} {topic.messages:14,} {topic.bytes:17,}"


_ACTIONS: Final = {"check": check, "repair": repair, "stats": stats}


def _layout(options: argparse.Namespace) -> Layout:
    from orbitmq.store.check import find_layout
    from orbitmq.store.index_file import IndexShape

    slots, entries = options.max_hash_slot_num, options.max_index_num
    if (slots is None) != (entries is None):
        options.parser.error("--max-hash-slot-num and --max-index-num belong together")
    return find_layout(options.directory, IndexShape(slots, entries) if slots else None)


def _looked_through(root: Path, layout: Layout) -> Findings:
    from orbitmq.store.check import check_store

    with _progress() as on_progress:
        try:
            return check_store(root, layout, on_progress)
        except OSError as error:
            raise StoreError(f"cannot look through {root}: {error}", str(root)) from error


def _print(findings: Findings) -> None:
    for problem in findings.problems:
        print(f"{problem.kind}: {problem}")
    if findings.count > len(findings.problems):
        print(f"... and {findings.count - len(findings.problems)} more")
    for note in findings.notes:
        print(f"note: {note}")
    verdict = f"{findings.count} problem(s)" if findings.count else "no problems"
    print(f"{findings.messages:,} messages up to physical offset {findings.end}: {verdict}")


def _agreed() -> bool:
    try:
        return input("go ahead? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _time(timestamp: int) -> str:
    if not timestamp:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp / 1000))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    shown = 0.0

    def show(what: str, done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _BAR_SECONDS or done >= total:
            shown = now
            ratio = min(done / total, 1.0) if total > 0 else 1.0
            bar = "#" * int(ratio * _BAR)
            sys.stderr.write(f"\r\x1b[K{what:15} [{bar:<{_BAR}}] {ratio:4.0%}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
