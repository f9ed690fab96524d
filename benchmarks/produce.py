"""Sends messages with our client and prints how many a second, and what one takes of a processor.

    python -m benchmarks.produce blocking|callback|future|asyncio NAME_SERVER TOPIC WIDTH SECONDS

``WIDTH`` is the number of threads that send ``blocking``, one message after another, over one
producer; else the number of messages in flight. Bodies have 100 bytes, each message has a tag and a
key. A third of the time goes into warming up. Prints messages a second, and the microseconds of CPU
time of the whole process for each. The same work, measured in the same way, as
``java/Produce.java``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from orbitmq import AsyncProducer, Message, Producer, SendResult
from orbitmq.producer.sends import SendFuture

GROUP = "bench-producer"
BODY = bytes(100)


def new_message(topic: str) -> Message:
    """What is sent."""
    return Message(topic, BODY, tags="tag", keys="key-0123456789")


def blocking(name_server: str, topic: str, threads: int, seconds: float) -> int:
    """Threads that send one message after another; how many they sent."""
    end = time.perf_counter() + seconds
    sent = [0] * threads

    def send(number: int) -> None:
        while time.perf_counter() < end:
            producer.send(new_message(topic))
            sent[number] += 1

    with Producer(GROUP, name_server=name_server) as producer:
        senders = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    return sum(sent)


def callback(name_server: str, topic: str, width: int, seconds: float) -> int:
    """One thread, as fast as the bound lets it; a callback for each message."""
    arrived = 0

    def count(_: SendResult | None, error: BaseException | None) -> None:
        nonlocal arrived
        if error is not None:
            raise error
        arrived += 1

    end = time.perf_counter() + seconds
    with Producer(GROUP, name_server=name_server, max_in_flight=width) as producer:
        while time.perf_counter() < end:
            producer.send_async(new_message(topic), count)
    return arrived


def future(name_server: str, topic: str, width: int, seconds: float) -> int:
    """One thread, which waits for the oldest of its futures."""
    waiting: deque[SendFuture] = deque()
    sent = 0
    end = time.perf_counter() + seconds
    with Producer(GROUP, name_server=name_server) as producer:
        while time.perf_counter() < end:
            waiting.append(producer.send_async(new_message(topic)))
            sent += 1
            if len(waiting) >= width:
                waiting.popleft().result()
        for each in waiting:
            each.result()
    return sent


def coroutines(name_server: str, topic: str, width: int, seconds: float) -> int:
    """Tasks that send one message after another."""

    async def run() -> int:
        end = time.perf_counter() + seconds

        async def send() -> int:
            sent = 0
            while time.perf_counter() < end:
                await producer.send(new_message(topic))
                sent += 1
            return sent

        async with AsyncProducer(GROUP, name_server=name_server) as producer:
            return sum(await asyncio.gather(*(send() for _ in range(width))))

    return asyncio.run(run())


MODES: dict[str, Callable[[str, str, int, float], int]] = {
    "blocking": blocking,
    "callback": callback,
    "future": future,
    "asyncio": coroutines,
}


def measure(mode: str, name_server: str, topic: str, width: int, seconds: float) -> list[float]:
    """Messages a second, and microseconds of CPU time for each."""
    send = MODES[mode]
    send(name_server, topic, width, seconds / 3)
    began, busy = time.perf_counter(), time.process_time()
    sent = send(name_server, topic, width, seconds)
    busy, took = time.process_time() - busy, time.perf_counter() - began
    return [sent / took, busy / sent * 1e6]


if __name__ == "__main__":
    how, server, name, count, duration = sys.argv[1:]
    print("@@", *measure(how, server, name, int(count), float(duration)))
