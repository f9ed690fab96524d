"""Index files: bytes as Java's algorithm makes them, look-ups against a model, cuts to a save."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.index_file import (
    IndexFile,
    IndexHeader,
    IndexShape,
    IndexWriter,
    Walk,
)
from orbitmq.store.index_keys import KEY, key_hash, message_hashes
from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import encode_properties
from tests.store.support import QuickOps

IndexEntry: TypeAlias = tuple[int, int, int]
"""What is put into an index: hash of the key, physical offset, store time in ms."""

SHAPE = IndexShape(7, 24)
NAME = "20260101000000000"
OPS = QuickOps()

entries = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1) | st.integers(0, 20),
        st.integers(0, 2**50),
        st.integers(0, 2**45) | st.integers(1_700_000_000_000, 1_700_000_900_000),
    ),
    max_size=30,
)


def as_java_writes(put: list[IndexEntry], shape: IndexShape = SHAPE) -> bytes:
    """The file after IndexFile.putKey of each entry, by the description of that method alone."""
    file = bytearray(shape.size)
    begin = [0, 0]
    end = [0, 0]
    used, count = 0, 1
    for hash_, offset, timestamp in put:
        if count >= shape.entries:
            break
        slot = 40 + hash_ % shape.slots * 4
        (previous,) = struct.unpack_from(">i", file, slot)
        previous = previous if 0 < previous <= count else 0
        seconds = max(int((timestamp - begin[0]) / 1000), 0) if begin[0] > 0 else 0
        place = 40 + shape.slots * 4 + count * 20
        struct.pack_into(">iqii", file, place, hash_, offset, min(seconds, 2**31 - 1), previous)
        struct.pack_into(">i", file, slot, count)
        if count <= 1:
            begin = [timestamp, offset]
        used += not previous
        count += 1
        end = [timestamp, offset]
    struct.pack_into(">qqqqii", file, 0, begin[0], end[0], begin[1], end[1], used, count)
    return bytes(file)


def packed(put: list[IndexEntry]) -> bytes:
    return b"".join(KEY.pack(offset, timestamp, hash_) for hash_, offset, timestamp in put)


def found(file: IndexFile, hash_: int, most: int = 1000, steps: int = 1000) -> list[int]:
    walk = Walk(hash_, most, 0, 2**62, steps)
    file.select(walk)
    return walk.found


@settings(deadline=None)
@given(entries, st.integers(1, 9))
def test_a_saved_file_is_javas_byte_for_byte(put: list[IndexEntry], piece: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / NAME
        writer = IndexWriter(OPS, path, SHAPE, create=True)
        for start in range(0, len(put), piece):
            part = put[start : start + piece]
            if writer.put(packed(part)) < len(part) * KEY.size:
                assert writer.is_full
            writer.flush()
        writer.save()
        expected = as_java_writes(put)
        if writer.header.index_count == 1:  # nothing in it: Java writes its header anyway
            expected = struct.pack(">qqqqii", 0, 0, 0, 0, 0, 1) + expected[40:]
        assert path.read_bytes() == expected
        reader = IndexFile(OPS, path, SHAPE)
        kept = put[: SHAPE.entries - 1]
        for hash_ in {hash_ for hash_, *_ in put}:
            newest_first = [offset for other, offset, _ in reversed(kept) if other == hash_]
            if all(timestamp for *_, timestamp in kept):
                assert found(reader, hash_) == newest_first == found(writer, hash_)
                assert found(reader, hash_, most=1) == newest_first[:1]
        again = IndexWriter(OPS, path, SHAPE)
        assert list(again.slots()) == list(writer.slots())
        for file in (reader, writer, again):
            file.close()


@settings(deadline=None)
@given(entries, entries, st.integers(0, 40))
def test_a_file_goes_back_to_what_was_saved(
    before: list[IndexEntry], after: list[IndexEntry], torn: int
) -> None:
    """Killed between the writes of a save: entries first, slots next, the header last."""
    with TemporaryDirectory() as directory:
        path, killed = Path(directory) / NAME, Path(directory) / "killed"
        writer = IndexWriter(OPS, path, SHAPE, create=True)
        writer.put(packed(before))
        writer.flush()
        writer.save()
        saved = writer.header
        old_header = path.read_bytes()[:40]
        writer.put(packed(after))
        writer.flush()
        if torn % 3 == 0:  # the slots did not get there
            shutil.copy(path, killed)
        else:
            writer.save()
            shutil.copy(path, killed)
            if torn % 3 == 1:  # the header did not
                with killed.open("r+b") as file:
                    file.write(old_header)
        writer.close()
        again = IndexWriter(OPS, killed, SHAPE)
        again.cut(saved)
        assert again.header == saved
        again.put(packed(after))
        again.flush()
        again.save()
        again.close()
        assert killed.read_bytes() == as_java_writes([*before, *after][: SHAPE.entries - 1])


def test_the_second_file_begins_behind_the_first(tmp_path: Path) -> None:
    writer = IndexWriter(OPS, tmp_path / NAME, SHAPE, create=True)
    writer.begin_behind(IndexHeader(1_000, 9_000, 100, 900, 3, 24))
    assert writer.header == IndexHeader(9_000, 9_000, 900, 900, 0, 1)
    writer.put(packed([(5, 1000, 12_500)]))
    writer.flush()
    assert writer.header == IndexHeader(12_500, 12_500, 1000, 1000, 1, 2)
    data = (tmp_path / NAME).read_bytes()[SHAPE.first_entry + 20 :]
    assert struct.unpack_from(">iqii", data) == (5, 1000, 3, 0)  # seconds since the file before
    writer.close()


def test_a_look_up_ends_by_time_by_count_and_by_steps(tmp_path: Path) -> None:
    writer = IndexWriter(OPS, tmp_path / NAME, SHAPE, create=True)
    writer.put(packed([(3, number * 100, 1_000_000 + number * 10_000) for number in range(20)]))
    writer.flush()
    walk = Walk(3, 100, 1_050_000, 1_070_000, 1000)
    writer.select(walk)
    assert walk.found == [700, 600, 500]
    assert found(writer, 3, most=4) == [1900, 1800, 1700, 1600]
    assert found(writer, 3, steps=2) == [1900, 1800]
    assert found(writer, 4) == []
    assert found(writer, 10) == []  # the same slot, another key
    assert writer.may_have(0, 2**62)
    assert writer.may_have(1_050_000, 1_060_000)
    assert not writer.may_have(0, 999_999)
    assert not writer.may_have(1_190_001, 2**62)
    writer.close()


def test_a_chain_of_damaged_entries_ends(tmp_path: Path) -> None:
    path = tmp_path / NAME
    writer = IndexWriter(OPS, path, SHAPE, create=True)
    writer.put(packed([(3, 100, 1_000_000), (3, 200, 1_000_000)]))
    writer.flush()
    writer.save()
    writer.close()
    for previous in (2, 99, -5):  # itself, beyond the end, nonsense
        with path.open("r+b") as file:
            file.seek(SHAPE.first_entry + 2 * 20 + 16)
            file.write(struct.pack(">i", previous))
        reader = IndexFile(OPS, path, SHAPE)
        assert found(reader, 3) == [200]
        reader.close()


@given(st.text(), st.text(), st.text())
def test_hashes_are_those_of_topic_and_key(topic: str, unique: str, keys: str) -> None:
    properties = {"UNIQ_KEY": unique, "KEYS": keys, "TAGS": "A", "KEYS2": "x"}
    texts = [text for text in (unique, *keys.split(" ")) if text]
    if any(set(text) & set("\x01\x02") or not text.isprintable() for text in (topic, *texts)):
        return
    expected = [key_hash(topic, text) for text in texts] + [key_hash(topic, "A", "T")]
    assert message_hashes(topic, encode_properties(properties)) == expected


def test_a_hash_is_the_absolute_of_javas() -> None:
    assert key_hash("T", "k") == abs(java_hash("T#k"))
    assert key_hash("T", "A", "T") == abs(java_hash("T#T#A"))
    assert java_hash("T#jllgvmc") == -(2**31)  # which has no absolute: Java takes 0
    assert key_hash("T", "jllgvmc") == 0
    assert message_hashes("T", b"UNIQ_KEY\x01jllgvmc\x02") == [0]
    long = "9" * 300
    assert message_hashes("T", f"UNIQ_KEY\x01{long}\x02".encode()) == [key_hash("T", long)]
