"""Damage of the commit log that no crash explains: told, passed over, nothing else lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import CorruptStoreError
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.message_view import decode_records
from orbitmq.wire.record import is_blank
from tests.store.support import (
    TOPIC,
    QuickOps,
    after_crash,
    bodies,
    log_records,
    opened,
    put,
    small,
)

LOG_FILE = Path("commitlog") / ("0" * 20)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def readable(store: MessageStore, topic: str = TOPIC) -> list[bytes]:
    """What a consumer gets that pulls from the minimum on, wherever it is sent next."""
    found = []
    offset = store.min_offset(topic, 0)
    while offset < store.max_offset(topic, 0):
        result = store.get_messages(topic, 0, offset, 3, 1 << 20)
        found += [view.body for view in decode_records(b"".join(result.slices))]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def damaged(directory: Path) -> tuple[Path, int]:
    """A properly closed store of three files, with a hole in the second; where the hole is."""
    with opened(directory) as store:
        put(store, *[bytes([n]) * 900 for n in range(10)])
    place = log_records(directory)[0][5].physical_offset
    overwrite(directory / "commitlog" / f"{4096:020d}", place - 4096, bytes(50))
    (directory / "checkpoint").unlink()
    return directory, place


def test_damage_is_told_with_its_place_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, place = damaged(tmp_path / "store")
    sent = [bytes([n]) * 900 for n in range(10)]
    for _ in range(2):
        with opened(directory) as store:
            assert readable(store) == sent[:5] + sent[6:]
            assert store.max_offset(TOPIC, 0) == 10
        (directory / "checkpoint").unlink()
    assert f"is damaged at physical offset {place}: there is no sound message up to" in caplog.text
    with opened(directory) as store:
        ((start, end),) = store.damages
        assert start == place < end
        assert store.record_at(end) is not None
        put(store, b"next")
    caplog.clear()
    with opened(directory) as store:  # it is behind the mark now
        assert store.damages == ()
        assert readable(store) == [*sent[:5], *sent[6:], b"next"]
    assert caplog.text == ""


def test_what_was_there_before_the_damage_keeps_its_bytes(tmp_path: Path) -> None:
    directory, _ = damaged(tmp_path / "store")
    before = {path: path.read_bytes() for path in (directory / "commitlog").iterdir()}
    with opened(directory):
        pass
    assert {path: path.read_bytes() for path in (directory / "commitlog").iterdir()} == before


def test_damage_in_a_properly_closed_store_behind_the_mark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache added files after the mark and closed; then one of them was damaged."""
    with opened(tmp_path) as store:
        put(store, b"ours")
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    sent = [b"%02d" % n + b"theirs" * 100 for n in range(20)]
    with opened(tmp_path) as store:
        put(store, *sent)
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    place = log_records(tmp_path)[0][3].physical_offset
    overwrite(tmp_path / LOG_FILE, place, bytes(50))
    with opened(tmp_path) as store:
        assert readable(store) == [b"ours", *sent[:2], *sent[3:]]
        assert store.max_offset(TOPIC, 0) == 21
    assert f"is damaged at physical offset {place}" in caplog.text
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    (tmp_path / "abort").touch()  # a crash: then it may be what a power cut left
    with opened(tmp_path) as store:
        assert len(bodies(store)) == 3


def test_damage_is_cut_when_the_user_says_so(tmp_path: Path) -> None:
    directory, _ = damaged(tmp_path / "store")
    with opened(directory, small(cut_damaged_log=True)) as store:
        assert len(bodies(store)) == 5
        put(store, b"next")
    with opened(directory) as store:
        assert bodies(store)[5:] == [b"next"]


def test_what_cut_damaged_log_drops_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, place = damaged(tmp_path / "store")
    with opened(directory, small(cut_damaged_log=True)):
        pass
    assert f"is damaged at physical offset {place}: all that follows is given up" in caplog.text


@pytest.mark.parametrize("clean", [False, True])
def test_a_missing_file_in_the_middle_costs_its_messages_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, clean: bool
) -> None:
    live = tmp_path / "live"
    sent = [b"%02d" % n + b"x" * 900 for n in range(12)]
    with opened(live) as store:
        put(store, *sent)
        put(store, b"in the last file")
        crashed = after_crash(live, tmp_path / "crashed")
    directory = live if clean else crashed
    missing = directory / "commitlog" / f"{4096:020d}"
    missing.unlink()
    for _ in range(2):
        with opened(directory) as store:
            assert readable(store) == [*sent[:4], *sent[8:], b"in the last file"]
            assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, 13)
    assert caplog.text.count(f"{missing} is missing between others") == 1
    assert is_blank(missing.read_bytes(), 0, 4096)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 90, 2500, 4095])
def test_a_file_cut_short_costs_what_was_cut_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, size: int, *, clean: bool
) -> None:
    live = tmp_path / "live"
    sent = [b"%02d" % n + b"x" * 900 for n in range(14)]
    with opened(live) as store:
        put(store, *sent)
        put(store, b"also", topic="Other")
        store._queue_flusher.flush(renew_mark=True)
        crashed = after_crash(live, tmp_path / "crashed")
    directory = live if clean else crashed
    path = directory / "commitlog" / f"{number * 4096:020d}"
    end = {info.physical_offset + info.size: n for n, info in enumerate(log_records(live)[0])}
    lost = {n for place, n in end.items() if number * 4096 + size < place <= (number + 1) * 4096}
    truncate(path, size)
    expected = [body for n, body in enumerate(sent) if n not in lost]
    for _ in range(2):
        with opened(directory) as store:
            assert readable(store) == expected
            assert readable(store, "Other") == ([] if 14 in lost else [b"also"])
            assert (store.max_offset(TOPIC, 0), store.max_offset("Other", 0)) == (14, 1)
            put(store, b"next", topic="Next")
    assert caplog.text.count(f"{path} has been cut short to {size} bytes") == 1


