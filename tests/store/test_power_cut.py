"""With SYNC_FLUSH, what was acknowledged is there after a power cut at any moment."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from orbitmq.store.appended import Appended
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.message_view import decode_records
from tests.store.power import PowerCut
from tests.store.support import QuickOps, draft, put, small

CONFIG = msgspec.structs.replace(
    small(mapped_file_size=4096, consume_queue_units=5, queue_flush_interval_ms=1),
    flush_mode=FlushMode.SYNC,
    mark_interval_ms=2,
    clean_interval_ms=3_600_000,
)
QUEUES = [("A", 0), ("A", 1), ("B", 0)]


class Acknowledged(NamedTuple):
    queue: tuple[str, int]
    place: Appended
    body: bytes


class Writer:
    """Stores messages as a broker with SYNC_FLUSH does, until the power is cut."""

    def __init__(self, root: Path, image: Path, seed: int) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.at_cut: list[Acknowledged] = []
        self._random = random.Random(seed)
        moment = self._random.randint(1, 400)
        self._disk = PowerCut(root, image, moment, seed, self._remember)
        self._number = 0
        self.run(root)

    def _remember(self) -> None:
        self.at_cut = self.acknowledged.copy()

    def run(self, root: Path) -> None:
        store = MessageStore.open(root, CONFIG, ops=self._disk)
        for _ in range(150):
            if self._disk.is_cut:
                break
            self._write(store)
            if self._random.random() < 0.05:
                store.close()
                store = MessageStore.open(root, CONFIG, ops=self._disk)
        store.close()
        self._disk.cut()
        self._disk.close()

    def _write(self, store: MessageStore) -> None:
        batch = []
        for _ in range(self._random.randint(1, 4)):
            self._number += 1
            queue = self._random.choice(QUEUES)
            body = b"%d:" % self._number + b"x" * self._random.randint(0, 1500)
            batch.append(Acknowledged(queue, store.append(draft(body, *queue)), body))
        store.write()
        store.request_flush(
            lambda error: self.acknowledged.extend(batch) if error is None else None
        )


def check(store: MessageStore, acknowledged: list[Acknowledged]) -> None:
    for (topic, queue_id), place, body in acknowledged:
        result = store.get_messages(topic, queue_id, place.queue_offset, 1, 1 << 20)
        (view,) = decode_records(b"".join(result.slices))
        assert view.body == body
        assert view.physical_offset == place.physical_offset


@pytest.mark.parametrize("seed", range(25))
def test_acknowledged_messages_survive_a_power_cut(tmp_path: Path, seed: int) -> None:
    image = tmp_path / "image"
    writer = Writer(tmp_path / "live", image, seed)
    for _ in range(2):
        store = MessageStore.open(image, CONFIG, ops=QuickOps())
        try:
            check(store, writer.at_cut)
            put(store, b"next", topic="C")
        finally:
            store.close()
    shutil.rmtree(tmp_path)


def test_the_disk_does_lose_what_was_not_flushed(tmp_path: Path) -> None:
    """Or the test above would show nothing."""
    disk = PowerCut(tmp_path / "live", tmp_path / "image", 10**9, 3, lambda: None)
    store = MessageStore.open(tmp_path / "live", small(), ops=disk)
    put(store, *[b"%d" % n + b"x" * 300 for n in range(30)])
    disk.cut()
    store.close()
    disk.close()
    image = MessageStore.open(tmp_path / "image", small())
    try:
        assert image.max_offset("TopicTest", 0) < 30
    finally:
        image.close()
