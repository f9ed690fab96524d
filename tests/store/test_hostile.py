"""Hostile names, lengths, properties and offsets: nothing outside the store, memory bounded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.errors import IllegalNameError, InvalidMessageError, RecordError
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.record import Draft, encode_record
from tests.store.support import HOST, TOPIC, QuickOps, bodies, draft, opened, put, small

LOG_FILE = Path("commitlog") / ("0" * 20)
HUGE = 2**63 - 1


def tree(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*")}


@pytest.mark.parametrize(
    "topic", ["../x", "../../x", "/etc/x", "a/b", "..", ".", "", "a\0b", "x" * 256, "ä" * 128]
)
def test_names_that_would_lead_elsewhere_are_refused(tmp_path: Path, topic: str) -> None:
    store_directory = tmp_path / "outer" / "store"
    with opened(store_directory) as store:
        put(store, b"x")
        before = tree(tmp_path)
        with pytest.raises(IllegalNameError):
            store.append(draft(b"y", topic))
        assert store.staged == 0
        put(store, b"z")
        assert bodies(store) == [b"x", b"z"]
        assert tree(tmp_path) == before


@pytest.mark.parametrize("topic", ["../x", "../../x", "/etc/x", "..", ".", "a/b"])
def test_names_in_a_log_from_elsewhere_get_no_queue(tmp_path: Path, topic: str) -> None:
    """A directory may have been made by someone else."""
    store_directory = tmp_path / "outer" / "store"
    with opened(store_directory) as store:
        put(store, b"x")
        end = store.max_physical_offset
    before = {path for path in tree(tmp_path) if "store" not in path.parts}
    with (store_directory / LOG_FILE).open("r+b") as file:
        file.seek(end)
        file.write(encode_record(draft(b"hostile", topic), 0, end, 1))
    for _ in range(2):
        with opened(store_directory) as store:
            assert store.topics() == {TOPIC: [0]}
            assert store.max_physical_offset > end
            assert {path for path in tree(tmp_path) if "store" not in path.parts} == before
        (store_directory / "checkpoint").unlink()


@settings(max_examples=80)
@example(queue_offset=HUGE // 20, queue_id=1, size=0, properties=b"")
@example(queue_offset=2, queue_id=0, size=0, properties=b"")
@example(queue_offset=0, queue_id=0, size=0, properties=b"")
@given(
    queue_offset=st.integers(-(2**63), HUGE),
    queue_id=st.integers(-(2**31), 2**31 - 1),
    size=st.integers(0, 300),
    properties=st.binary(max_size=50),
)
def test_a_log_with_any_numbers_is_read_in_bounded_memory(
    tmp_path_factory: pytest.TempPathFactory,
    queue_offset: int,
    queue_id: int,
    size: int,
    properties: bytes,
) -> None:
    directory = tmp_path_factory.mktemp("numbers")
    with opened(directory) as store:
        put(store, b"x")
        end = store.max_physical_offset
    hostile = Draft(TOPIC, queue_id, bytes(size), properties, 0, 0, 0, 1, HOST, HOST)
    with (directory / LOG_FILE).open("r+b") as file:
        file.seek(end)
        file.write(encode_record(hostile, queue_offset, end, 1))
    with opened(directory) as store:
        (place,) = put(store, b"y")
        unit = store.read_units(TOPIC, 0, store.max_offset(TOPIC, 0) - 1, 1)[0]
        assert unit.physical_offset == place
        for queue in store._table.all():
            assert len(queue._tail.units) < 1000
    shutil.rmtree(directory)


@settings(max_examples=100)
@given(
    offset=st.integers(-(2**63), HUGE),
    count=st.integers(-5, HUGE),
    size=st.integers(-5, HUGE),
)
def test_reads_at_any_offset_and_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, offset: int, count: int, size: int
) -> None:
    directory = tmp_path_factory.mktemp("reads")
    with opened(directory) as store:
        put(store, *[b"x"] * 25)
        result = store.get_messages(TOPIC, 0, offset, count, size)
        assert result.count <= 25
        assert 0 <= result.next_begin_offset <= 30
        assert len(store.read_units(TOPIC, 0, offset, count)) <= 25
        store.record_at(offset)
        assert store.store_timestamp_at(TOPIC, 0, offset) >= -1
    shutil.rmtree(directory)


def test_what_is_too_long_is_refused_before_anything_is_made_of_it(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, small(max_message_size=1000), ops=QuickOps())
    try:
        with pytest.raises(InvalidMessageError, match="max_message_size"):
            store.append(draft(bytes(1001)))
        with pytest.raises(RecordError):
            store.append(Draft(TOPIC, 0, b"", bytes(40_000), 0, 0, 0, 1, HOST, HOST))
        with pytest.raises(IllegalNameError):
            store.append(draft(b"x", queue_id=-1))
        assert store.staged == 0
        put(store, b"sound")
        assert bodies(store) == [b"sound"]
    finally:
        store.close()
