"""``orbitmq broker`` with a sampler in it: every millisecond of processor time, who runs.

    python -m benchmarks.sampled_broker FILE [what `orbitmq broker` takes]

SIGUSR2 has it write what it saw to FILE, and begin anew: a stack a line, outermost first, a space,
and the processor time of the broker's thread in nanoseconds, as tools for flame graphs read them.
"""

from __future__ import annotations

import opcode
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from orbitmq import cli

INTERVAL_SECONDS = 0.001
OUTSIDE = "loop:uvloop and kernel"
"""What is not Python code of ours: the loop, and the system calls it makes."""
_PACKAGE = "orbitmq."
_RUNNER = "asyncio.runners"
_BEGIN = opcode.opmap["RESUME"]


class Sampler:
    """Weighs the main thread's stacks by the processor time that passed since the last look."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stacks: Counter[tuple[str, ...]] = Counter()
        self._before = 0

    def start(self) -> None:
        """Begin to look."""
        self._before = time.thread_time_ns()
        signal.signal(signal.SIGPROF, self._look)
        signal.signal(signal.SIGUSR2, self._write)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        now = time.thread_time_ns()
        self._stacks[stack_of(frame)] += now - self._before
        self._before = time.thread_time_ns()

    def _write(self, _number: int, _frame: FrameType | None) -> None:
        lines = [f"{';'.join(stack)} {weight}\n" for stack, weight in self._stacks.items()]
        part = self._file.with_suffix(".part")
        part.write_text("".join(lines))
        part.replace(self._file)
        self._stacks.clear()


def stack_of(frame: FrameType | None) -> tuple[str, ...]:
    """The functions of ours that run, outermost first; what calls them from outside comes first.

    A signal waits for the next instruction of Python: for one that came in C code this is the first
    of whatever function is called next. That one has not begun yet, so it is left out.
    """
    names = []
    if frame is not None and frame.f_code.co_code[frame.f_lasti] == _BEGIN:
        frame = frame.f_back
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        if module == _RUNNER:  # what runs the loop
            break
        if module.startswith(_PACKAGE):
            names.append(f"{module.removeprefix(_PACKAGE)}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return (OUTSIDE, *reversed(names))


def main() -> None:
    """Run the broker, looking at it."""
    Sampler(Path(sys.argv[1])).start()
    try:
        sys.exit(cli.main(["broker", *sys.argv[2:]]))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)  # or it ends the process that ends


if __name__ == "__main__":
    main()
