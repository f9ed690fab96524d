"""What is left after a crash, a power cut, lost files or damage, and where recovery begins."""

from __future__ import annotations

import logging
import shutil
import struct
from pathlib import Path

import pytest

from orbitmq.errors import CorruptStoreError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.record import RecordInfo
from tests.store.support import (
    TOPIC,
    QuickOps,
    after_crash,
    bodies,
    draft,
    log_records,
    opened,
    put,
    queue_units,
    small,
)

LOG_FILE = Path("commitlog") / ("0" * 20)
QUEUE_FILE = Path("consumequeue") / TOPIC / "0" / ("0" * 20)
SOME = {"KEYS": "order-1", "UNIQ_KEY": "0102030405060708"}


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def crashed(
    directory: Path,
    sent: list[bytes],
    *,
    properties: dict[str, str] | None = None,
    flushed: bool = False,
) -> Path:
    """What a crash leaves after ``marked``, which is behind the mark, and then ``sent``."""
    with opened(directory / "live") as store:
        put(store, b"marked")
        store._queue_flusher.flush(renew_mark=True)
        for body in sent:
            store.append(draft(body, properties=properties))
        store.write()
        if flushed:
            store._queue_flusher.flush(renew_mark=False)
        return after_crash(directory / "live", directory / "crashed")


def untouched(records: list[RecordInfo], before: bytes, now: bytes) -> int:
    """How many records are in ``now`` as they were ``before``, up to the first that is not."""
    ends = [info.physical_offset + info.size for info in records]
    return sum(before[:end] == now[:end] for end in ends)


@pytest.mark.parametrize(("properties", "flushed"), [({}, True), (SOME, False)])
def test_a_record_torn_at_any_byte_is_cut(
    tmp_path: Path, *, properties: dict[str, str], flushed: bool
) -> None:
    sent = [b"one", b""]
    source = crashed(tmp_path, sent, properties=properties, flushed=flushed)
    records, end = log_records(source)
    log = (source / LOG_FILE).read_bytes()
    for position in range(records[1].physical_offset, end + 1):
        torn = log[:position] + bytes(4096 - position)
        count = untouched(records, log, torn)
        copy = after_crash(source, tmp_path / "torn")
        (copy / LOG_FILE).write_bytes(torn)
        with opened(copy) as store:
            assert bodies(store) == [b"marked", *sent][:count]
            put(store, b"next")
            assert bodies(store) == [*[b"marked", *sent][:count], b"next"]
        assert len(log_records(copy)[0]) == len(queue_units(copy)) == count + 1
        shutil.rmtree(copy)


def test_stale_bytes_after_the_cut_never_come_back(tmp_path: Path) -> None:
    source = crashed(tmp_path, [b"1", b"2", b"3"])
    records, _ = log_records(source)
    overwrite(source / LOG_FILE, records[1].physical_offset, b"\xff" * 20)
    with opened(source) as store:
        assert bodies(store) == [b"marked"]
        put(store, b"A")
    assert [info.queue_offset for info in log_records(source)[0]] == [0, 1]
    (source / "checkpoint").unlink()
    with opened(source) as store:
        assert bodies(store) == [b"marked", b"A"]


def test_files_behind_the_cut_are_deleted(tmp_path: Path) -> None:
    source = crashed(tmp_path, [bytes([n]) * 900 for n in range(10)])
    assert len(list((source / "commitlog").iterdir())) == 3
    overwrite(source / LOG_FILE, log_records(source)[0][2].physical_offset, bytes(8))
    with opened(source) as store:
        assert len(bodies(store)) == 2
        assert [path.name for path in (source / "commitlog").iterdir()] == ["0" * 20]


def test_recovery_reads_from_the_mark_only(tmp_path: Path) -> None:
    source = crashed(tmp_path, [b"after the mark"])
    overwrite(source / LOG_FILE, 100, b"\xff")  # in the body that stands before the mark
    with opened(source) as store:
        assert store.max_offset(TOPIC, 0) == 2


