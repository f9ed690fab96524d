"""Histories of messages, made of a seed."""

from __future__ import annotations

import os
import random
from collections import Counter

from tests.spark.topics import Topic

LONG = "ORBITMQ_LONG" in os.environ
"""Whether there is time for what takes minutes."""
SEED = int(os.environ.get("ORBITMQ_SEED", "1"))
"""Repeats a history that failed."""


class History:
    """What is sent to a topic: bodies of different lengths, some of them alike."""

    def __init__(self, topic: Topic, chance: random.Random) -> None:
        self.topic = topic
        self.sent: Counter[str] = Counter()
        self._chance = chance

    def grow(self, count: int) -> None:
        """Send so many more, to any of the queues."""
        chance = self._chance
        new = [f"{chance.randrange(count)}:{'x' * chance.randrange(100)}" for _ in range(count)]
        self.topic.send(*new, key=None)
        self.sent.update(new)
