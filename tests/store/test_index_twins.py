"""What puts messages into the key index many at a time: in Python, and compiled where that is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.compiled import TWINS
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.index_keys import KEY, KINDS, MessageRun, message_hashes
from orbitmq.store.index_slots import ENTRY, IndexSlots

PIECES = [b"\x01", b"\x02", b" ", *(marker for marker, *_ in KINDS), b"UNIQ_KEY", b"k", b"0123456"]

properties = st.lists(
    st.sampled_from(PIECES) | st.text(max_size=12).map(str.encode) | st.binary(max_size=4)
).map(b"".join)
topics = st.sampled_from(["TopicTest", "T", "话题", "\N{SQUID}%RETRY%"]) | st.text(max_size=9)
messages = st.tuples(st.integers(0, 2**40), st.integers(1, 900), properties)


def runs_of(parts: list[tuple[str, int, list[tuple[int, int, bytes]]]]) -> list[MessageRun]:
    return [
        (
            topic,
            timestamp,
            b"".join(UNIT.pack(offset, size, 0) for offset, size, _ in run),
            [text for *_, text in run],
        )
        for topic, timestamp, run in parts
    ]


def both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    python, twin = TWINS[name]
    if twin is None:
        pytest.skip("there is no compiled core")
    return python, twin


@given(
    st.lists(st.tuples(topics, st.integers(0, 2**45), st.lists(messages, max_size=5))),
    st.integers(0, 2**40),
)
def test_compiled_hashes_are_those_of_python(
    parts: list[tuple[str, int, list[tuple[int, int, bytes]]]], start: int
) -> None:
    python, twin = both("key_entries")
    for least in (0, start):
        assert twin(runs_of(parts), least, KINDS) == python(runs_of(parts), least, KINDS)


@pytest.mark.parametrize("which", [0, 1])
def test_bytes_that_are_no_units_are_an_error(which: int) -> None:
    code = TWINS["key_entries"][which] or TWINS["key_entries"][0]
    unit = UNIT.pack(0, 100, 0)
    for units, texts in ((unit[:-1], [b""]), (unit, []), (unit, [b"", b""]), (b"", [b""])):
        with pytest.raises((ValueError, struct.error)):
            code([("T", 1, units, texts)], 0, KINDS)


@pytest.mark.parametrize("which", [0, 1])
def test_keys_are_in_the_order_of_the_log(which: int) -> None:
    """Messages are handed over queue by queue, and lie in the log as they came."""
    code = TWINS["key_entries"][which] or TWINS["key_entries"][0]
    texts = [f"UNIQ_KEY\x01unique-{n}\x02KEYS\x01b{n} a{n}\x02".encode() for n in range(6)]
    even = [(n * 100, 100, texts[n]) for n in (0, 2, 4)]
    odd = [(n * 100, 100, texts[n]) for n in (1, 3, 5)]
    keys, end, timestamp = code(runs_of([("T", 7, odd), ("T", 9, even)]), 100, KINDS)
    expected = [
        (n * 100, 7 if n % 2 else 9, value)
        for n in range(1, 6)
        for value in message_hashes("T", texts[n])
    ]
    assert list(KEY.iter_unpack(keys)) == expected
    assert (end, timestamp) == (600, 7)
    assert code(runs_of([("T", 9, even)]), 600, KINDS) == (b"", 600, 0)


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