def test_a_clean_close_leaves_nothing_to_read(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x" * 100] * 30)
        end = store.max_physical_offset
    mark = Checkpoint(FILE_OPS, tmp_path / "checkpoint").mark
    assert mark is not None
    assert mark.position == end
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("lost", ["consumequeue", f"consumequeue/{TOPIC}", "checkpoint", "mark"])
@pytest.mark.parametrize("clean", [False, True])
def test_lost_files_are_made_anew(tmp_path: Path, lost: str, *, clean: bool) -> None:
    sent = [b"%d" % n for n in range(25)]
    with opened(tmp_path / "live") as store:
        put(store, *sent)
        put(store, b"other", topic="Other", queue_id=7)
        store._queue_flusher.flush(renew_mark=True)
        crash = after_crash(tmp_path / "live", tmp_path / "crashed")
    directory = tmp_path / "live" if clean else crash
    if lost == "mark":
        overwrite(directory / "checkpoint", 1024, bytes(100))
    elif lost == "checkpoint":
        (directory / lost).unlink()
    else:
        shutil.rmtree(directory / lost)
    with opened(directory) as store:
        assert bodies(store) == sent
        assert bodies(store, "Other", 7) == [b"other"]
        put(store, b"next")
    assert len(queue_units(directory)) == 26


def test_a_log_put_in_anothers_place_is_noticed(tmp_path: Path) -> None:
    """As when the log is restored from a copy: same length, same number of messages."""
    for name, queue_id in (("one", 0), ("other", 1)):
        with opened(tmp_path / name) as store:
            put(store, *[b"x"] * 5, queue_id=queue_id)
    shutil.copy(tmp_path / "other" / LOG_FILE, tmp_path / "one" / LOG_FILE)
    with opened(tmp_path / "one") as store:
        assert (len(bodies(store)), len(bodies(store, queue_id=1))) == (0, 5)


def test_a_record_in_anothers_place_is_none(tmp_path: Path) -> None:
    source = crashed(tmp_path, [b"next"])
    (marked, _), end = log_records(source)
    log = (source / LOG_FILE).read_bytes()
    overwrite(source / LOG_FILE, end, log[: marked.size])
    with opened(source) as store:
        assert bodies(store) == [b"marked", b"next"]


@pytest.mark.parametrize("lost", [["consumequeue"], ["consumequeue", "checkpoint"]])
def test_a_crash_while_queues_are_made_anew_is_survived(tmp_path: Path, lost: list[str]) -> None:
    with opened(tmp_path / "live") as store:
        put(store, *[b"x"] * 25)
    if "checkpoint" in lost:
        (tmp_path / "live" / "checkpoint").unlink()
    shutil.rmtree(tmp_path / "live" / "consumequeue")
    opening = QuickOps()
    copies: list[Path] = []
    marks = []

    def copy_first(path: Path, flags: int) -> int:
        copies.append(after_crash(tmp_path / "live", tmp_path / f"crashed-{len(copies)}"))
        if path.parent.name == "0":
            marks.append(Checkpoint(FILE_OPS, copies[-1] / "checkpoint").mark)
        return QuickOps.open(opening, path, flags)

    opening.open = copy_first  # type: ignore[method-assign]
    with opened(tmp_path / "live", ops=opening) as store:
        wait_until(lambda: Checkpoint(FILE_OPS, tmp_path / "live" / "checkpoint").mark is not None)
        assert bodies(store) == [b"x"] * 25
    assert len(copies) > 3
    assert marks[:3] == [None] * 3
    for copy in copies:
        with opened(copy) as store:
            assert bodies(store) == [b"x"] * 25


def test_messages_added_by_apache_are_found_from_the_mark_on(tmp_path: Path) -> None:
    """Apache adds records and entries, but leaves the mark as it is."""
    with opened(tmp_path) as store:
        put(store, b"ours")
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    with opened(tmp_path) as store:
        put(store, *[b"theirs"] * 20)
    overwrite(tmp_path / "checkpoint", 1024, checkpoint[1024:])
    overwrite(tmp_path / LOG_FILE, 100, b"\xff")  # would be noticed if all were read
    with opened(tmp_path) as store:
        assert store.max_offset(TOPIC, 0) == 21


def test_a_directory_closed_by_apache_is_taken_from_its_queues_end(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x"] * 5)
    overwrite(tmp_path / "checkpoint", 1024, bytes(100))
    overwrite(tmp_path / LOG_FILE, 100, b"\xff")
    with opened(tmp_path) as store:
        assert store.max_offset(TOPIC, 0) == 5


def test_what_apache_keeps_in_the_checkpoint_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4056))
    with opened(tmp_path) as store:
        put(store, b"x")
        stored = store.store_timestamp_at(TOPIC, 0, 0)
    content = (tmp_path / "checkpoint").read_bytes()
    assert struct.unpack_from(">5q", content) == (stored, stored, 3, 4, 5)


