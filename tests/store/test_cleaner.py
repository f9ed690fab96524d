"""Old files go, whole and in order; what is read, marked or killed meanwhile stays sound."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS, DiskSpace
from orbitmq.store.message_store import MessageStore
from orbitmq.store.pull import GetStatus
from orbitmq.testing.wait import wait_until
from tests.store.support import (
    HOUR_MS,
    TOPIC,
    QuickOps,
    after_crash,
    after_kill,
    bodies,
    draft,
    opened,
    put,
)

OLD_S = time.time() - 100 * 3600


def config(**changes: object) -> StoreConfig:
    """Small files, deleted at any hour, by a thread that does nothing unless asked."""
    settings: dict[str, object] = {
        "mapped_file_size": 4096,
        "consume_queue_units": 5,
        "flush_interval_ms": HOUR_MS,
        "queue_flush_interval_ms": HOUR_MS,
        "clean_interval_ms": HOUR_MS,
        "delete_when": ";".join(map(str, range(24))),
        "delete_log_files_interval_ms": 0,
        "delete_queue_files_interval_ms": 0,
        "max_hash_slot_num": 10,
        "max_index_num": 7,
    }
    return StoreConfig(**{**settings, **changes})  # type: ignore[arg-type]


class Disk(QuickOps):
    """A disk whose use is set; ``events`` are the deletions and directory flushes of it."""

    def __init__(self, used: int = 10) -> None:
        self.used = used
        self.deleted: list[Path] = []

    def disk_space(self, path: Path) -> DiskSpace:
        return DiskSpace(100, 100 - self.used, 100 - self.used)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.deleted.append(path)


def fill(store: MessageStore, count: int = 20) -> list[bytes]:
    """Messages of about a quarter of a log file each."""
    sent = [b"%03d" % n + b"x" * 900 for n in range(count)]
    for body in sent:
        put(store, body)
    return sent


def age(directory: Path, *numbers: int) -> None:
    """Let log files, by their number, be old."""
    for number in numbers:
        os.utime(directory / "commitlog" / f"{number * 4096:020d}", (OLD_S, OLD_S))


def log_files(directory: Path) -> list[int]:
    return sorted(int(path.name) // 4096 for path in (directory / "commitlog").iterdir())


def queue_files(directory: Path, topic: str = TOPIC) -> list[int]:
    path = directory / "consumequeue" / topic / "0"
    return sorted(int(file.name) // 100 for file in path.iterdir())


def test_old_files_go_and_queues_follow(tmp_path: Path) -> None:
    disk = Disk()
    with opened(tmp_path, config(), ops=disk) as store:
        sent = fill(store)
        store._queue_flusher.flush(renew_mark=False)
        assert queue_files(tmp_path) == [0, 1, 2, 3]
        assert store.cleaner.clean() == 0  # none is old
        age(tmp_path, 0, 1)
        assert store.cleaner.clean() == 2
        assert log_files(tmp_path) == [2, 3, 4]
        low = store.min_offset(TOPIC, 0)
        assert (low, store.max_offset(TOPIC, 0)) == (8, 20)
        assert bodies(store) == sent[8:]
        assert queue_files(tmp_path) == [1, 2, 3]
        assert store.min_physical_offset == 2 * 4096
        assert store.earliest_timestamp() == store.store_timestamp_at(TOPIC, 0, 8)
        put(store, b"next")
        assert store.cleaner.clean() == 0
    with opened(tmp_path, config()) as store:
        assert bodies(store) == [*sent[8:], b"next"]
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (8, 21)


def test_below_the_minimum_a_reader_is_told_where_it_is(tmp_path: Path) -> None:
    with opened(tmp_path, config(), ops=Disk()) as store:
        fill(store)
        age(tmp_path, 0)
        store.cleaner.clean()
        result = store.get_messages(TOPIC, 0, 1, 10, 10_000)
        assert result.status is GetStatus.OFFSET_TOO_SMALL
        assert (result.next_begin_offset, result.min_offset, result.max_offset) == (4, 4, 20)


def test_the_file_in_use_and_those_behind_a_young_one_stay(tmp_path: Path) -> None:
    with opened(tmp_path, config(), ops=Disk()) as store:
        fill(store)
        age(tmp_path, 0, 2, 3, 4)
        store.cleaner.clean()
        assert log_files(tmp_path) == [1, 2, 3, 4]
        age(tmp_path, 1)
        store.cleaner.clean()
        assert log_files(tmp_path) == [4]
        assert store.cleaner.clean() == 0
        assert log_files(tmp_path) == [4]


def test_at_another_hour_nothing_goes_unless_the_disk_fills_up_or_an_operator_says_so(
    tmp_path: Path,
) -> None:
    disk = Disk()
    hour = (time.localtime().tm_hour + 12) % 24
    with opened(tmp_path, config(delete_when=str(hour)), ops=disk) as store:
        fill(store)
        age(tmp_path, 0, 1, 2)
        assert store.cleaner.clean() == 0
        disk.used = 76
        assert store.cleaner.clean() == 3
        age(tmp_path, 3)
        disk.used = 10
        assert store.cleaner.clean() == 0
        store.cleaner.delete_expired_files()
        wait_until(lambda: log_files(tmp_path) == [4])


def test_a_nearly_full_disk_is_cleaned_of_young_files_a_few_at_a_time(tmp_path: Path) -> None:
    disk = Disk(used=86)
    with opened(tmp_path, config(delete_file_batch_max=3), ops=disk) as store:
        fill(store)
        assert (store.cleaner.clean(), log_files(tmp_path)) == (3, [3, 4])
        assert (store.cleaner.clean(), log_files(tmp_path)) == (1, [4])
        assert (store.cleaner.clean(), log_files(tmp_path)) == (0, [4])
        put(store, b"taken")


def test_a_full_disk_refuses_until_there_is_room(tmp_path: Path) -> None:
    disk = Disk(used=91)
    with opened(tmp_path, config(clean_files_forcibly=False), ops=disk) as store:
        sent = fill(store)
        store.append(draft(b"staged"))
        store.cleaner.clean()
        store.append(draft(b"of the same write"))  # what belongs together is taken whole
        store.write()
        with pytest.raises(DiskFullError, match="the broker's disk is full"):
            store.append(draft(b"refused"))
        assert bodies(store) == [*sent, b"staged", b"of the same write"]
        disk.used = 86
        store.cleaner.clean()
        with pytest.raises(DiskFullError):
            store.append(draft(b"refused"))
        disk.used = 85
        store.cleaner.clean()
        put(store, b"taken")
        assert bodies(store)[-1] == b"taken"


def test_a_slice_can_be_read_when_its_file_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path, config(), ops=Disk()) as store:
        sent = fill(store)
        result = store.get_messages(TOPIC, 0, 0, 3, 10_000)
        age(tmp_path, 0)
        assert store.cleaner.clean() == 1
        assert all(body in b"".join(result.slices) for body in sent[:3])
        assert store.record_at(0) is None


def test_a_file_found_before_and_opened_after_its_deletion_is_none(tmp_path: Path) -> None:
    with opened(tmp_path, config(), ops=Disk()) as store:
        fill(store)
    with opened(tmp_path, config(), ops=Disk()) as store:  # nothing is mapped yet
        log = store._log
        segments = log.segments
        age(tmp_path, 0)
        store.cleaner.clean()
        log._segments = segments  # as for one who found it a moment before
        assert log.slice(0, 10) is None
        log._segments = segments[1:]


def test_queues_whose_messages_are_all_gone_keep_their_offsets(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with opened(live, config(), ops=Disk()) as store:
        put(store, *[b"old"] * 7, topic="Old")
        fill(store)
        age(live, 0, 1)
        store.cleaner.clean()
        assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (7, 7)
        assert queue_files(live, "Old") == [1]
        crashed = after_crash(live, tmp_path / "crashed")
    for directory in (live, crashed):
        with opened(directory, config(), ops=Disk()) as store:
            assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (7, 7)
            put(store, b"new", topic="Old")
            assert bodies(store, "Old") == [b"new"]


def test_killed_at_any_deletion_the_store_is_sound_and_the_mark_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = tmp_path / "live"
    copies: list[Path] = []

    class Copying(Disk):
        def copy(self) -> None:
            copies.append(after_crash(live, tmp_path / f"crashed-{len(copies)}"))

        def unlink(self, path: Path) -> None:
            self.copy()
            super().unlink(path)
            self.copy()

    with opened(live, config(), ops=Copying()) as store:
        put(store, *[b"old"] * 12, topic="Old")
        sent = fill(store)
        age(live, 0, 1, 2)
        store.cleaner.clean()
    assert len(copies) >= 10
    for copy in copies:
        caplog.clear()
        with opened(copy, config(), ops=Disk()) as store:
            low = store.min_offset(TOPIC, 0)
            assert bodies(store) == sent[low:]
            assert (store.max_offset(TOPIC, 0), store.max_offset("Old", 0)) == (20, 12)
            store.cleaner.clean()
            assert store.min_offset("Old", 0) == 12 or low == 0
        assert "making all queues anew" not in caplog.text


def test_the_mark_stands_behind_what_goes(tmp_path: Path) -> None:
    with opened(tmp_path, config(), ops=Disk()) as store:
        put(store, b"first")
        store._queue_flusher.flush(renew_mark=True)
        fill(store)
        age(tmp_path, 0, 1)
        store.cleaner.clean()
        mark = Checkpoint(FILE_OPS, tmp_path / "checkpoint").mark
        assert mark is not None
        assert mark.last_record >= store.min_physical_offset


def test_listeners_are_told_once_where_the_log_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []
    failing = True

    def listener(log_min: int) -> None:
        if failing:
            raise OSError(5, "the index's disk")
        told.append(log_min)

    with opened(tmp_path, config(), ops=Disk()) as store:
        fill(store)
        age(tmp_path, 0)
        store.cleaner.add_listener(listener)
        with pytest.raises(OSError, match="the index's disk"):
            store.cleaner.clean()
        failing = False
        store.cleaner.clean()
        store.cleaner.clean()
    assert told == [4096]


def test_on_a_disk_too_full_for_the_mark_a_file_goes_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(Disk):
        full = False

        def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
            if self.full:
                raise OSError(28, os.strerror(28))
            return super().pwrite(fd, data, position)

    disk = Full(used=100)
    with opened(tmp_path / "live", config(), ops=disk) as store:
        sent = fill(store)
        disk.full = True
        assert store.cleaner.clean() == 1
        disk.full = False
        assert "cannot be renewed before old files go" in caplog.text
        crashed = after_crash(tmp_path / "live", tmp_path / "crashed")
    with opened(crashed, config(), ops=Disk()) as store:
        assert bodies(store) == sent[4:]


def test_deletion_that_fails_is_tried_again(tmp_path: Path) -> None:
    class Refusing(Disk):
        refuses = True

        def unlink(self, path: Path) -> None:
            if self.refuses:
                raise OSError(5, os.strerror(5))
            super().unlink(path)

    disk = Refusing()
    with opened(tmp_path, config(), ops=disk) as store:
        fill(store)
        age(tmp_path, 0, 1)
        with pytest.raises(OSError, match="Input/output"):
            store.cleaner.clean()
        assert log_files(tmp_path) == [0, 1, 2, 3, 4]
        disk.refuses = False
        assert store.cleaner.clean() == 2
        assert store.min_offset(TOPIC, 0) == 8


def test_queues_whose_messages_are_all_gone_are_removed_when_asked(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with opened(live, config(), ops=Disk()) as store:
        for topic in ("Old", "Kept", "Staged"):
            put(store, b"old", topic=topic)
            put(store, b"old", topic=topic, queue_id=1)
        fill(store)
        store._queue_flusher.flush(renew_mark=False)
        age(live, 0)
        store.cleaner.clean()
        put(store, b"new", topic="Old", queue_id=1)
        store.append(draft(b"x", topic="Staged"))
        assert store.cleaner.remove_expired_queues(lambda topic: topic == "Kept") == 2
        assert store.topics() == {"Kept": [0, 1], "Old": [1], "Staged": [0], TOPIC: [0]}
        put(store, b"again", topic="Old")
        assert bodies(store, "Old") == [b"again"]
        assert bodies(store, "Staged") == [b"x"]
        crashed = after_kill(store, tmp_path / "removed")
    for directory in (crashed, live):
        with opened(directory, config(), ops=Disk()) as store:
            assert bodies(store, "Old") == [b"again"]
            assert bodies(store, "Old", 1) == [b"new"]
            assert store.max_offset("Kept", 0) == 1


def test_the_key_index_follows(tmp_path: Path) -> None:
    with opened(tmp_path, config(), ops=Disk()) as store:
        index = store.key_index
        assert index is not None
        for number in range(40):
            store.append(draft(b"x" * 900, properties={"KEYS": f"k{number}"}))
            store.write()
        wait_until(lambda: index.position >= store.max_physical_offset, "the index")
        before = len(list((tmp_path / "index").iterdir()))
        assert len(index.find(TOPIC, "k1", 10).offsets) == 1
        age(tmp_path, *range(6))
        assert store.cleaner.clean() == 6
        assert index.find(TOPIC, "k1", 10).offsets == []
        assert len(index.find(TOPIC, "k39", 10).offsets) == 1
        assert len(list((tmp_path / "index").iterdir())) < before
