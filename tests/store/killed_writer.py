"""A program that has a writer killed again and again, and looks at what is left each time.

``python -m tests.store.killed_writer DIRECTORY TIMES SEED``: the writer is a fork of it, so that a
round takes milliseconds. Prints what it saw; ends with 1 and the reason when a message is missing.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import struct
import sys
import time
from pathlib import Path

from msgspec import structs

from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.message_view import decode_records
from tests.store.support import draft

TOPICS = ("Kept", "Other")
CONFIG = StoreConfig(
    mapped_file_size=16_384,
    consume_queue_units=50,
    flush_interval_ms=5,
    queue_flush_interval_ms=2,
    mark_interval_ms=4,
    mark_bytes=4096,
    flush_mode=FlushMode.ASYNC,
    file_reserved_hours=0,
    delete_when=";".join(map(str, range(24))),
    clean_interval_ms=1,
    delete_log_files_interval_ms=0,
    delete_queue_files_interval_ms=0,
    delete_file_batch_max=1,
    max_hash_slot_num=100,
    max_index_num=1000,
    disk_max_used_ratio=100,
    disk_clean_forcibly_ratio=100,
    disk_warning_ratio=100,
)
KEEPING = structs.replace(CONFIG, file_reserved_hours=72)
"""For who looks at the messages: they shall not go while he does."""
PATIENCE_S = 60
_ACK = struct.Struct(">qq")


def write(directory: Path, acks: int) -> None:
    """Store messages until killed, and tell of those acknowledged; a body is its queue offset."""
    random.seed(os.getpid())
    store = MessageStore.open(directory, CONFIG)
    next_offsets = [store.max_offset(topic, 0) for topic in TOPICS]
    while True:
        for n, topic in enumerate(TOPICS):
            for _ in range(random.randint(1, 5)):
                body = b"%d" % next_offsets[n] + b"x" * random.randint(0, 300)
                place = store.append(draft(body, topic))
                assert place.queue_offset == next_offsets[n]
                next_offsets[n] += 1
        store.write()
        os.write(acks, _ACK.pack(*next_offsets))


def killed_after(directory: Path, seconds: float, *, has_written: bool) -> tuple[int, int]:
    """Let a writer live so long; the queue offsets it had acknowledged all before.

    With ``has_written`` the time begins when it has stored something.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            write(directory, write_end)
        finally:
            os._exit(3)  # only an error ends it
    os.close(write_end)
    if has_written:
        select.select([read_end], [], [], PATIENCE_S)
    acknowledged = b""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([read_end], [], [], left)[0]:
            acknowledged += os.read(read_end, 1 << 16)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("the writer failed: its traceback is above")
    while data := os.read(read_end, 1 << 16):
        acknowledged += data
    os.close(read_end)
    whole = len(acknowledged) - len(acknowledged) % _ACK.size
    return _ACK.unpack_from(acknowledged, whole - _ACK.size) if whole else (0, 0)


def check(directory: Path, acknowledged: list[int]) -> int:
    """Look at every message; how many there are."""
    store = MessageStore.open(directory, KEEPING)
    count = 0
    try:
        for topic, expected in zip(TOPICS, acknowledged, strict=True):
            offset, end = store.min_offset(topic, 0), store.max_offset(topic, 0)
            if end < expected:
                raise SystemExit(f"{topic} ends at {end}, but {expected} were acknowledged")
            while offset < end:
                result = store.get_messages(topic, 0, offset, 100, 1 << 20)
                for view in decode_records(b"".join(result.slices)):
                    if view.queue_offset != offset or view.body.rstrip(b"x") != b"%d" % offset:
                        raise SystemExit(f"{topic} has {view.body!r} at {offset}")
                    offset += 1
                    count += 1
                if not result.count:
                    raise SystemExit(f"{topic} has nothing at {offset}: {result.status}")
    finally:
        store.close()
    return count


def main(directory: Path, times: int, seed: int) -> None:
    logging.disable(logging.CRITICAL)
    rng = random.Random(seed)
    acknowledged = [0, 0]
    seen = 0
    for number in range(times):
        seconds = rng.choice([0.005, 0.02, 0.06]) * rng.random()
        told = killed_after(directory, seconds, has_written=number % 4 == 0)
        acknowledged = [max(pair) for pair in zip(acknowledged, told, strict=True)]
        if number % 10 == 0:
            seen = check(directory, acknowledged)
    check(directory, acknowledged)
    print(f"killed {times} acknowledged {sum(acknowledged)} seen {seen}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
