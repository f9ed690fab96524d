"""What a store costs as it grows: a send and a pull with much stored, and how long a start takes.

The store alone, in this process, without a network. A start is measured after a clean end, after
a SIGKILL, and where nothing but the log is left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.results import Result
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.ids import host_bytes
from orbitmq.wire.record import Draft

SIZES = (10_000, 1_000_000, 30_000_000)
TOPIC = "bench-growth"
QUEUES = 8
TICK = 32
PULL = 32
ROUNDS = 5_000
GIB = 1 << 30
HOST = host_bytes("127.0.0.1", 10911)
NO_CLEANING = StoreConfig(disk_clean_forcibly_ratio=100, disk_warning_ratio=100)


def growth_figures(largest: int = SIZES[-1]) -> Iterator[Result]:
    """Microseconds a message at each number stored, then seconds a start."""
    directory = Path(tempfile.mkdtemp(prefix="orbitmq-growth-"))
    try:
        with _open(directory) as store:
            stored = 0
            for size in [size for size in SIZES if size <= largest]:
                stored += _fill(store, size - stored)
                await_index(store)
                yield Result(f"send, {size:,} stored", "us", _cost_of_sends(store))
                stored += ROUNDS * TICK
                for name, recent in (("newest", True), ("anywhere", False)):
                    cost = _cost_of_pulls(store, recent=recent)
                    yield Result(f"pull 32, {name}, {size:,} stored", "us", cost)
            gib = store.max_physical_offset / GIB
        yield from _starts(directory, gib)
    finally:
        shutil.rmtree(directory)


def _starts(directory: Path, gib: float) -> Iterator[Result]:
    yield Result(f"start after a clean end, {gib:.1f} GiB", "s", _start(directory))
    _kill_a_writer(directory)
    yield Result(f"start after SIGKILL, {gib:.1f} GiB", "s", _start(directory))
    (directory / "checkpoint").unlink()
    shutil.rmtree(directory / "consumequeue")
    seconds = _start(directory)
    yield Result("start with the log alone, of one GiB", "s", seconds / gib)


@contextmanager
def _open(directory: Path) -> Iterator[MessageStore]:
    store = MessageStore.open(directory, NO_CLEANING)
    try:
        yield store
    finally:
        store.close()


def _draft(number: int) -> Draft:
    return Draft(TOPIC, number % QUEUES, bytes(100), b"", 0, 0, 0, 1, HOST, HOST)


def _fill(store: MessageStore, count: int) -> int:
    """Store at least ``count`` messages, in large ticks; how many."""
    done = 0
    while done < count:
        for number in range(1000):
            store.append(_draft(number))
        store.write()
        done += 1000
    return done


def await_index(store: MessageStore) -> None:
    """Wait until the key index has read what was filled in faster than it could take it."""
    index = store.key_index
    while index is not None and index.position < store.max_physical_offset:
        time.sleep(0.05)


def _cost_of_sends(store: MessageStore) -> float:
    """Microseconds a message, in ticks of 32."""
    drafts = [_draft(number) for number in range(ROUNDS * TICK)]
    begin = time.perf_counter()
    for tick in range(ROUNDS):
        for draft in drafts[tick * TICK : (tick + 1) * TICK]:
            store.append(draft)
        store.write()
    return (time.perf_counter() - begin) * 1e6 / (ROUNDS * TICK)


def _cost_of_pulls(store: MessageStore, *, recent: bool) -> float:
    """Microseconds a pull of 32 messages: of the newest, or anywhere in the queue."""
    end = store.max_offset(TOPIC, 0) - PULL
    low = max(0, end - 1000) if recent else 0
    rng = random.Random(1)
    offsets = [rng.randint(low, end) for _ in range(ROUNDS)]
    begin = time.perf_counter()
    for offset in offsets:
        store.get_messages(TOPIC, 0, offset, PULL, 1 << 20)
    return (time.perf_counter() - begin) * 1e6 / ROUNDS


def _start(directory: Path) -> float:
    begin = time.perf_counter()
    store = MessageStore.open(directory, NO_CLEANING)
    seconds = time.perf_counter() - begin
    store.close()
    return seconds


def _kill_a_writer(directory: Path) -> None:
    """Let a process store messages until a little after a mark, and kill it."""
    child = os.fork()
    if not child:
        try:
            store = MessageStore.open(directory, NO_CLEANING)
            _fill(store, 100_000)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
