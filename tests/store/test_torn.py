"""The last record of a crashed log: whole or torn, also where its properties end in NUL bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import InvalidMessageError
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.ids import host_bytes
from orbitmq.wire.properties import MAX_PROPERTIES_BYTES, decode_properties
from orbitmq.wire.record import Draft, encode_batch, encode_record
from tests.store.support import (
    TOPIC,
    QuickOps,
    after_crash,
    bodies,
    log_records,
    messages,
    opened,
    put,
    small,
)

HOST = host_bytes("127.0.0.1", 10911)
LOG_FILE = Path("commitlog") / ("0" * 20)
SIZE = 4096


def with_properties(properties: bytes, body: bytes = b"body") -> Draft:
    return Draft(TOPIC, 0, body, properties, 0, 0, 0, 1, HOST, HOST)


def crashed(directory: Path, batch: list[Draft], *, marked: bool) -> Path:
    """What a kill leaves of a store that wrote one message, and then ``batch`` at once."""
    with opened(directory / "live") as store:
        put(store, b"before")
        if marked:
            store._queue_flusher.flush(renew_mark=True)
        for message in batch:
            store.append(message)
        store.write()
        return after_crash(directory / "live", directory / "crashed")


def check_torn(source: Path, scratch: Path, position: int) -> None:
    """Nothing from ``position`` on was written: what is whole stays, and the store goes on."""
    records, _ = log_records(source)
    log = (source / LOG_FILE).read_bytes()
    torn = log[:position] + bytes(SIZE - position)
    whole = [info for info in records if torn.startswith(log[: info.physical_offset + info.size])]
    copy = after_crash(source, scratch)
    (copy / LOG_FILE).write_bytes(torn)
    for added in range(2):
        with opened(copy) as store:
            found = messages(store)
            assert len(found) == len(whole) + added
            for view, info in zip(found, whole, strict=False):
                assert view.properties == decode_properties(info.properties)
            if not added:
                put(store, b"next")
    assert len(log_records(copy)[0]) == len(whole) + 1
    shutil.rmtree(copy)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("properties", [b"K\x01v\0", b"K\x01\0\0\0\x02L\x01\0\0", b"\0\0\0"])
def test_a_record_that_ends_in_nul_torn_at_each_byte(
    tmp_path: Path, properties: bytes, *, marked: bool
) -> None:
    source = crashed(tmp_path, [with_properties(properties)] * 2, marked=marked)
    records, end = log_records(source)
    assert len(records) == 3
    for position in range(records[2].physical_offset, end + 1):
        check_torn(source, tmp_path / "torn", position)


properties = st.one_of(
    st.binary(max_size=30),
    st.text("ab\0\1\2", max_size=20).map(str.encode),
    st.builds(lambda text, count: text + b"\0" * count, st.binary(max_size=8), st.integers(1, 9)),
)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.lists(st.tuples(properties, st.binary(max_size=30)), min_size=1, max_size=5),
    marked=st.booleans(),
    place=st.floats(0, 1),
)
def test_any_batch_torn_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[tuple[bytes, bytes]],
    place: float,
    *,
    marked: bool,
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    source = crashed(directory, [with_properties(*item) for item in batch], marked=marked)
    records, end = log_records(source)
    begin = records[1].physical_offset
    check_torn(source, directory / "copy", begin + round((end - begin) * place))
    shutil.rmtree(directory)


@settings(max_examples=30, deadline=None)
@given(value=st.binary(max_size=20).map(lambda value: value + b"\0"))
def test_a_property_that_ends_in_nul_is_read_as_it_was_sent(
    tmp_path_factory: pytest.TempPathFactory, value: bytes
) -> None:
    directory = tmp_path_factory.mktemp("value")
    with opened(directory) as store:
        store.append(with_properties(b"K\x01" + value))
        store.write()
        (message,) = messages(store)
    assert message.properties == decode_properties(b"K\x01" + value)
    shutil.rmtree(directory)


@pytest.mark.parametrize("abort", [None, "", "4711"])
@pytest.mark.parametrize("marked", [False, True])
def test_a_last_record_of_apaches_that_ends_in_nul_is_kept(
    tmp_path: Path, abort: str | None, *, marked: bool
) -> None:
    """Whether Apache's broker closed the directory, or was killed: it had acknowledged it."""
    live = tmp_path / "live"
    with opened(live) as store:
        put(store, b"ours")
        end = store.max_physical_offset
    if not marked:
        (live / "checkpoint").unlink()
    draft = with_properties(b"K\x01v\0\0", b"theirs")
    with (live / LOG_FILE).open("r+b") as file:
        file.seek(end)
        file.write(encode_record(draft, 1, end, 1))
    if abort is not None:
        (live / "abort").write_text(abort)
    with opened(live) as store:
        assert bodies(store) == [b"ours", b"theirs"]
        killed = after_crash(live, tmp_path / "killed")
    with opened(killed) as store:  # it was whole before, so it is still
        assert bodies(store) == [b"ours", b"theirs"]
        put(store, b"next")
    with opened(killed) as store:
        assert bodies(store) == [b"ours", b"theirs", b"next"]


def test_properties_that_leave_no_room_for_the_separator_are_refused(tmp_path: Path) -> None:
    config = small(mapped_file_size=1 << 17)
    with opened(tmp_path, config) as store:
        longest = bytes(MAX_PROPERTIES_BYTES)
        items = [(0, b"body", b""), (0, b"body", longest)]
        with pytest.raises(InvalidMessageError, match="cannot end in a NUL"):
            store.append_batch(with_properties(b""), encode_batch(items))
        assert store.staged == 0
        store.append(with_properties(longest[1:]))


def test_a_batch_with_one_message_too_long_is_refused_as_a_whole(tmp_path: Path) -> None:
    with opened(tmp_path, small(max_message_size=1 << 20)) as store:
        items = [(0, b"body", b""), (0, bytes(SIZE), b"")]
        with pytest.raises(InvalidMessageError, match="mapped_file_size"):
            store.append_batch(with_properties(b""), encode_batch(items))
        assert store.staged == 0


def test_the_last_record_of_a_directory_in_use_twice_is_not_lost(tmp_path: Path) -> None:
    """Closed by Apache with such a record, opened, and killed during the very opening."""
    with opened(tmp_path / "a") as store:
        put(store, b"ours")
        end = store.max_physical_offset
    with (tmp_path / "a" / LOG_FILE).open("r+b") as file:
        file.seek(end)
        file.write(encode_record(with_properties(b"K\x01v\0", b"theirs"), 1, end, 1))
    copies: list[Path] = []

    class Copying(QuickOps):
        def fsync_directory(self, path: Path) -> None:
            copies.append(after_crash(tmp_path / "a", tmp_path / f"copy-{len(copies)}"))

    MessageStore.open(tmp_path / "a", small(), ops=Copying()).close()
    assert copies
    for copy in copies:
        with opened(copy) as store:
            assert bodies(store) == [b"ours", b"theirs"]
