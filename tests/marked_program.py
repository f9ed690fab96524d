"""Programs under a test: run, read line by line, stopped or killed, never left.

A program prints lines `@@ kind json`; they are collected here as marks. All else that it prints is
kept for the error message. A program ends when its stdin says `stop` or closes, hence also when
the test process is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import deque
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

TAIL_LINES = 40


class ProgramError(AssertionError):
    """A program failed, or did not say in time what was waited for; ends with its output."""


class Mark(NamedTuple):
    """One marked line: what kind it is, and the JSON value behind."""

    kind: str
    value: Any


class MarkedProgram:
    """A command that prints marks and obeys `stop`; it runs while the ``with`` block does.

    ``name`` is for error messages, ``directory`` its working directory. ``environment`` is added to
    this process's; with ``own_session`` all that it starts can be told by its session.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        own_session: bool = False,
    ) -> None:
        self.name = name
        self._environment = {**os.environ, **(environment or {})}
        self._own_session = own_session
        self.marks: list[Mark] = []
        self._command = command
        self._directory = directory
        self._changed = threading.Condition()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._ended = False
        self._dismissed = False
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=self._directory,
            env=self._environment,
            start_new_session=self._own_session,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name=f"read-{self.name}", daemon=True
        )
        self._reader = reader
        reader.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process."""
        if self._process is None:
            raise ProgramError(f"{self.name} has not been started")
        return self._process

    def note(self, mark: Mark) -> None:
        """Takes in one more mark, on the thread that reads them."""
        self.marks.append(mark)

    def values(self, kind: str) -> list[Any]:
        """The values of all marks of one kind so far."""
        return [mark.value for mark in list(self.marks) if mark.kind == kind]

    def wait_for(self, kind: str, timeout: float = PATIENCE_SECONDS) -> Any:
        """The value of the first mark of this kind, waiting up to `timeout` seconds for it."""
        self.wait_until(lambda: bool(self.values(kind)), f"a line @@ {kind}", timeout)
        return self.values(kind)[0]

    def check_running(self) -> None:
        """Fails when the program ended though nobody asked it to.

        Raises:
            ProgramError: it did; with the end of its output.
        """
        if self._ended and not self._dismissed:
            raise ProgramError(f"{self.name} ended by itself\n{self.tail()}")

    def wait_until(
        self, condition: Callable[[], bool], what: str, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Waits until the condition on the marks holds; fails after `timeout` seconds.

        Raises:
            ProgramError: the time is over, or the program ended before.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    reason = "ended" if self._ended else f"took over {timeout:g} s"
                    raise ProgramError(f"{self.name} {reason} before {what}\n{self.tail()}")
                self._changed.wait(left)

    def send_line(self, line: str) -> None:
        """Writes one line to the program's stdin."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.closed:
            stdin.write(line + "\n")
            stdin.flush()

    def stop(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Asks the program to end and waits for it; its last marks are here when this returns.

        Raises:
            ProgramError: it did not end in time, or ended with an exit code other than 0.
        """
        self._dismissed = True
        self.send_line("stop")
        self.wait(timeout)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Waits for the program's own end, as `stop` does."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            text = f"{self.name} did not end within {timeout:g} s\n{self.tail()}"
            raise ProgramError(text) from None
        self._reader.join(timeout)
        if code != 0:
            raise ProgramError(f"{self.name} ended with exit code {code}\n{self.tail()}")

    def close(self, timeout: float = 15) -> None:
        """Ends the program, by force if it does not go when its stdin closes."""
        self._dismissed = True
        process = self.process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(timeout)
        if process.stdout is not None:
            process.stdout.close()

    def kill(self) -> None:
        """Ends the program at once, as a crash would."""
        self._dismissed = True
        self.process.kill()
        self.close()

    def tail(self) -> str:
        """The end of what the program printed unmarked."""
        return "\n".join(["--- output", *self._tail])

    def _read(self, output: IO[str]) -> None:
        for line in output:
            with self._changed:
                if line.startswith("@@ ") and line.endswith("\n"):  # a killed program's may be cut
                    kind, _, value = line[3:].partition(" ")
                    self.note(Mark(kind, json.loads(value)))
                else:
                    self._tail.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
