"""The processes of a Spark program, found in /proc: all have the session of the one that began."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """One process, and what it was started as."""

    pid: int
    parent: int
    command: str

    @property
    def is_java(self) -> bool:
        return "org.apache.spark." in self.command

    @property
    def is_executor(self) -> bool:
        """Whether it is an executor's JVM."""
        return "CoarseGrainedExecutorBackend" in self.command


def of_session(session: int) -> dict[int, Process]:
    """The living processes of a session, by pid."""
    found = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it ended just now
            state, parent, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = Process(int(entry.name), int(parent), command)
    return found


def kill_session(session: int) -> None:
    """End all of a session, and what it starts meanwhile."""
    while living := of_session(session):
        kill(living)
        time.sleep(0.01)


def kill(pids: Iterable[int]) -> None:
    """SIGKILL; those that are gone already do no harm."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def owners(ports: Iterable[int], pids: Iterable[int]) -> Iterator[int]:
    """Which of ``pids`` have connections from these local ports of 127.0.0.1."""
    sockets = {f"socket:[{inode}]" for port, inode in _connections() if port in set(ports)}
    for pid in pids:
        with contextlib.suppress(OSError):
            if any(str(fd.readlink()) in sockets for fd in _descriptors(pid)):
                yield pid


def _descriptors(pid: int) -> Iterator[Path]:
    yield from (_PROC / str(pid) / "fd").iterdir()


def _connections() -> Iterator[tuple[int, str]]:
    """Local port and inode of each TCP socket."""
    for line in (_PROC / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        yield int(fields[1].rpartition(":")[2], 16), fields[9]
