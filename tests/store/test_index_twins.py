"""What puts messages into the key index many at a time: in Python, and compiled where that is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.compiled import TWINS
from orbitmq.store.index_keys import KEY, KINDS, message_hashes
from orbitmq.store.index_slots import ENTRY, IndexSlots
from orbitmq.wire.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Draft,
    encode_blank,
    encode_record,
)

PIECES = [b"\x01", b"\x02", b" ", *(marker for marker, *_ in KINDS), b"UNIQ_KEY", b"k", b"0123456"]

properties = st.lists(
    st.sampled_from(PIECES) | st.text(max_size=12).map(str.encode) | st.binary(max_size=4)
).map(b"".join)
topics = st.sampled_from(["TopicTest", "T", "话题", "\N{SQUID}%RETRY%", "long" * 40, "a\0b"])
flags = st.sampled_from([0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
hosts = st.sampled_from([bytes(8), bytes(20)])
drafts = st.builds(
    Draft,
    topic=topics | st.text(st.characters(codec="utf-8"), max_size=9),
    queue_id=st.integers(0, 9),
    body=st.binary(max_size=20),
    properties=properties,
    tags_code=st.just(0),
    flag=st.just(0),
    sys_flag=flags,
    born_timestamp=st.just(1),
    born_host=hosts,
    store_host=hosts,
)
START = 1_000


def log_of(drafts: list[Draft], first_timestamp: int = 7) -> tuple[bytes, list[int]]:
    """Records as they lie in the log from START on, and their offsets."""
    data, offsets = b"", []
    for number, draft in enumerate(drafts):
        offsets.append(START + len(data))
        data += encode_record(draft, number, offsets[-1], first_timestamp + number)
    return data, offsets


def plain(number: int, **changes: Any) -> Draft:
    properties = f"UNIQ_KEY\x01unique-{number}\x02KEYS\x01b{number} a{number}\x02".encode()
    return Draft("T", 0, b"body", properties, 0, 0, 0, 1, bytes(8), bytes(8), **changes)


def both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    python, twin = TWINS[name]
    if twin is None:
        pytest.skip("there is no compiled core")
    return python, twin


@given(st.lists(drafts, max_size=4), st.data(), st.booleans())
def test_compiled_keys_of_records_are_those_of_python(
    drafts: list[Draft], data: st.DataObject, verify_crc: bool
) -> None:
    python, twin = both("record_keys")
    log, offsets = log_of(drafts)
    known = data.draw(st.sampled_from([-1, *offsets]))
    damaged = bytearray(log)
    for place in data.draw(st.lists(st.integers(0, len(log) - 1), max_size=2)) if log else ():
        damaged[place] = data.draw(st.integers(0, 255))
    cut = log[: data.draw(st.integers(0, len(log)))]
    for piece in (log, bytes(damaged), cut, log + encode_blank(8), log + bytes(91)):
        for start in (START, 0, START + 1):
            asked = piece, start, known, verify_crc, KINDS
            assert twin(*asked) == python(*asked)


def keys_of(which: int, *asked: Any) -> tuple[list[tuple[Any, ...]], int, int]:
    code = TWINS["record_keys"][which] or TWINS["record_keys"][0]
    keys, size, timestamp = code(*asked, KINDS)
    return list(KEY.iter_unpack(keys)), size, timestamp


@pytest.mark.parametrize("which", [0, 1])
def test_keys_are_in_the_order_of_the_log_until_its_first_unsound_record(which: int) -> None:
    drafts = [plain(number) for number in range(5)]
    drafts[1].sys_flag = TRANSACTION_ROLLBACK
    log, offsets = log_of(drafts)
    expected = [
        (offsets[number], 7 + number, value)
        for number in (0, 2, 3, 4)
        for value in message_hashes("T", drafts[number].properties)
    ]
    assert keys_of(which, log, START, -1, True) == (expected, len(log), 11)
    assert keys_of(which, log, START, offsets[0], True) == (expected[3:], len(log), 11)
    last = offsets[4] - START
    assert keys_of(which, log[:-1], START, -1, True) == (expected[:-3], last, 10)
    assert keys_of(which, b"", START, -1, True) == ([], 0, 0)
    assert keys_of(which, log, START + 1, -1, True) == ([], 0, 0)


@pytest.mark.parametrize("which", [0, 1])
def test_a_body_is_looked_at_where_that_is_asked_for(which: int) -> None:
    log, _ = log_of([plain(1)])
    damaged = log.replace(b"body", b"bodi")
    assert keys_of(which, damaged, START, -1, True) == ([], 0, 0)
    assert keys_of(which, damaged, START, -1, False) == keys_of(which, log, START, -1, True)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(
                    st.integers(0, 2**62),
                    st.integers(-(2**62), 2**62),
                    st.integers(0, 40) | st.integers(-(2**31), 2**31 - 1),
                )
            ),
            st.integers(-1, 2**62),
        ),
        max_size=5,
    ),
    st.integers(1, 3000),
    st.dictionaries(st.integers(0, 3000), st.integers(-(2**31), 2**31 - 1), max_size=3),
)
def test_compiled_slots_are_those_of_python(
    puts: list[tuple[list[tuple[int, int, int]], int]], number: int, damage: dict[int, int]
) -> None:
    slots, twin = (kind(number) for kind in both("IndexSlots"))
    twin.load(0, bytes(4 * number))
    entry = 1
    for index, value in damage.items():
        if index < number:
            slots[index] = twin[index] = value
    for keys, begin in puts:
        data = b"".join(KEY.pack(*key) for key in keys)
        assert twin.put(data, entry, begin) == slots.put(data, entry, begin)
        entry += len(keys)
    assert twin.touched() == slots.touched()
    assert twin.stored(0, 1 << 20) == slots.stored(0, 1 << 20)
    assert [twin[index] for index in range(number)] == [slots[index] for index in range(number)]
    again = IndexSlots(number)
    again.load(1, twin.stored(1, number))
    assert again.stored(1, 9) == slots.stored(1, 9)
    assert not any(again.touched())
    twin.forget_touched()
    assert twin.touched() == bytes(number // 1024 + 1)


@pytest.mark.parametrize("which", [0, 1])
def test_slots_that_are_not_there_are_an_error(which: int) -> None:
    kind = TWINS["IndexSlots"][which] or TWINS["IndexSlots"][0]
    slots = kind(3)
    with pytest.raises(IndexError):
        slots[3]
    with pytest.raises(IndexError):
        slots[3] = 1
    with pytest.raises((IndexError, ValueError)):
        slots.load(2, bytes(8))
    with pytest.raises((ValueError, struct.error)):
        slots.put(KEY.pack(1, 2, 3)[:-1], 1, 0)
    assert ENTRY.unpack(slots.put(KEY.pack(1, 2000, 5), 7, 1000)[0]) == (5, 1, 1, 0)
    assert slots[2] == 7
