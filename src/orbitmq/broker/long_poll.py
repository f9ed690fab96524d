"""The pulls that wait for messages: who waits where, and who is to be answered now.

A pull that finds nothing is held until a message that its filter wants arrives in its queue, or
its time is up; then it is carried out once more, without being held again. A state machine: the
time is an argument, and what became ready is collected until the broker takes it, because arrivals
are told while the store writes. Follows PullRequestHoldService.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from orbitmq.broker.filtering import EVERYTHING, MessageFilter
from orbitmq.store.appended import Arrival

_RequestT = TypeVar("_RequestT")


class HeldPull(Generic[_RequestT]):
    """One waiting pull.

    It wants what comes at or after ``offset`` of the queue and passes ``wanted``. At
    ``deadline_ms`` it is answered anyway. ``owner`` is whoever must still be there for the answer
    to matter, ``request`` what to carry out again.
    """

    __slots__ = ("deadline_ms", "offset", "owner", "queue_id", "request", "topic", "wanted")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        deadline_ms: int,
        wanted: MessageFilter = EVERYTHING,
        owner: Hashable,
        request: _RequestT,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.wanted = wanted
        self.owner = owner
        self.request = request


_NO_CODE: Final = (None,)

_Pulls: TypeAlias = dict[HeldPull[_RequestT], None]
"""An ordered set."""


class _Queue(Generic[_RequestT]):
    """The pulls that wait at one queue, so that a message finds those that want it."""

    __slots__ = ("_by_code", "_by_test", "_unfiltered")

    def __init__(self) -> None:
        self._unfiltered: _Pulls[_RequestT] = {}
        self._by_code: dict[int | None, _Pulls[_RequestT]] = {}  # None: those that want no code
        self._by_test: dict[Hashable, _Pulls[_RequestT]] = {}

    def __bool__(self) -> bool:
        return bool(self._unfiltered or self._by_code or self._by_test)

    def __iter__(self) -> Iterator[HeldPull[_RequestT]]:
        yield from self._unfiltered
        yield from dict.fromkeys(pull for pulls in self._by_code.values() for pull in pulls)
        for pulls in self._by_test.values():
            yield from pulls

    def wanting(
        self, messages: Sequence[Arrival], properties_at: Callable[[int], bytes]
    ) -> _Pulls[_RequestT]:
        """The pulls that want one of the messages, because it passes their filter."""
        last = messages[-1][0]
        wanting = {pull: None for pull in self._unfiltered if pull.offset < last}
        if self._by_code:
            for code, end in {code: end for end, code, _ in messages}.items():  # the last of each
                for pull in self._by_code.get(code, ()):
                    if pull.offset < end:
                        wanting[pull] = None
        for pulls in self._by_test.values():
            test = next(iter(pulls)).wanted.by_properties
            for end, _, place in reversed(messages):
                if test is None or test(properties_at(place)):
                    wanting |= {pull: None for pull in pulls if pull.offset < end}
                    break
        return wanting

    def add(self, pull: HeldPull[_RequestT]) -> None:
        wanted = pull.wanted
        if wanted.by_properties is not None:
            self._by_test.setdefault(wanted.key, {})[pull] = None
        elif wanted.codes is None:
            self._unfiltered[pull] = None
        else:
            for code in wanted.codes or _NO_CODE:
                self._by_code.setdefault(code, {})[pull] = None

    def remove(self, pull: HeldPull[_RequestT]) -> None:
        wanted = pull.wanted
        if wanted.by_properties is not None:
            _discard(self._by_test, wanted.key, pull)
        elif wanted.codes is None:
            del self._unfiltered[pull]
        else:
            for code in wanted.codes or _NO_CODE:
                _discard(self._by_code, code, pull)


class LongPollTable(Generic[_RequestT]):
    """All held pulls, by queue and by owner.

    A message costs those of its queue that want it and one look at each test by properties, which
    ``properties_at`` reads from the log; a lost owner costs what it holds.
    """

    def __init__(self, properties_at: Callable[[int], bytes]) -> None:
        self._properties_at = properties_at
        self._queues: dict[tuple[str, int], _Queue[_RequestT]] = {}
        self._owners: dict[Hashable, _Pulls[_RequestT]] = {}
        self._ready: list[HeldPull[_RequestT]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def held_for(self, owner: Hashable) -> int:
        """How many pulls of an owner wait."""
        return len(self._owners.get(owner, ()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def hold(self, pull: HeldPull[_RequestT]) -> None:
        """Let ``pull`` wait."""
        key = pull.topic, pull.queue_id
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        queue.add(pull)
        self._owners.setdefault(pull.owner, {})[pull] = None
        self._count += 1

    def arrived(self, topic: str, queue_id: int, messages: Iterable[Arrival]) -> None:
        """These messages, one at least, now lie in a queue: ready who wants one of them."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            self._make_ready(queue.wanting(list(messages), self._properties_at))

    def sweep(self, now_ms: int, max_offset: Callable[[str, int], int]) -> None:
        """Ready the pulls whose time is up, and those behind ``max_offset`` of their queue.

        The second finds what was filtered out on arrival, so that the puller's offset moves on.
        """
        ready: list[HeldPull[_RequestT]] = []
        for key, queue in self._queues.items():
            end = max_offset(*key)
            ready += (pull for pull in queue if pull.deadline_ms <= now_ms or end > pull.offset)
        self._make_ready(ready)

    def wake(self, topic: str, queue_id: int) -> None:
        """Ready all pulls of a queue, whoever's they are: where they are to pull has changed."""
        self._make_ready(list(self._queues.get((topic, queue_id), ())))

    def drop(self, owner: Hashable) -> None:
        """Forget the pulls of an ``owner`` that is gone."""
        for pull in list(self._owners.get(owner, ())):
            self._let_go(pull)
        if self._ready:
            self._ready = [pull for pull in self._ready if pull.owner != owner]

    def take_ready(self) -> list[HeldPull[_RequestT]]:
        """The pulls to carry out now; they are no longer held."""
        ready, self._ready = self._ready, []
        return ready

    def _make_ready(self, pulls: Collection[HeldPull[_RequestT]]) -> None:
        for pull in pulls:
            self._let_go(pull)
        self._ready += pulls

    def _let_go(self, pull: HeldPull[_RequestT]) -> None:
        """Hold ``pull`` no longer."""
        self._count -= 1
        _discard(self._owners, pull.owner, pull)
        key = pull.topic, pull.queue_id
        queue = self._queues[key]
        queue.remove(pull)
        if not queue:
            del self._queues[key]


_KeyT = TypeVar("_KeyT")


def _discard(sets: dict[_KeyT, _Pulls[_RequestT]], key: _KeyT, pull: HeldPull[_RequestT]) -> None:
    """Take ``pull`` out of the set at ``key``; a set that is empty goes."""
    pulls = sets[key]
    del pulls[pull]
    if not pulls:
        del sets[key]
