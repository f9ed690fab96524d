"""The key index of a store: what is found, after what kind of end, and with which files damaged."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import msgspec
import pytest

from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.index_file import HEADER
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.store.support import HOUR_MS, TOPIC, QuickOps, after_crash, draft, opened, small


def put_keys(store: MessageStore, *keys: str, topic: str = TOPIC) -> list[int]:
    """Store a message for each, with its unique key beside it; their physical offsets."""
    places = [
        store.append(draft(b"body", topic, properties={"UNIQ_KEY": f"U-{key}", "KEYS": key}))
        for key in keys
    ]
    store.write()
    return [place.physical_offset for place in places]


def find(store: MessageStore, key: str, topic: str = TOPIC, most: int = 64) -> list[int]:
    assert store.key_index is not None
    return store.key_index.find(topic, key, most).offsets


def wait_indexed(store: MessageStore) -> None:
    index = store.key_index
    assert index is not None
    wait_until(lambda: index.position >= store.max_physical_offset, "the index to be built")


def index_files(directory: Path) -> list[Path]:
    return sorted((directory / "index").glob("*"))


def numbered(start: int, stop: int) -> list[str]:
    return [f"k{number}" for number in range(start, stop)]


def save_index(store: MessageStore) -> None:
    """What the index does by itself every ten seconds."""
    assert store.key_index is not None
    wait_indexed(store)
    store.key_index._save()


def test_messages_are_found_by_each_of_their_keys(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock=clock) as store:
        (one,) = put_keys(store, "a b  c")
        clock.advance(5_000)
        (two,) = put_keys(store, "b")
        tagged = store.append(draft(b"x", tags="Red", properties={"UNIQ_KEY": "U-tag"}))
        store.append(draft(b"no keys at all"))
        (other,) = put_keys(store, "a", topic="Other")
        assert [find(store, key) for key in ("a", "b", "c", "", "d")] == [
            [one], [one, two], [one], [], []
        ]  # fmt: skip
        assert find(store, "b", most=1) == [two]
        assert find(store, "U-b") == [two]
        assert find(store, "a", "Other") == [other]
        assert store.key_index is not None
        by_tag = store.key_index.find(TOPIC, "Red", 9, index_type="T")
        assert by_tag.offsets == [tagged.physical_offset]
        assert (by_tag.last_offset, by_tag.last_timestamp) == (other, clock.now_ms())
        begin = clock.now_ms() - 5_000
        assert store.key_index.find(TOPIC, "b", 9, begin, begin + 4_999).offsets == [one]
        assert store.key_index.find(TOPIC, "b", 9, begin + 1, begin + 9_000).offsets == [two]
        assert store.key_index.find(TOPIC, "b", 9, begin + 9_000, begin + 9_001).offsets == []


def test_rolled_back_messages_are_not_found_and_committed_ones_are(tmp_path: Path) -> None:
    flags = {
        "no": 0, "prepared": TRANSACTION_PREPARED,
        "commit": TRANSACTION_COMMIT, "rollback": TRANSACTION_ROLLBACK,
    }  # fmt: skip
    with opened(tmp_path / "live") as store:
        for key, flag in flags.items():
            store.append(draft(b"x", properties={"UNIQ_KEY": key}, sys_flag=flag))
        store.write()
        assert [bool(find(store, key)) for key in flags] == [True, True, True, False]
        copy = after_crash(tmp_path / "live", tmp_path / "killed")
    with opened(copy) as store:  # the same, read from the log
        wait_indexed(store)
        assert [bool(find(store, key)) for key in flags] == [True, True, True, False]


def test_files_follow_each_other_and_go_with_the_log(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock=clock) as store:
        places = {key: put_keys(store, key)[0] for key in numbered(0, 100)}
        assert all(find(store, key) == [place] for key, place in places.items())
        files = index_files(tmp_path)
        assert len(files) == 4  # 63 entries each, two a message
        assert store.key_index is not None
        headers = [HEADER.unpack(path.read_bytes()[:40]) for path in files]
        assert store.key_index.delete_before(headers[1][3] + 1) == 2
        assert index_files(tmp_path) == files[2:]
        assert find(store, "k0") == []
        assert find(store, "k99") == [places["k99"]]
        assert store.key_index.delete_before(1 << 60) == 1  # the newest stays
    with opened(tmp_path, clock=clock) as store:
        assert find(store, "k99") == [places["k99"]]


def test_after_a_proper_end_nothing_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orbitmq.store")
    with opened(tmp_path) as store:
        places = put_keys(store, *numbered(0, 70))
    before = [path.read_bytes() for path in index_files(tmp_path)]
    with opened(tmp_path) as store:
        assert [find(store, key) for key in numbered(0, 70)] == [[place] for place in places]
        more = put_keys(store, "k5", "new")
        assert find(store, "k5") == [places[5], more[0]]
    assert "the key index is built" not in caplog.text
    assert [path.read_bytes() for path in index_files(tmp_path)][:1] == before[:1]


@pytest.mark.parametrize("saved", [0, 1, 30, 40, 80])
def test_after_a_kill_all_is_found_and_only_the_unsaved_is_read(
    tmp_path: Path, saved: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orbitmq.store")
    with opened(tmp_path / "live") as store:
        places = put_keys(store, *numbered(0, saved))
        save_index(store)
        position = store.max_physical_offset
        places += put_keys(store, *numbered(saved, 100))
        wait_indexed(store)
        copy = after_crash(tmp_path / "live", tmp_path / "killed")
    for round_ in range(2):
        with opened(copy) as store:
            wait_indexed(store)
            assert [find(store, key) for key in numbered(0, 100)] == [[place] for place in places]
            assert find(store, "U-k99") == [places[99]]
            if not round_:
                copy = after_crash(copy, tmp_path / "again")
    built = [record.args for record in caplog.records if "is built from" in record.message]
    assert built
    start = built[0][0] if isinstance(built[0], tuple) else -1
    assert isinstance(start, int)
    assert start >= position


def test_apache_would_keep_the_files_of_a_killed_store(tmp_path: Path) -> None:
    """IndexService.load deletes what is later than indexMsgTimestamp; recovery reads the rest."""
    clock = ManualClock()
    config = msgspec.structs.replace(small(), mark_interval_ms=HOUR_MS)
    with opened(tmp_path / "live", config, clock=clock) as store:
        put_keys(store, *numbered(0, 15))
        save_index(store)
        clock.advance(7_000)
        put_keys(store, *numbered(15, 30))
        wait_indexed(store)
        store._queue_flusher.flush(renew_mark=True)
        copy = after_crash(tmp_path / "live", tmp_path / "killed")
    (path,) = index_files(copy)
    end_timestamp = HEADER.unpack(path.read_bytes()[:40])[1]
    log, queues, index = struct.unpack_from(">3q", (copy / "checkpoint").read_bytes())
    assert end_timestamp <= index
    assert log <= end_timestamp
    assert queues <= end_timestamp
    assert clock.now_ms() == end_timestamp + 7_000


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["short", "count", "order", "beyond", "other size", "gone"])
def test_damaged_files_are_reported_and_made_anew(
    tmp_path: Path, damage: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    live = tmp_path / "live"
    with opened(live) as store:
        places = put_keys(store, *numbered(0, 100))
        save_index(store)
        copy = after_crash(live, tmp_path / "killed")
    directory = live if clean else copy
    path = index_files(directory)[1]
    header = list(HEADER.unpack(path.read_bytes()[:40]))
    config = small()
    if damage == "short":
        os.truncate(path, 100)
    elif damage == "gone":
        path.unlink()
    elif damage == "other size":
        config = StoreConfig(
            **{name: getattr(config, name) for name in config.__struct_fields__}
            | {"max_index_num": 32}
        )
    else:
        if damage == "count":
            header[5] = 1000
        elif damage == "order":
            header[2], header[3] = header[3], header[2]
        else:
            header[3] = 1 << 40
        with path.open("r+b") as file:
            file.write(HEADER.pack(*header))
    with opened(directory, config) as store:
        wait_indexed(store)
        assert [find(store, key) for key in numbered(0, 100)] == [[place] for place in places]
    assert "made anew from the commit log" in caplog.text


def test_an_index_that_was_deleted_or_never_there_is_built_in_the_background(
    tmp_path: Path,
) -> None:
    config = small()
    without = StoreConfig(
        **{name: getattr(config, name) for name in config.__struct_fields__}
        | {"message_index_enable": False}
    )
    with opened(tmp_path, without) as store:
        assert store.key_index is None
        places = put_keys(store, *numbered(0, 50))
    assert not (tmp_path / "index").exists()
    for _ in range(2):
        with opened(tmp_path) as store:
            places += put_keys(store, "last")
            wait_indexed(store)
            assert find(store, "k7") == [places[7]]
            assert find(store, "last") == places[50:]
        for path in index_files(tmp_path):
            path.unlink()


def test_apaches_additions_are_kept_and_read_on_from(tmp_path: Path) -> None:
    """After a proper end of another broker the files say how far the index goes."""
    with opened(tmp_path) as store:
        put_keys(store, *numbered(0, 10))
    page = (tmp_path / "checkpoint").read_bytes()
    with opened(tmp_path) as store:
        places = put_keys(store, *numbered(10, 20))
    (tmp_path / "checkpoint").write_bytes(page)  # Apache leaves our mark as it was
    with opened(tmp_path) as store:
        wait_indexed(store)
        more = put_keys(store, "k19")
        assert find(store, "k19") == [places[9], *more]
        assert store.key_index is not None
        assert store.key_index._files[-1].header.index_count == 1 + 2 * 21


def test_after_a_crash_of_apache_its_newest_file_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        places = put_keys(store, *numbered(0, 10))
    (tmp_path / "abort").touch()
    page = bytearray((tmp_path / "checkpoint").read_bytes())
    struct.pack_into(">q", page, 16, 0)
    page[2048:2200] = bytes(152)  # no mark: OrbitMQ was never here
    (tmp_path / "checkpoint").write_bytes(page)
    with opened(tmp_path) as store:
        wait_indexed(store)
        assert [find(store, key) for key in numbered(0, 10)] == [[place] for place in places]
        assert store.key_index is not None
        assert store.key_index._files[-1].header.index_count == 1 + 2 * 10
    assert "newer than what the checkpoint says" in caplog.text


class FullIndexDisk(QuickOps):
    """A disk with no room for index files."""

    full = False

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        if self.full and Path(f"/proc/self/fd/{fd}").readlink().parent.name == "index":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, data, position)


def test_a_full_disk_delays_the_index_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullIndexDisk()
    with opened(tmp_path, ops=disk) as store:
        places = put_keys(store, "before")
        assert find(store, "before") == places
        disk.full = True
        places += put_keys(store, *numbered(0, 90))
        wait_until(lambda: "the key index cannot be written" in caplog.text, "the complaint")
        disk.full = False
        wait_indexed(store)
        wait_until(lambda: find(store, "k89") == [places[90]], "the index to go on")
        assert [find(store, key) for key in numbered(0, 90)] == [[place] for place in places[1:]]


def test_what_is_damaged_is_passed_over_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        places = put_keys(store, *numbered(0, 40))
    for path in [*index_files(tmp_path), tmp_path / "checkpoint"]:
        path.unlink()
    for place in (places[3], places[20]):  # before a record, and in a body
        with (tmp_path / "commitlog" / f"{place // 4096 * 4096:020d}").open("r+b") as file:
            file.seek(place % 4096 + (4 if place == places[3] else 88))
            file.write(b"!")
    with opened(tmp_path) as store:
        wait_indexed(store)
        found = [find(store, key) for key in numbered(0, 40)]
    assert found == [[place] if n not in {3, 20} else [] for n, place in enumerate(places)]
    assert f"damaged from physical offset {places[3]} to {places[4]}" in caplog.text
    assert f"damaged from physical offset {places[20]} to {places[21]}" in caplog.text


def test_a_log_that_ends_with_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    """A kill may come between the filler of one file and the first message of the next."""
    with opened(tmp_path / "live") as store:
        put_keys(store, "a")
        store.append(draft(b"x" * 3_500))
        store.write()
        (last,) = put_keys(store, "y" * 600)  # into the next file
        copy = after_crash(tmp_path / "live", tmp_path / "killed")
    assert last == 4096
    (copy / "commitlog" / f"{4096:020d}").unlink()
    with opened(copy) as store:
        wait_indexed(store)
        assert store.max_physical_offset == 4096
        assert find(store, "a") == [0]
        assert put_keys(store, "b") == find(store, "b") == [4096]


def test_the_checkpoint_keeps_what_it_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put_keys(store, "a")
        save_index(store)
        mark = store.key_index and store.key_index._checkpoint.index_mark
        assert Checkpoint(FILE_OPS, tmp_path / "checkpoint").index_mark == mark
        assert mark is not None
        assert (mark.position, mark.files) == (store.max_physical_offset, 1)
    page = bytearray((tmp_path / "checkpoint").read_bytes())
    page[2060] ^= 1
    (tmp_path / "checkpoint").write_bytes(page)
    assert Checkpoint(FILE_OPS, tmp_path / "checkpoint").index_mark is None
