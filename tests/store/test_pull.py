"""Pulling: every outcome and next offset of DefaultMessageStore.getMessage, limits and filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.store.consume_queue import QueueUnit
from orbitmq.store.message_store import MessageStore
from orbitmq.store.pull import GetStatus
from orbitmq.wire.ids import tags_code
from orbitmq.wire.message_view import decode_record, decode_records
from orbitmq.wire.record import record_size
from tests.store.support import (
    TOPIC,
    draft,
    opened,
    put,
    small,
)

SIZE = record_size(draft(b"xx", tags="A"))


def pulled(
    store: MessageStore, offset: int, count: int = 32, size: int = 1 << 20
) -> tuple[GetStatus, int, int]:
    result = store.get_messages(TOPIC, 0, offset, count, size)
    return result.status, result.next_begin_offset, result.count


def test_an_unknown_queue(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        result = store.get_messages("Unknown", 0, 7, 32, 1000)
        assert result.status is GetStatus.NO_MATCHED_LOGIC_QUEUE
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == (0, 0, 0)
        assert store.topics() == {}


def test_a_queue_without_messages(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(draft(b"staged"))
        assert pulled(store, 3) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A queue of offsets 10 to 19: the log file of the first ten messages was deleted."""
    with opened(tmp_path) as store:
        put(store, *[b"x" * 300] * 20)
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    return tmp_path


@pytest.mark.parametrize(
    ("offset", "outcome"),
    [
        (-1, (GetStatus.OFFSET_TOO_SMALL, 10, 0)),
        (0, (GetStatus.OFFSET_TOO_SMALL, 10, 0)),
        (9, (GetStatus.OFFSET_TOO_SMALL, 10, 0)),
        (10, (GetStatus.FOUND, 20, 10)),
        (19, (GetStatus.FOUND, 20, 1)),
        (20, (GetStatus.OFFSET_OVERFLOW_ONE, 20, 0)),
        (21, (GetStatus.OFFSET_OVERFLOW_BADLY, 20, 0)),
    ],
)
def test_offsets_within_and_without(
    old: Path, offset: int, outcome: tuple[GetStatus, int, int]
) -> None:
    with opened(old) as store:
        assert pulled(store, offset) == outcome
        result = store.get_messages(TOPIC, 0, offset, 32, 1000)
        assert (result.min_offset, result.max_offset) == (10, 20)


def test_messages_that_were_just_removed_are_passed_over(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x" * 390] * 19)
        first, *others = store._log.segments
        store._log._segments = others  # as when retention takes a file while it is read
        with_hole = pulled(store, 0)
        assert with_hole == (GetStatus.FOUND, 10, 2)
        assert pulled(store, 0, count=1) == (GetStatus.FOUND, 9, 1)
        store._log._segments = [first, *others]


def test_all_of_a_file_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x" * 300] * 20)
        segments = store._log.segments
        store._log._segments = segments[1:]
        assert pulled(store, 0) == (GetStatus.MESSAGE_WAS_REMOVING, 10, 0)
        store._log._segments = segments


def test_a_consume_queue_file_that_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x"] * 25)
        store._queue_flusher.flush(renew_mark=False)
        del store._queues[TOPIC, 0]._files[10]
        assert pulled(store, 12) == (GetStatus.OFFSET_FOUND_NULL, 20, 0)


@pytest.mark.parametrize(
    ("count", "size", "found"),
    [
        (1, 1 << 20, 1),
        (3, 1 << 20, 3),
        (0, 1 << 20, 1),
        (32, 3 * SIZE, 3),
        (32, 3 * SIZE - 1, 2),
        (32, 0, 1),
        (32, 1 << 40, 10),
    ],
)
def test_limits(tmp_path: Path, count: int, size: int, found: int) -> None:
    """The first message comes whatever its size; no pull goes past a consume-queue file."""
    with opened(tmp_path) as store:
        for _ in range(12):
            store.append(draft(b"xx", tags="A"))
        store.write()
        assert pulled(store, 0, count, size) == (GetStatus.FOUND, found, found)


def test_neighbours_come_as_one_slice(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for queue_id in (0, 0, 1, 0, 0, 0):
            store.append(draft(b"xx", queue_id=queue_id, tags="A"))
        store.write()
        result = store.get_messages(TOPIC, 0, 0, 32, 1 << 20)
        assert [len(part) for part in result.slices] == [2 * SIZE, 3 * SIZE]
        assert (result.count, result.size) == (5, 5 * SIZE)
        assert all(part.readonly for part in result.slices)


def test_tags_choose_in_the_queue_and_the_record_decides(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number, tag in enumerate("ABABA"):
            store.append(draft(b"%d" % number, tags=tag))
        store.write()
        code = tags_code("A")
        looked_at: list[bytes] = []

        def is_even(record: memoryview) -> bool:
            looked_at.append(decode_record(record).body)
            return int(looked_at[-1]) % 4 == 0

        result = store.get_messages(TOPIC, 0, 0, 32, 1 << 20, lambda tags: tags == code)
        assert [view.body for view in decode_records(b"".join(result.slices))] == [b"0", b"2", b"4"]
        assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 5)
        result = store.get_messages(TOPIC, 0, 0, 32, 1 << 20, lambda tags: tags == code, is_even)
        assert [view.body for view in decode_records(b"".join(result.slices))] == [b"0", b"4"]
        assert looked_at == [b"0", b"2", b"4"]
        result = store.get_messages(TOPIC, 0, 0, 32, 1 << 20, lambda _: False)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)
        assert result.slices == []


@pytest.mark.parametrize(("count", "scanned"), [(32, 800), (900, 900)])
def test_a_pull_looks_at_so_many_entries(tmp_path: Path, count: int, scanned: int) -> None:
    with opened(tmp_path, small(mapped_file_size=1 << 20, consume_queue_units=5000)) as store:
        put(store, *[b"x"] * 1000)
        result = store.get_messages(TOPIC, 0, 0, count, 1 << 20, lambda _: False)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, scanned)


def test_entries_are_read_from_file_and_memory_alike(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        places = put(store, *[b"x"] * 4)
        store._queue_flusher.flush(renew_mark=False)
        places += put(store, *[b"x"] * 4)
        size = record_size(draft(b"x"))
        expected = [QueueUnit(n, place, size, 0) for n, place in enumerate(places)]
        for offset in range(9):
            assert store.read_units(TOPIC, 0, offset, 3) == expected[offset : offset + 3]
        assert store.read_units(TOPIC, 0, -1, 3) == []
        assert store.read_units("Unknown", 0, 0, 3) == []
