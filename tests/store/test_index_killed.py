"""The key index after a kill at any moment: every acknowledged message is found by its keys."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from orbitmq.store.check import check_store, find_layout
from orbitmq.store.config import StoreConfig
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import decode_record
from tests.store.support import TOPIC, QuickOps, after_crash, draft, opened
from tests.store.test_processes import python

SHAPE = IndexShape(50, 400)
KILLED = StoreConfig(
    mapped_file_size=64 * 1024,
    consume_queue_units=500,
    queue_flush_interval_ms=3,
    mark_interval_ms=5,
    mark_bytes=3_000,
    flush_interval_ms=5,
    max_hash_slot_num=SHAPE.slots,
    max_index_num=SHAPE.entries,
)
WRITER = """
import sys
from pathlib import Path
from orbitmq.store.message_store import MessageStore
from tests.store.test_index_killed import KILLED, put_keys

store = MessageStore.open(Path(sys.argv[1]), KILLED)
number = store.max_offset("TopicTest", 0)
print("ready", flush=True)
for _ in sys.stdin:
    number = put_keys(store, number, 7)
    print(number, flush=True)
"""
ROUNDS = 5


def put_keys(store: MessageStore, start: int, count: int) -> int:
    for number in range(start, start + count):
        properties = {"UNIQ_KEY": f"U{number:06}", "KEYS": f"k{number} all{number % 5}"}
        store.append(draft(b"%d" % number, properties=properties, tags="T"))
    store.write()
    return start + count


def missing(store: MessageStore, count: int, first: int = 0) -> list[str]:
    """The keys that do not lead to their message."""
    index = store.key_index
    assert index is not None
    wait_until(lambda: index.position >= store.max_physical_offset, "the index")
    lost = []
    for number in range(first, count):
        for key in (f"U{number:06}", f"k{number}"):
            records = [store.record_at(place) for place in index.find(TOPIC, key, 1000).offsets]
            bodies = [decode_record(record).body for record in records if record is not None]
            if b"%d" % number not in bodies:
                lost.append(key)
    return lost


def test_what_was_acknowledged_is_found_after_a_kill(tmp_path: Path) -> None:
    ticks = random.Random(11)
    acknowledged = 0
    for _ in range(ROUNDS):
        with python(WRITER, str(tmp_path)) as writer:
            assert writer.stdout is not None
            assert writer.stdin is not None
            assert writer.stdout.readline() == "ready\n"
            rounds = ticks.randrange(1, 40)
            writer.stdin.write("\n" * (rounds + 3))
            writer.stdin.flush()
            lines = [writer.stdout.readline() for _ in range(rounds)]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()
        acknowledged = int([line for line in lines if line.endswith("\n")][-1])
        with opened(tmp_path, KILLED) as store:
            assert missing(store, acknowledged) == []
        assert check_store(tmp_path, find_layout(tmp_path, SHAPE)).problems == []
    assert acknowledged > ROUNDS


class StopsAt(QuickOps):
    """Does ``left`` more changes of files, and no more from then on."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.is_stopped = False

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.is_stopped = True
            raise OSError(5, "the process ended here")

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self._count()
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        self._count()

    def ftruncate(self, fd: int, size: int) -> None:
        self._count()
        super().ftruncate(fd, size)


@pytest.mark.parametrize("left", range(24))
def test_a_save_that_ends_at_any_system_call_costs_nothing(tmp_path: Path, left: int) -> None:
    """Every change of a file of the index, and of the checkpoint for it, in turn is the last."""
    live = tmp_path / "live"
    with opened(live, KILLED) as store:
        put_keys(store, 0, 150)
    store = MessageStore.open(live, KILLED, ops=QuickOps())
    index = store.key_index
    assert index is not None
    put_keys(store, 150, 30)
    wait_until(lambda: index.position >= store.max_physical_offset, "the index")
    stops = StopsAt(left)
    index._ops = stops
    for file in index._files:
        file._ops = stops
    put_keys(store, 180, 60)  # into the next file
    wait_until(lambda: stops.is_stopped or index.position >= store.max_physical_offset, "the end")
    copy = after_crash(live, tmp_path / "killed")
    index._ops = QuickOps()
    for file in index._files:
        file._ops = index._ops
    store.close()
    with opened(copy, KILLED) as again:
        assert missing(again, 240, 140) == []
    assert check_store(copy, find_layout(copy, SHAPE)).problems == []
