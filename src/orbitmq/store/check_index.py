"""Holding the key index against the log: every slot and chain, every entry, every key."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.findings import Findings, Problem
from orbitmq.store.index_file import IndexFile, IndexShape
from orbitmq.store.index_keys import message_hashes
from orbitmq.store.index_recovery import header_damage, index_paths
from orbitmq.wire.properties import TAGS, find_property
from orbitmq.wire.record import TRANSACTION_ROLLBACK, RecordInfo, transaction_type

_NONE: Final = 2**63 - 1


class IndexCheck:
    """The index files under ``directory``, of one shape; entries and records go side by side."""

    def __init__(
        self, directory: Path, shape: IndexShape, log_min: int, findings: Findings
    ) -> None:
        self._log_min = log_min
        self._directory = directory
        self._findings = findings
        self._shape = shape
        self._files: list[IndexFile] = []
        self._missing = (0, 0, 0)
        for path in index_paths(directory):
            self._open(path)
        self._entries = self._all_entries()
        self._next = next(self._entries, None)
        if not self._files:
            findings.note("there is no key index: a broker of OrbitMQ builds it when it starts")

    def _open(self, path: Path) -> None:
        size = path.stat().st_size
        if size != self._shape.size:
            self._problem(path, 0, f"has {size} bytes, not {self._shape.size}")
            return
        file = IndexFile(FILE_OPS, path, self._shape)
        end = self._files[-1].header.end_offset if self._files else 0
        damage = header_damage(file, end, _NONE)
        if damage:
            self._problem(path, 0, damage)
            file.close()
        else:
            self._files.append(file)

    def _all_entries(self) -> Iterator[tuple[int, int, Path, int]]:
        """(physical offset, hash, file, number) of every entry; chains are looked at on the way."""
        for file in self._files:
            slots = array("i", bytes(4 * self._shape.slots))
            entries = file.entries(1, file.header.index_count)
            for number, (key_hash, offset, seconds, previous) in enumerate(entries, 1):
                if key_hash < 0 or seconds < 0:
                    self._problem(file.path, number, "the entry's hash or time is negative")
                    continue
                slot = key_hash % self._shape.slots
                if previous != slots[slot]:
                    what = f"the entry follows {previous} in its chain, not {slots[slot]}"
                    self._problem(file.path, number, what)
                slots[slot] = number
                yield offset, key_hash, file.path, number
            self._check_slots(file, slots)

    def _check_slots(self, file: IndexFile, slots: array[int]) -> None:
        for slot, number in file.slots():
            if number != slots[slot]:
                what = f"slot {slot} has entry {number}, the newest of its keys is {slots[slot]}"
                self._problem(file.path, number, what)
            slots[slot] = 0
        for slot, number in enumerate(slots):
            if number:
                self._problem(file.path, number, f"slot {slot} is empty, and has this entry")

    def see(self, info: RecordInfo) -> None:
        """Take the next record of the log."""
        found = self._hashes_at(info.physical_offset)
        if transaction_type(info.sys_flag) == TRANSACTION_ROLLBACK:
            expected: list[int] = []
        else:
            expected = message_hashes(info.topic, info.properties)
        others = found.difference(expected)
        if others:
            self._problem(
                self._directory, info.physical_offset,
                f"{len(others)} entries of keys that the message at this offset does not have",
            )  # fmt: skip
        if find_property(info.properties, TAGS):
            expected = expected[:-1]  # only 5.5 and OrbitMQ have entries for tags
        if self._files and not found.issuperset(expected):
            first, _, count = self._missing
            offset = info.physical_offset
            self._missing = (first if count else offset, offset, count + 1)

    def _hashes_at(self, offset: int) -> set[int]:
        """The hashes of the entries for a record; those before it lead to nothing."""
        hashes: set[int] = set()
        while self._next is not None and self._next[0] <= offset:
            place, key_hash, path, number = self._next
            if place == offset:
                hashes.add(key_hash)
            elif place >= self._log_min:
                what = f"the entry points at {place}, where no message is"
                self._problem(path, number, what)
            self._next = next(self._entries, None)
        return hashes

    def finish(self) -> None:
        """Look at what the log did not lead to."""
        self._hashes_at(_NONE)
        first, last, count = self._missing
        if count:
            what = f"{count} message(s) from there to {last} are not found by all their keys"
            self._problem(self._directory, first, what)

    def _problem(self, path: Path, offset: int, what: str) -> None:
        self._findings.add(Problem("index", path, offset, what))

    def close(self) -> None:
        """Give the files back."""
        for file in self._files:
            file.close()
