"""Connections that wait for messages, as consumers do: one pull held for each queue."""

from __future__ import annotations

import re

from benchmarks.frames import Template, held_pulls, max_offset_frame
from benchmarks.load import Client

_NEXT = re.compile(rb'"nextBeginOffset":"?(\d+)')
_OPAQUE = re.compile(rb'"opaque":(\d+)')


class Puller(Client):
    """A consumer of some queues of a topic, from their beginnings, ``size`` messages a pull."""

    def __init__(self, address: str, topic: str, queues: range, size: int) -> None:
        super().__init__(address)
        self.topic = topic
        self._pulls: dict[int, Template] = {
            queue: held_pulls(topic, queue, size) for queue in queues
        }
        self._offsets = dict.fromkeys(queues, 0)

    def pull_all(self) -> None:
        """Pull each queue, once."""
        self.sock.sendall(b"".join(pull.fill(0) for pull in self._pulls.values()))

    def hold_all(self) -> None:
        """Pull each queue, and return when all are held: what was asked after them is answered."""
        self.pull_all()
        self.sock.sendall(max_offset_frame(self.topic))
        while not (answers := self.answers()):
            pass
        for answer in answers:
            if _NEXT.search(answer):
                raise RuntimeError(f"a pull of {self.topic} is not held: {answer[:2000]!r}")

    def take(self) -> dict[int, int]:
        """How many messages of which queues one read brings; these queues are pulled again."""
        came: dict[int, int] = {}
        again = []
        for answer in self.answers():
            opaque, found = _OPAQUE.search(answer), _NEXT.search(answer)
            if opaque is None or found is None:
                raise RuntimeError(f"a pull of {self.topic} is refused: {answer[:2000]!r}")
            queue, offset = int(opaque[1]), int(found[1])
            came[queue] = came.get(queue, 0) + offset - self._offsets[queue]
            self._offsets[queue] = offset
            again.append(self._pulls[queue].fill(offset))
        if again:
            self.sock.sendall(b"".join(again))
        return came
