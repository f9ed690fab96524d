"""A table of settings by name, with the version that tells its states apart, and what changed.

Topics and consumer groups are such tables. Each change is kept in ``changes`` until it is written
down (saved.py): where it leads, and from which version, so that a change is made again only to the
state it was made to.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from orbitmq import codes
from orbitmq.errors import BrokerError
from orbitmq.wire.bodies import Body, DataVersion

_ConfigT = TypeVar("_ConfigT")


MAX_ENTRY_SIZE: Final = 65_536
"""How long an entry may be as JSON, bytes: strangers' names and attributes are kept for good."""
_STRETCH: Final = 200
"""How many entries of a list are looked at or changed at once, which takes 2 ms."""


def check_size(name: str, entry: Body) -> None:
    """Raise BrokerError for an entry longer than a table is to hold."""
    size = len(entry.encode())
    if size > MAX_ENTRY_SIZE:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"{name} would take {size} bytes, {MAX_ENTRY_SIZE} is the most: give it fewer or "
            "shorter attributes",
        )


class TableChange(Body, frozen=True):
    """One change: ``name`` now has ``value``, None that it is gone; from a version to the next."""

    name: str
    before: DataVersion
    after: DataVersion
    value: Any = None


class ConfigTable(Generic[_ConfigT]):
    """``entries`` by name; ``version`` is new with each change, made at the time ``now_ms`` gives.

    ``changed`` says that the table differs from its file, ``changes`` what is in no journal yet.
    There is room for ``most`` entries, as the setting ``limit`` says; saved ones are taken all.
    """

    limit = ""

    def __init__(
        self,
        entries: dict[str, _ConfigT],
        now_ms: Callable[[], int],
        change: type[TableChange],
    ) -> None:
        self.entries = entries
        self.most = 1 << 31
        self.version = DataVersion(timestamp=now_ms())
        self.changed = False
        self.changes: list[TableChange] = []
        self._sorted: list[str] | None = None  # the names, once they were asked for
        self._now_ms = now_ms
        self._change = change

    def load(self, entries: dict[str, _ConfigT], version: DataVersion) -> None:
        """Take in what was saved; it goes before what is built in."""
        self.entries.update((name, self.mended(entry)) for name, entry in entries.items())
        self._sorted = None
        self.version = version

    def page(self, version: DataVersion | None, first: int, count: int) -> dict[str, _ConfigT]:
        """Up to ``count`` entries by name, from the ``first`` on.

        From 0 on when that was counted in another ``version`` than this
        (TopicConfigManager.subTopicConfigTable).
        """
        first = max(0, first) if version == self.version else 0
        if self._sorted is None:
            self._sorted = sorted(self.entries)
        names = self._sorted[first : first + max(0, count)]
        return {name: self.entries[name] for name in names}

    def replay(self, change: TableChange) -> bool:
        """Make a change again that was written down; False: it was made to another state."""
        if change.before != self.version:
            return False
        if change.value is None:
            self.entries.pop(change.name, None)
        else:
            self.entries[change.name] = self.mended(change.value)
        self._sorted = None
        self.version = change.after
        return True

    def mended(self, entry: _ConfigT) -> _ConfigT:
        """An entry as it may be, of one that was saved when other rules held."""
        return entry

    def update(self, entries: Iterable[_ConfigT]) -> None:
        """Create or change entries as an operator wants them, all or none.

        Their attributes are changes of those that are there, with a sign before each name. Raises
        IllegalNameError, or BrokerError for what cannot be.
        """
        for _ in self.updating(entries):
            pass

    def updating(self, entries: Iterable[_ConfigT]) -> Iterator[None]:
        """As :meth:`update`, which is done at the end; between, others may have their turn."""
        updated: dict[str, _ConfigT] = {}
        for number, entry in enumerate(entries):
            if number and not number % _STRETCH:
                yield
            new = self._updated(entry)
            updated[self._name_of(new)] = new
        self.check_room(updated)
        new_ones = list(updated.values())
        for start in range(0, len(new_ones), _STRETCH):
            if start:
                yield
            self._tell([new for new in new_ones[start : start + _STRETCH] if self._put(new)])

    def check_room(self, names: Iterable[str]) -> None:
        """Raise BrokerError when there is no room for ``names`` besides what is there."""
        new = sum(name not in self.entries for name in set(names))
        if new and len(self.entries) + new > self.most:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"there are {len(self.entries)} already, and {self.most} is the most ({self.limit})"
                ": delete some that are not used, or raise the limit",
            )

    def _name_of(self, entry: _ConfigT) -> str:
        raise NotImplementedError

    def _updated(self, entry: _ConfigT) -> _ConfigT:
        """An entry as it is after an operator's change. Raises IllegalNameError, BrokerError."""
        raise NotImplementedError

    def _put(self, entry: _ConfigT) -> bool:
        """Whether this changes anything."""
        raise NotImplementedError

    def _tell(self, changed: list[_ConfigT]) -> None:
        """Have those know who want to."""

    def _set(self, name: str, entry: _ConfigT) -> None:
        if name not in self.entries:
            if len(self.entries) >= self.most:
                self.check_room([name])
            if self._sorted is not None:
                insort(self._sorted, name)
        self.entries[name] = entry
        self._note(name, entry)

    def _drop(self, name: str) -> None:
        del self.entries[name]
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, name)]
        self._note(name, None)

    def _note(self, name: str, entry: _ConfigT | None) -> None:
        before = self.version
        self.version = before.next(self._now_ms())
        self.changes.append(self._change(name, before, self.version, entry))
        self.changed = True
