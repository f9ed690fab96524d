"""A batch is stored as its messages would be, one after the other; all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import DiskFullError, InvalidMessageError, RecordError, StoreError
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.ids import host_bytes, tags_code
from orbitmq.wire.properties import find_property
from orbitmq.wire.record import TRANSACTION_PREPARED, BatchItem, Draft, encode_batch
from tests.store.support import (
    HOST,
    TOPIC,
    FullDisk,
    bodies,
    draft,
    log_bytes,
    messages,
    opened,
    put,
    small,
)

V6 = host_bytes("::1", 1)
ITEMS = st.lists(
    st.tuples(
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.binary(max_size=300),
        st.sampled_from(
            [b"", b"a\x01b\x02", b"KEYS\x01k1 k2\x02TAGS\x01A\x02", b"torn\x01\0", bytes(99)]
        ),
    ),
    min_size=1,
    max_size=12,
)
HOSTS = st.sampled_from([HOST, V6])
COMMON = st.builds(
    Draft,
    topic=st.sampled_from([TOPIC, "t" * 128]),
    queue_id=st.integers(0, 1),
    body=st.just(b""),
    properties=st.just(b""),
    tags_code=st.just(0),
    flag=st.just(0),
    sys_flag=st.sampled_from([0, 2, 0x30, TRANSACTION_PREPARED]),
    born_timestamp=st.integers(-(1 << 63), (1 << 63) - 1),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.integers(0, 3),
)


def one_by_one(store: MessageStore, common: Draft, items: list[BatchItem]) -> list[int]:
    """Append each message by itself; their physical offsets."""
    return [
        store.append(
            msgspec.structs.replace(
                common,
                flag=flag,
                body=body,
                properties=properties,
                tags_code=tags_code(find_property(properties, "TAGS")),
            )
        ).physical_offset
        for flag, body, properties in items
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(COMMON, ITEMS), min_size=1, max_size=3), st.integers(0, 900))
def test_a_batch_leaves_the_bytes_its_messages_would(
    batches: list[tuple[Draft, list[BatchItem]]], before: int
) -> None:
    clock = ManualClock()
    with TemporaryDirectory() as directory:
        first, second = Path(directory) / "batch", Path(directory) / "singles"
        with (
            opened(first, small(1024), clock) as batch_store,
            opened(second, small(1024), clock) as store,
        ):
            for each in (batch_store, store):
                each.append(draft(bytes(before)))  # so that files end elsewhere
            for common, items in batches:
                placed = batch_store.append_batch(common, encode_batch(items))
                assert placed.physical_offsets == one_by_one(store, common, items)
            for each in (batch_store, store):
                each.write()
            assert batch_store.topics() == store.topics()
            for topic, queues in store.topics().items():
                for queue_id in queues:
                    end = store.max_offset(topic, queue_id)
                    assert batch_store.max_offset(topic, queue_id) == end
                    for start in range(0, end, 10):
                        units = batch_store.read_units(topic, queue_id, start, 10)
                        assert units == store.read_units(topic, queue_id, start, 10)
            assert batch_store.max_physical_offset == store.max_physical_offset
        assert log_bytes(first) == log_bytes(second)
        assert index_bytes(first) == index_bytes(second)


def index_bytes(directory: Path) -> list[bytes]:
    """What the files of the key index hold."""
    return [path.read_bytes() for path in sorted((directory / "index").glob("*"))]


def test_a_batch_is_found_after_a_restart(tmp_path: Path) -> None:
    items = [(n, b"%d" % n, b"KEYS\x01k%d\x02" % n) for n in range(40)]
    with opened(tmp_path) as store:
        placed = store.append_batch(draft(b""), encode_batch(items))
        assert (placed.queue_offset, store.staged) == (0, 40)
        assert store.append(draft(b"next")).queue_offset == 40
        store.write()
        assert store.key_index is not None
        assert store.key_index.find(TOPIC, "k7", 10).offsets == [placed.physical_offsets[7]]
    with opened(tmp_path) as store:
        expected = [(n, b"%d" % n) for n in range(40)]
        assert [(m.flag, m.body) for m in messages(store)[:40]] == expected


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (encode_batch([(0, bytes(5000), b"")]), InvalidMessageError),
        (encode_batch([(0, bytes(4000), b"")]), InvalidMessageError),
        (encode_batch([(0, b"torn", b"a\x01b\x02")])[:-1], RecordError),
    ],
    ids=["body", "record", "torn"],
)
def test_what_cannot_be_stored_keeps_the_whole_batch_out(
    tmp_path: Path, wrong: bytes, error: type[Exception]
) -> None:
    fine = encode_batch([(0, bytes(1500), b"")] * 3)
    with opened(tmp_path) as store:
        with pytest.raises(error):
            store.append_batch(draft(b""), fine + wrong)
        with pytest.raises(RecordError, match="without messages"):
            store.append_batch(draft(b""), b"")
        assert store.staged == 0
        store.write()
        assert put(store, b"next") == [0]
        assert bodies(store) == [b"next"]


def test_a_batch_that_the_disk_does_not_take_gives_its_offsets_back(tmp_path: Path) -> None:
    disk = FullDisk()
    items = [(0, bytes(1500), b"")] * 5
    with opened(tmp_path, ops=disk) as store:
        put(store, b"before")
        disk.room = 2000
        store.append_batch(draft(b""), encode_batch(items))
        with pytest.raises(DiskFullError):
            store.write()
        disk.room = None
        placed = store.append_batch(draft(b""), encode_batch(items[:1]))
        assert (placed.queue_offset, store.staged) == (1, 1)
        store.write()
        assert [len(body) for body in bodies(store)] == [6, 1500]


def test_a_closed_store_takes_no_batch(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        pass
    with pytest.raises(StoreError, match="is closed"):
        store.append_batch(draft(b""), encode_batch([(0, b"x", b"")]))