def test_files_of_another_setting_are_refused_and_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path, small(mapped_file_size=4096)) as store:
        put(store, *[b"x" * 900] * 10)
    for size in (8192, 2048):
        with pytest.raises(CorruptStoreError, match="has 4096 bytes, but mapped_file_size makes"):
            MessageStore.open(tmp_path, small(mapped_file_size=size))
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(CorruptStoreError, match="has 4096 bytes, but mapped_file_size makes"):
        MessageStore.open(tmp_path, small(mapped_file_size=8192))
    with opened(tmp_path) as store:
        assert len(bodies(store)) == 10


def test_a_missing_last_file_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = [b"%02d" % n + b"x" * 900 for n in range(10)]
    with opened(tmp_path) as store:
        put(store, *sent)
        end = store.max_physical_offset
    (tmp_path / "commitlog" / f"{8192:020d}").unlink()
    with opened(tmp_path) as store:
        assert bodies(store) == sent[:8]
    assert f"ends at physical offset 8192, but {end - 8192} bytes more were stored" in caplog.text


def test_a_crash_while_files_are_mended_is_survived(tmp_path: Path) -> None:
    live = tmp_path / "live"
    sent = [b"%02d" % n + b"x" * 900 for n in range(12)]
    with opened(live) as store:
        put(store, *sent)
    (live / "commitlog" / f"{4096:020d}").unlink()
    truncate(live / LOG_FILE, 1500)
    copies: list[Path] = []
    lock = Lock()

    class Copying(QuickOps):
        def copy(self) -> None:
            with lock:
                copies.append(after_crash(live, tmp_path / f"crashed-{len(copies)}"))

        def open(self, path: Path, flags: int) -> int:
            self.copy()
            return super().open(path, flags)

        def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
            self.copy()
            return super().pwrite(fd, data, position)

    with opened(live, ops=Copying()) as store:
        expected = readable(store)
    assert expected == [sent[0], *sent[8:]]
    assert len(copies) > 5
    for copy in copies:
        with opened(copy) as store:
            assert readable(store) == expected


@settings(max_examples=60)
@given(
    flips=st.lists(st.tuples(st.integers(0, 29), st.floats(0, 1), st.integers(1, 255)), max_size=4),
    holes=st.lists(st.tuples(st.integers(0, 3 * 4096 - 1), st.integers(100, 3000)), max_size=2),
)
def test_whatever_is_damaged_the_sound_messages_stay_readable(
    tmp_path_factory: pytest.TempPathFactory,
    flips: list[tuple[int, float, int]],
    holes: list[tuple[int, int]],
) -> None:
    """Flipped are bytes of bodies: most of the others are not under a record's checksum."""
    directory = tmp_path_factory.mktemp("damaged")
    sent = [b"%02d" % n + b"x" * (n * 97 % 700) for n in range(30)]
    with opened(directory) as store:
        put(store, *sent)
    records, _ = log_records(directory)
    files = sorted((directory / "commitlog").iterdir())
    log = bytearray(b"".join(path.read_bytes() for path in files))
    before = bytes(log)
    for number, place, bits in flips:
        position = records[number].physical_offset + 88 + int(place * (len(sent[number]) - 1))
        log[position] ^= bits
    for start, length in holes:
        log[start : start + length] = bytes(len(log[start : start + length]))
    for n, path in enumerate(files):
        path.write_bytes(log[n * 4096 : (n + 1) * 4096])
    (directory / "checkpoint").unlink()
    ranges = [slice(info.physical_offset, info.physical_offset + info.size) for info in records]
    sound = [body for body, place in zip(sent, ranges, strict=True) if log[place] == before[place]]
    with opened(directory) as store:
        assert readable(store) == sound
    shutil.rmtree(directory)


def test_lost_messages_are_taken_for_no_others(tmp_path: Path) -> None:
    directory, place = damaged(tmp_path / "store")
    with opened(directory) as store:
        (filler,) = store.read_units(TOPIC, 0, 5, 1)
        assert place < filler.physical_offset
        assert store.record_at(filler.physical_offset) is None
        times = [store.store_timestamp_at(TOPIC, 0, offset) for offset in range(10)]
        assert times == sorted(times)
        assert times[5] == times[6]


def test_what_a_queue_had_reached_stays_when_nothing_comes_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"%02d" % n + b"x" * 900 for n in range(6)])
        put(store, b"cut", topic="Other")
    truncate(tmp_path / "commitlog" / f"{4096:020d}", 100)
    for number in range(3):
        caplog.clear()
        with opened(tmp_path) as store:
            assert (store.max_offset(TOPIC, 0), store.max_offset("Other", 0)) == (6, 1)
            assert len(readable(store)) == 4
        assert ("cut short" in caplog.text) == (number == 0)
        assert number == 0 or caplog.text == ""