def test_a_record_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    sent = [b"a", b"b" * (3 << 20), b"c" * (1 << 20), b"d"]
    config = StoreConfig()
    with opened(tmp_path, config) as store:
        put(store, *sent)
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path, config) as store:
        assert bodies(store) == sent


def test_recovery_keeps_off_the_mapping(tmp_path: Path) -> None:
    """On a full tmpfs, touching a hole through a mapping ends the process."""
    source = crashed(tmp_path, [b"x" * 900] * 5)
    (source / "checkpoint").unlink()
    with opened(source) as store:
        assert [segment._view for segment in store._log.segments] == [None] * 2
        assert len(bodies(store)) == 6


def test_an_empty_last_file_is_what_a_crash_left(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"x")
    (tmp_path / "commitlog" / f"{4096:020d}").touch()
    with opened(tmp_path) as store:
        assert bodies(store) == [b"x"]
        put(store, *[b"y" * 900] * 5)


def test_preallocated_files_of_apache_are_no_messages(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"x")
    (tmp_path / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert bodies(store) == [b"x"]
        put(store, *[b"y" * 900] * 5)
        assert len(bodies(store)) == 6


def test_offsets_go_on_when_old_messages_are_gone(tmp_path: Path) -> None:
    """As after Apache's retention: the first log file is deleted, queues stay or are lost."""
    with opened(tmp_path) as store:
        put(store, *[b"%04d" % n + b"x" * 260 for n in range(30)])
    (tmp_path / LOG_FILE).unlink()
    low = 30 - len(log_records(tmp_path)[0])
    for lose in (None, "checkpoint", "consumequeue"):
        if lose == "checkpoint":
            (tmp_path / lose).unlink()
        elif lose is not None:
            shutil.rmtree(tmp_path / lose)
        with opened(tmp_path) as store:
            assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (low, 30)
            assert bodies(store)[0].startswith(b"%04d" % low)
            assert store.min_physical_offset == 4096
    assert UNIT.unpack(queue_units(tmp_path)[0]) == (0, 2**31 - 1, 0)


def test_a_queue_whose_messages_are_all_gone_keeps_its_offsets(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x"] * 5, topic="Old")
        put(store, *[b"x" * 900] * 5)
    (tmp_path / LOG_FILE).unlink()
    with opened(tmp_path) as store:
        assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (5, 5)
        put(store, b"new", topic="Old")
        assert bodies(store, "Old") == [b"new"]


def test_a_gap_in_the_queue_offsets_becomes_filler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        _, _, third, _ = put(store, b"0", b"1", b"2", b"3")
    overwrite(tmp_path / LOG_FILE, third + 20, struct.pack(">q", 4))  # 2 says it is 4
    (tmp_path / "checkpoint").unlink()
    with caplog.at_level(logging.WARNING), opened(tmp_path) as store:
        units = store.read_units(TOPIC, 0, 0, 10)
        assert [unit.size == 2**31 - 1 for unit in units] == [False, False, True, True, False]
        for offset, count, following in ((0, 2, 2), (2, 1, 5)):
            result = store.get_messages(TOPIC, 0, offset, 10, 10_000)
            assert (result.count, result.next_begin_offset) == (count, following)
    assert "has no entries from 2 to 3" in caplog.text
    assert "offset 3 left out, 5 is next" in caplog.text


def test_a_wild_queue_offset_does_not_grow_the_queue(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        _, second, _ = put(store, b"0", b"1", b"2")
    overwrite(tmp_path / LOG_FILE, second + 20, struct.pack(">q", 1 << 60))
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert store.max_offset(TOPIC, 0) == 3
        assert [store.get_messages(TOPIC, 0, offset, 10, 999).count for offset in (0, 1)] == [1, 1]


def test_entries_of_lost_records_leave_the_queue_files(tmp_path: Path) -> None:
    """A power cut may keep the queue's pages and lose the log's."""
    source = crashed(tmp_path, [b"%d" % n for n in range(25)], flushed=True)
    assert len(queue_units(source)) == 26
    overwrite(source / LOG_FILE, log_records(source)[0][3].physical_offset, bytes(3000))
    with opened(source) as store:
        assert bodies(store) == [b"marked", b"0", b"1"]
        assert len(list((source / QUEUE_FILE).parent.iterdir())) == 1
        assert len(queue_units(source)) == 1


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("size", [1, 50, 100, 199, 240])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_queue_file_of_a_wrong_length_is_told_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, number: int, *, clean: bool
) -> None:
    sent = [b"%d" % n for n in range(25)]
    with opened(tmp_path / "live") as store:
        put(store, *sent)
        put(store, b"other", topic="Other")
        store._queue_flusher.flush(renew_mark=True)
        after_crash(tmp_path / "live", tmp_path / "crashed")
    directory = tmp_path / ("live" if clean else "crashed")
    path = directory / "consumequeue" / TOPIC / "0" / f"{number * 200:020d}"
    truncate(path, size)
    with opened(directory) as store:
        assert bodies(store) == sent
        assert bodies(store, "Other") == [b"other"]
        put(store, b"next")
    assert len(queue_units(directory)) == 26
    assert f"the consume-queue file {path} has {size} bytes, but consume_queue_units makes 200" in (
        caplog.text
    )
    assert f"{path.parent} is made anew from the commit log" in caplog.text
    caplog.clear()
    with opened(directory) as store:
        assert len(bodies(store)) == 26
    assert caplog.text == ""


def test_a_queue_file_missing_in_between_is_made_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x"] * 25)
    (tmp_path / "consumequeue" / TOPIC / "0" / f"{200:020d}").unlink()
    with opened(tmp_path) as store:
        assert len(bodies(store)) == 25


def test_a_crash_while_a_damaged_queue_is_made_anew_is_survived(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with opened(live) as store:
        put(store, *[b"x"] * 25)
    truncate(live / "consumequeue" / TOPIC / "0" / f"{200:020d}", 30)
    copies: list[Path] = []

    class Copying(QuickOps):
        def open(self, path: Path, flags: int) -> int:
            copies.append(after_crash(live, tmp_path / f"crashed-{len(copies)}"))
            return super().open(path, flags)

    with opened(live, ops=Copying()) as store:
        assert len(bodies(store)) == 25
    assert copies
    for copy in copies:
        with opened(copy) as store:
            assert len(bodies(store)) == 25


def test_a_hole_that_a_power_cut_left_stays_one_when_a_queue_file_is_cut_short(
    tmp_path: Path,
) -> None:
    source = crashed(tmp_path, [b"1", b"2", b"3"], flushed=True)
    overwrite(source / LOG_FILE, log_records(source)[0][2].physical_offset, bytes(8))
    truncate(source / QUEUE_FILE, 90)
    with opened(source) as store:
        assert bodies(store) == [b"marked", b"1"]


def test_queue_files_of_another_setting_are_told_as_that(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x"] * 25)
    with pytest.raises(CorruptStoreError, match=r"makes 400.*setting.*\(that was 10\)"):
        MessageStore.open(tmp_path, small(consume_queue_units=20))
    overwrite(tmp_path / "checkpoint", 1024, bytes(1024))  # as Apache leaves it
    with pytest.raises(CorruptStoreError, match=r"makes 400.*setting.*cut short, delete"):
        MessageStore.open(tmp_path, small(consume_queue_units=20))
    truncate(tmp_path / QUEUE_FILE, 60)
    with opened(tmp_path) as store:  # its other files have the size
        assert len(bodies(store)) == 25


@pytest.mark.parametrize("size", [0, 30, 60, 140])
def test_a_damaged_queue_whose_messages_are_gone_keeps_what_it_had_reached(
    tmp_path: Path, size: int
) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"x"] * 14, topic="Old")
        put(store, *[b"x" * 900] * 5)
    (tmp_path / LOG_FILE).unlink()
    last = tmp_path / "consumequeue" / "Old" / "0" / f"{200:020d}"
    truncate(last.with_name("0" * 20), 140)
    truncate(last, size)
    reached = 10 + min(size // 20, 4) if size else 7
    with opened(tmp_path) as store:
        assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (reached, reached)
        put(store, b"new", topic="Old")
        assert bodies(store, "Old") == [b"new"]
