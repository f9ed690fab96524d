"""What processes take of the machine, as Linux tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def anonymous_memory(pids: Iterable[int]) -> int:
    """RssAnon of these processes, in bytes: mapped log files do not count."""
    return sum(_status_bytes(pid, "RssAnon") for pid in pids)


def cpu_seconds(pids: Iterable[int]) -> float:
    """The processor time of these processes since they began, user's and system's."""
    return sum(_cpu_ticks(pid) for pid in pids) / _TICKS


def _cpu_ticks(pid: int) -> int:
    fields = _stat(pid)
    if not fields:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[11]) + int(fields[12])


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no {name}")


class ProcessTree:
    """A process and all that come out of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._spent: dict[tuple[int, str], float] = {}

    def cpu_seconds(self) -> float:
        """The processor time of all of them; of those that have ended what was last seen."""
        self._look(self.pid)
        return sum(self._spent.values())

    def _look(self, pid: int) -> None:
        if fields := _stat(pid):
            self._spent[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / _TICKS
        for child in children(pid):
            self._look(child)


def children(pid: int) -> list[int]:
    """The processes that ``pid`` started and that run; none where it has ended."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for words in lists for child in words.split()]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
