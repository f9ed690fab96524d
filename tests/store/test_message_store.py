"""Appending, writing and reading: places, formats on disk, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import (
    CorruptStoreError,
    IllegalNameError,
    InvalidMessageError,
    RecordError,
    StoreError,
)
from orbitmq.store.appended import Written, arrivals
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.ids import tags_code
from orbitmq.wire.message_view import decode_record
from orbitmq.wire.record import (
    BLANK_MAGIC,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    encode_batch,
    record_size,
)
from tests.store.support import (
    TOPIC,
    QuickOps,
    bodies,
    draft,
    log_bytes,
    log_records,
    messages,
    opened,
    put,
    queue_units,
    small,
)


def test_a_message_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(tmp_path, clock=clock) as store:
        one = store.append(draft(b"one", tags="A", properties={"KEYS": "k"}))
        two = store.append(draft(b"two", queue_id=3))
        assert store.staged == 2
        assert store.max_offset(TOPIC, 0) == 0
        store.write()
        assert store.staged == 0
        assert (one.queue_offset, one.physical_offset) == (0, 0)
        assert (two.queue_offset, two.physical_offset) == (0, one.size)
        assert one.store_timestamp == clock.now_ms()
        (view,) = messages(store)
        assert (view.body, view.tags, view.keys) == (b"one", "A", "k")
        assert view.store_timestamp == clock.now_ms()
        assert bodies(store, queue_id=3) == [b"two"]
        assert store.topics() == {TOPIC: [0, 3]}


def test_files_are_apaches_own(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert (tmp_path / "abort").exists()
        put(store, *[b"x" * 900] * 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "lock",
    ]
    logs = sorted((tmp_path / "commitlog").iterdir())
    assert [path.name for path in logs] == ["00000000000000000000", "00000000000000004096"]
    assert [path.stat().st_size for path in logs] == [4096, 4096]
    (queue,) = (tmp_path / "consumequeue" / TOPIC / "0").iterdir()
    assert (queue.name, queue.stat().st_size) == ("0" * 20, 200)
    assert (tmp_path / "checkpoint").stat().st_size == 4096
    records, _ = log_records(tmp_path)
    assert [UNIT.unpack(unit) for unit in queue_units(tmp_path)] == [
        (info.physical_offset, info.size, 0) for info in records
    ]


def test_default_files_are_large_but_sparse(tmp_path: Path) -> None:
    with opened(tmp_path, StoreConfig()) as store:
        put(store, b"x")
    log = tmp_path / "commitlog" / ("0" * 20)
    queue = tmp_path / "consumequeue" / TOPIC / "0" / ("0" * 20)
    assert log.stat().st_size == 1 << 30
    assert queue.stat().st_size == 6_000_000
    assert log.stat().st_blocks * 512 + queue.stat().st_blocks * 512 < 1 << 20


def test_a_full_file_ends_with_a_blank_record(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        size = record_size(draft(b""))
        fits = 4096 - size - 8
        first, second = put(store, b"a" * fits, b"b")
        assert (first, second) == (0, 4096)
        (third,) = put(store, b"c" * 3900)
        assert third == 8192
        assert bodies(store) == [b"a" * fits, b"b", b"c" * 3900]
        assert [len(store.get_messages(TOPIC, 0, 0, 3, 1 << 20).slices)] == [3]
    data = log_bytes(tmp_path)
    assert data[4088:4096] == (8).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
    blank = 4096 + size + 1
    assert data[blank : blank + 4] == (8192 - blank).to_bytes(4, "big")


def test_messages_too_large_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, small(max_message_size=5000)) as store:
        with pytest.raises(InvalidMessageError, match="5001 bytes is longer than 5000"):
            store.append(draft(b"x" * 5001))
        with pytest.raises(InvalidMessageError, match="mapped_file_size"):
            store.append(draft(b"x" * 4500))
        with pytest.raises(RecordError):
            store.append(draft(b"x", queue_id=2**31))
        assert store.staged == 0
        assert put(store, b"fits") == [0]
        assert bodies(store) == [b"fits"]


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "t" * 256])
def test_topics_that_cannot_be_directories_are_refused(tmp_path: Path, topic: str) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(IllegalNameError):
            store.append(draft(b"x", topic=topic))
        with pytest.raises(IllegalNameError):
            store.append(draft(b"x", queue_id=-1))
        assert store.staged == 0


def test_topics_over_127_bytes_make_v2_records(tmp_path: Path) -> None:
    topic = "%RETRY%" + "g" * 130
    with opened(tmp_path) as store:
        put(store, b"x", topic=topic)
    with opened(tmp_path) as store:
        assert [view.topic for view in messages(store, topic)] == [topic]


def test_prepared_and_rolled_back_messages_enter_no_queue(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for flag in (TRANSACTION_PREPARED, 0, TRANSACTION_ROLLBACK, TRANSACTION_COMMIT):
            store.append(draft(bytes([flag]), sys_flag=flag))
        store.write()
        assert bodies(store) == [b"\x00", bytes([TRANSACTION_COMMIT])]
        only_prepared = store.append(draft(b"p", sys_flag=TRANSACTION_PREPARED))
        store.write()
        record = store.record_at(only_prepared.physical_offset)
        assert record is not None
        assert decode_record(record).queue_offset == 0
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert bodies(store) == [b"\x00", bytes([TRANSACTION_COMMIT])]


def test_delayed_messages_are_queued_under_their_delivery_time(tmp_path: Path) -> None:
    clock = ManualClock()
    topic = "SCHEDULE_TOPIC_XXXX"
    with opened(tmp_path, clock=clock) as store:
        for delay in ({"DELAY": "2"}, {"DELAY": "99"}, {}):
            store.append(draft(b"x", topic, 1, "A", delay))
        store.write()
        times = [unit.tags_code for unit in store.read_units(topic, 1, 0, 10)]
        assert times == [clock.now_ms() + 5_000, clock.now_ms() + 7_200_000, tags_code("A")]
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert [unit.tags_code for unit in store.read_units(topic, 1, 0, 10)] == times


def test_listeners_hear_queue_by_queue_what_a_write_brought(tmp_path: Path) -> None:
    heard: list[dict[int, list[tuple[int, int, int]]]] = []

    def listen(written: Written) -> None:
        assert {queue.topic for queue in written.by_queue} == {TOPIC}
        heard.append(
            {queue.queue_id: list(arrivals(runs)) for queue, runs in written.by_queue.items()}
        )

    with opened(tmp_path) as store:
        store.add_write_listener(listen)
        one, two, three = (
            store.append(draft(b"x", queue_id=queue_id, tags=tag)).physical_offset
            for queue_id, tag in ((0, "A"), (1, "A"), (0, "B"))
        )
        store.append(draft(b"x", sys_flag=TRANSACTION_PREPARED))
        items = [(0, b"y", b"city\x011\x02"), (0, b"y", b"TAGS\x01B\x02")]
        four, five = store.append_batch(draft(b""), encode_batch(items)).physical_offsets
        assert heard == []
        store.write()
        store.write()
    a, b = (tags_code(tag) for tag in "AB")
    of_batch = [(3, 0, four), (4, b, five)]
    assert heard == [{0: [(1, a, one), (2, b, three), *of_batch], 1: [(1, a, two)]}]


def test_write_listeners_are_told_once_a_write_of_all_that_was_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[list[tuple[bool, int, int]]] = []

    def fail(written: Written) -> None:
        raise ValueError(f"listener of {written.messages}")

    def listen(written: Written) -> None:
        assert all(run.store_timestamp == clock.now_ms() for run in written.appended)
        heard.append(
            [(run.queue is not None, run.queue_offset, run.size) for run in written.appended]
        )

    clock = ManualClock()

    with opened(tmp_path, clock=clock) as store:
        store.add_write_listener(fail)
        store.add_write_listener(listen)
        store.append(draft(b"one", tags="A"))
        store.append(draft(b"half", sys_flag=TRANSACTION_PREPARED))
        assert heard == []
        store.write()
        store.write()
        put(store, b"two")
    drafts = draft(b"one", tags="A"), draft(b"half"), draft(b"two")
    one, half, two = map(record_size, drafts)
    assert heard == [
        [(True, 0, one), (False, 0, half)],
        [(True, 1, two)],
    ]
    assert "a write listener failed for 2 messages" in caplog.text


def test_records_are_found_by_their_place_only(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        places = put(store, b"one", b"x" * 1900, b"y" * 1900, b"z")
        for place, body in zip(places, (b"one", b"x" * 1900), strict=False):
            record = store.record_at(place)
            assert record is not None
            assert decode_record(record).body == body
        blank = places[1] + record_size(draft(b"x" * 1900))
        for elsewhere in (-1, 1, places[1] + 1, blank, store.max_physical_offset, 1 << 60):
            assert store.record_at(elsewhere) is None


def test_a_deleted_topic_begins_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"old"] * 12)
        put(store, b"other", topic="Other")
    with opened(tmp_path) as store:
        assert store.delete_topic(TOPIC)
        assert not store.delete_topic(TOPIC)
        wait_until(lambda: not (tmp_path / "consumequeue" / TOPIC).exists(), "the files removed")
        assert store.topics() == {"Other": [0]}
        put(store, b"new")
        assert bodies(store) == [b"new"]
    with opened(tmp_path) as store:
        assert bodies(store) == [b"new"]
        assert bodies(store, "Other") == [b"other"]
    (tmp_path / "checkpoint").unlink()
    with opened(tmp_path) as store:
        assert bodies(store) == [b"new"]


@given(st.lists(st.sampled_from(["put", "put", "delete", "flush", "mark", "reopen"]), max_size=30))
def test_a_topic_may_be_deleted_and_made_again_at_any_moment(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    expected: list[bytes] = []
    store = MessageStore.open(directory, small(consume_queue_units=3), ops=QuickOps())
    try:
        for number, step in enumerate([*steps, "reopen"]):
            if step == "put":
                expected.append(b"%d" % number)
                put(store, expected[-1])
            elif step == "delete":
                assert store.delete_topic(TOPIC) is bool(expected)
                expected = []
            elif step == "reopen":
                store.close()
                store = MessageStore.open(directory, small(consume_queue_units=3), ops=QuickOps())
            else:
                store._queue_flusher.flush(renew_mark=step == "mark")
            assert bodies(store) == expected
    finally:
        store.close()


def test_a_slice_outlives_the_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"still here")
        (record,) = store.get_messages(TOPIC, 0, 0, 1, 1000).slices
    assert decode_record(record).body == b"still here"


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, small(), ops=QuickOps())
    put(store, b"x")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.append(draft(b"y"))
    assert store.record_at(0) is None
    assert log_records(tmp_path)[0][-1].queue_offset == 0


def test_close_writes_what_is_staged(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(draft(b"staged"))
    with opened(tmp_path) as store:
        assert bodies(store) == [b"staged"]


def test_files_of_another_size_are_not_touched(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"x")
    with pytest.raises(CorruptStoreError, match="has 4096 bytes, but mapped_file_size makes 8192"):
        MessageStore.open(tmp_path, small(mapped_file_size=8192))
    with pytest.raises(CorruptStoreError, match="has 200 bytes, but consume_queue_units makes 400"):
        MessageStore.open(tmp_path, small(consume_queue_units=20))
    with opened(tmp_path) as store:
        assert bodies(store) == [b"x"]


@given(sizes=st.lists(st.lists(st.integers(0, 900), max_size=8), max_size=8))
def test_every_record_is_in_the_log_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    with opened(directory, small(mapped_file_size=1024)) as store:
        for tick in sizes:
            put(store, *[b"x" * size for size in tick])
        expected = [size for tick in sizes for size in tick]
        assert [len(body) for body in bodies(store)] == expected
        end = store.max_physical_offset
    records, walked = log_records(directory, 1024)
    assert walked == end
    assert [info.queue_offset for info in records] == list(range(len(expected)))
