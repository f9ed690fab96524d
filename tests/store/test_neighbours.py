"""Where the records of a queue's entries lie: in Python, and compiled where that is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.compiled import TWINS
from orbitmq.store.consume_queue import UNIT

VIEW = memoryview(bytes(n * 7 % 251 for n in range(4000)))
sizes = st.integers(1, 90) | st.sampled_from([-1, 0, 2**31 - 1])


@st.composite
def units(draw: st.DrawFn) -> bytes:
    """Entries of records in the log's order, some right behind each other, some anywhere."""
    position, data = draw(st.integers(0, 300)), b""
    for gap, size in draw(st.lists(st.tuples(st.sampled_from([0, 0, 0, 7, -9]), sizes))):
        position += gap
        data += UNIT.pack(position, size, 0)
        position += size % 1000
    return data


@given(
    units(),
    st.integers(0, 200),
    st.integers(0, 3000),
    st.integers(-1, 9) | st.just(1 << 20),
    st.integers(100, 400) | st.just(1 << 20),
)
def test_compiled_places_are_those_of_python(
    data: bytes, base: int, room: int, max_count: int, max_bytes: int
) -> None:
    python, twin = TWINS["neighbours"]
    if twin is None:
        pytest.skip("there is no compiled core")
    arguments = (VIEW, base, base + room, data, max_count, max_bytes)
    assert twin(*arguments) == python(*arguments)


@pytest.mark.parametrize("which", [0, 1], ids=["python", "compiled"])
def test_neighbours_share_a_slice(which: int) -> None:
    code = TWINS["neighbours"][which] or TWINS["neighbours"][0]
    places = [(100, 10), (110, 20), (150, 5), (155, 400), (90, 10)]
    data = b"".join(UNIT.pack(*place, 7) for place in places)
    of = VIEW[50:]
    assert code(of, 50, 9999, data, 4, 9999) == ([VIEW[100:130], VIEW[150:555]], 4, 435)
    assert code(of, 50, 9999, data, 9, 40) == ([VIEW[100:130], VIEW[150:155]], 3, 35)
    assert code(of, 50, 9999, data, 1, 0) == ([VIEW[100:110]], 1, 10)
    assert code(of, 50, 9999, data[60:], 2, 9999) == ([VIEW[155:555], VIEW[90:100]], 2, 410)
    assert code(of, 50, 554, data, 9, 9999) is None
    assert code(of, 95, 9999, data, 9, 9999) is None
    with pytest.raises((ValueError, struct.error)):
        code(of, 50, 9999, data[:-1], 9, 9999)
