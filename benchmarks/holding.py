"""What it costs to hold queues without a message in them, and to be a consumer at all.

    python -m benchmarks.holding queues NAME_SERVER TOPIC GROUP COUNT SECONDS
    python -m benchmarks.holding idle NAME_SERVER TOPIC GROUP COUNT SECONDS

``queues`` has a push consumer take all COUNT queues of the topic, and prints the seconds until it
pulls them all, the milliseconds of a rebalance that changes nothing, the seconds until a second
consumer pulls its half, and, of SECONDS with all queues held, the share of a processor (0 of no
seconds) and the kilobytes of memory a queue. ``idle`` prints the megabytes of a process with one
consumer, and the kilobytes that each of COUNT more takes. The same work, measured in the same way,
as ``java/Holding.java``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from orbitmq import PushConsumer
from orbitmq.client.loop import loop_thread

STEADY_AFTER_SECONDS = 12.0
"""By then the offsets are saved regularly, too."""
REPEATED = 20


def consumer_of(name_server: str, topic: str, group: str) -> PushConsumer:
    """A push consumer, not started."""
    consumer = PushConsumer(group, name_server=name_server, listener=lambda _: None)
    consumer.subscribe(topic)
    return consumer


def pulls(consumer: PushConsumer, topic: str) -> int:
    """How many queues of the topic it pulls."""
    tasks = list(consumer._core.tasks.values())
    return sum(task.queue.topic == topic and task.next_offset >= 0 for task in tasks)


def seconds_until(condition: Callable[[], bool]) -> float:
    """How long it takes until the condition holds."""
    began = time.perf_counter()
    while not condition():
        time.sleep(0.002)
    return time.perf_counter() - began


def milliseconds_of_rebalance(consumer: PushConsumer) -> float:
    """The median of some that change nothing."""
    took = []
    for _ in range(REPEATED):
        # While one is under way, and another waits, a third has nothing to do.
        loop_thread().run(consumer._core._rebalance.settled())
        began = time.perf_counter()
        loop_thread().run(consumer._core.rebalance())
        took.append(time.perf_counter() - began)
    return median(took) * 1000


def anonymous_bytes() -> int:
    """RssAnon of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise OSError("this system does not tell RssAnon")


def queues(name_server: str, topic: str, group: str, count: int, seconds: float) -> list[float]:
    """Take all queues, hold them, give up half."""
    consumer, second = (consumer_of(name_server, topic, group) for _ in range(2))
    memory = anonymous_bytes()
    began = time.perf_counter()
    consumer.start()
    seconds_until(lambda: pulls(consumer, topic) == count)
    first = time.perf_counter() - began
    rebalance = milliseconds_of_rebalance(consumer)
    busy = 0.0
    if seconds:
        time.sleep(STEADY_AFTER_SECONDS)
        busy, since = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        busy = (time.process_time() - busy) / (time.perf_counter() - since)
    memory = anonymous_bytes() - memory
    began = time.perf_counter()
    second.start()
    half = count // 2
    seconds_until(
        lambda: (
            pulls(second, topic) >= half and pulls(second, topic) + pulls(consumer, topic) == count
        )
    )
    joined = time.perf_counter() - began
    for each in (second, consumer):
        each.shutdown()
    return [first, rebalance, joined, busy * 100, memory / 1000 / count]


def idle(name_server: str, topic: str, group: str, count: int, seconds: float) -> list[float]:
    """One consumer, then many, each with a connection and a group of its own."""
    consumers: list[PushConsumer] = []
    sizes = []
    for more in (1, count):
        for _ in range(more):
            consumer = consumer_of(name_server, topic, f"{group}-{len(consumers)}")
            consumer.start()
            consumers.append(consumer)
        seconds_until(lambda: all(pulls(consumer, topic) for consumer in consumers))
        time.sleep(seconds)
        sizes.append(anonymous_bytes())
    return [sizes[0] / 1e6, (sizes[1] - sizes[0]) / 1000 / count]


if __name__ == "__main__":
    measure, name_server, topic, group, count, seconds = sys.argv[1:]
    measured = {"queues": queues, "idle": idle}[measure]
    print("@@", *measured(name_server, topic, group, int(count), float(seconds)), flush=True)
    os._exit(0)  # the consumers of ``idle`` need no good-bye
