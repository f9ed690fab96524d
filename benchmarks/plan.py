"""What a load generator is told, and what it tells: one JSON object each."""

from __future__ import annotations

import msgspec

QUEUES = 8


class Plan(msgspec.Struct):
    """What to do with the broker at ``address``.

    ``mode`` is one of :data:`benchmarks.generator.MODES`. ``topic`` names the topic, or with
    ``topics`` above 1 begins the names of so many, each of ``queues`` queues; pulls are of
    ``groups`` groups in turn. ``size`` is the number of messages to fill with, of a batch (0:
    none), of a pull, a second, or of pulls to hold. There are ``connections`` with ``window``
    requests in flight on each, for ``seconds`` after a warm-up of half that time, or until ``most``
    requests are answered (0: no matter how many). ``filled`` messages are there to be pulled, all
    with bodies of ``body`` bytes. ``pids`` are the broker's processes, whose use of the machine
    is measured. ``driver`` is the compiled program that sends and pulls; "": Python does.
    """

    mode: str
    address: str
    topic: str
    size: int = 0
    connections: int = 1
    window: int = 1
    seconds: float = 1.0
    filled: int = 0
    body: int = 100
    most: int = 0
    topics: int = 1
    queues: int = QUEUES
    groups: int = 1
    pids: list[int] = []
    driver: str = ""

    def names(self) -> list[str]:
        """The topics."""
        if self.topics == 1:
            return [self.topic]
        return [f"{self.topic}-{number}" for number in range(self.topics)]

    def targets(self) -> list[tuple[str, int]]:
        """All queues, those of all topics in turn."""
        return [(name, queue) for queue in range(self.queues) for name in self.names()]


class Outcome(msgspec.Struct):
    """How many messages went through in how many seconds.

    ``cpu_seconds`` is what the broker's processes spent of the processors' time meanwhile;
    ``figures`` are what a mode measures besides, as it says.
    """

    messages: int
    seconds: float
    cpu_seconds: float = 0.0
    figures: list[float] = []

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu(self) -> float:
        """Microseconds of the broker's processor time a message."""
        return self.cpu_seconds * 1e6 / max(self.messages, 1)
