"""The pulls that wait for messages: who waits where, and who is to be answered now.

A pull that finds nothing is held until a message that its filter wants arrives in its queue, or
its time is up; then it is carried out once more, without being held again. A state machine: the
time is an argument, and what became ready is collected until the broker takes it, because arrivals
are told while the store writes. Follows PullRequestHoldService.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_RequestT = TypeVar("_RequestT")

TagMatch = Callable[[int], bool]
PropertiesMatch = Callable[[bytes], bool]


class HeldPull(Generic[_RequestT]):
    """One waiting pull.

    It wants what comes at or after ``offset`` of the queue and passes ``match`` by its tags code
    and ``match_properties`` by its stored properties; None lets anything pass. At ``deadline_ms``
    it is answered anyway. ``owner`` is whoever must still be there for the answer to matter,
    ``request`` what to carry out again.
    """

    __slots__ = (
        "deadline_ms", "match", "match_properties", "offset", "owner", "queue_id", "request",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        deadline_ms: int,
        match: TagMatch | None,
        match_properties: PropertiesMatch | None = None,
        owner: Hashable,
        request: _RequestT,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.deadline_ms = deadline_ms
        self.match = match
        self.match_properties = match_properties
        self.owner = owner
        self.request = request


class LongPollTable(Generic[_RequestT]):
    """All held pulls, by queue."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, int], list[HeldPull[_RequestT]]] = {}
        self._ready: list[HeldPull[_RequestT]] = []

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def hold(self, pull: HeldPull[_RequestT]) -> None:
        """Let ``pull`` wait."""
        self._queues.setdefault((pull.topic, pull.queue_id), []).append(pull)

    def message_arrived(
        self,
        topic: str,
        queue_id: int,
        next_offset: int,
        tags_code: int,
        properties: bytes = b"",
    ) -> None:
        """A message of these properties now lies before ``next_offset``: ready who wants it."""
        waiting = self._queues.get((topic, queue_id))
        if waiting is not None:
            self._split(
                (topic, queue_id),
                waiting,
                lambda pull: (
                    next_offset > pull.offset
                    and (pull.match is None or pull.match(tags_code))
                    and (pull.match_properties is None or pull.match_properties(properties))
                ),
            )

    def sweep(self, now_ms: int, max_offset: Callable[[str, int], int]) -> None:
        """Ready the pulls whose time is up, and those behind ``max_offset`` of their queue.

        The second finds what was filtered out on arrival, so that the puller's offset moves on.
        """
        for (topic, queue_id), waiting in list(self._queues.items()):
            end = max_offset(topic, queue_id)
            self._split(
                (topic, queue_id),
                waiting,
                lambda pull, end=end: pull.deadline_ms <= now_ms or end > pull.offset,  # type: ignore[misc]
            )

    def wake(self, topic: str, queue_id: int) -> None:
        """Ready all pulls of a queue, whoever's they are: where they are to pull has changed."""
        waiting = self._queues.pop((topic, queue_id), None)
        if waiting is not None:
            self._ready += waiting

    def drop(self, owner: Hashable) -> None:
        """Forget the pulls of an ``owner`` that is gone."""
        for key, waiting in list(self._queues.items()):
            staying = [pull for pull in waiting if pull.owner != owner]
            self._keep(key, staying)
        self._ready = [pull for pull in self._ready if pull.owner != owner]

    def take_ready(self) -> list[HeldPull[_RequestT]]:
        """The pulls to carry out now; they are no longer held."""
        ready, self._ready = self._ready, []
        return ready

    def _split(
        self,
        key: tuple[str, int],
        waiting: list[HeldPull[_RequestT]],
        is_ready: Callable[[HeldPull[_RequestT]], bool],
    ) -> None:
        staying: list[HeldPull[_RequestT]] = []
        for pull in waiting:
            (self._ready if is_ready(pull) else staying).append(pull)
        self._keep(key, staying)

    def _keep(self, key: tuple[str, int], staying: list[HeldPull[_RequestT]]) -> None:
        if staying:
            self._queues[key] = staying
        else:
            del self._queues[key]
