"""Pulls against getMessage of Apache's DefaultMessageStore, written down record by record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.pull import GetStatus, ScanStopped, get_messages
from orbitmq.store.segment import segment_name
from tests.store.support import TOPIC, QuickOps

FILE = 256
FILES = 4
BYTES = bytes(n * 7 % 251 for n in range(FILE * FILES))


class Unit(NamedTuple):
    position: int
    size: int
    code: int


class Ask(NamedTuple):
    """A pull, and what of the log there is: its files from ``first`` on, written up to ``end``."""

    offset: int
    max_count: int
    max_bytes: int
    codes: frozenset[int] | None
    by_record: bool
    looks: int  # records that the test of a record looks at before it stops the read
    first: int
    end: int


class Outcome(NamedTuple):
    status: GetStatus
    next_offset: int
    slices: list[bytes]
    found: int
    size: int


def wanted(record: bytes | memoryview) -> bool:
    return record[0] % 3 != 0


def apaches(units: list[Unit], file_units: int, ask: Ask) -> Outcome:
    """What getMessage does with an offset that the queue has, of entries that have a file."""
    status, next_offset, next_file = GetStatus.NO_MATCHED_MESSAGE, ask.offset, -(1 << 63)
    taken: list[Unit] = []
    total = looks = 0
    file_end = ask.offset - ask.offset % file_units + file_units
    for unit in units[ask.offset : min(file_end, ask.offset + max(800, ask.max_count))]:
        full = len(taken) + 1 > ask.max_count or total + unit.size > max(ask.max_bytes, 100)
        if taken and full:
            break
        next_offset += 1
        if unit.position < next_file:
            continue
        if ask.codes is not None and unit.code not in ask.codes:
            status = status if taken else GetStatus.NO_MATCHED_MESSAGE
            continue
        if not is_there(unit, ask):
            status = status if taken else GetStatus.MESSAGE_WAS_REMOVING
            if unit.size != FILLER_SIZE:  # Java has none that lies just before the next record
                next_file = unit.position // FILE * FILE + FILE
            continue
        looks += 1
        if ask.by_record and looks > ask.looks:
            next_offset -= 1
            break
        if ask.by_record and not wanted(BYTES[unit.position :]):
            status = status if taken else GetStatus.NO_MATCHED_MESSAGE
            continue
        taken.append(unit)
        total += unit.size
        status, next_file = GetStatus.FOUND, -(1 << 63)
    return Outcome(status, next_offset, list(merged(taken)), len(taken), total)


def is_there(unit: Unit, ask: Ask) -> bool:
    stop = unit.position + unit.size
    in_log = ask.first * FILE <= unit.position < stop <= ask.end
    return in_log and unit.position // FILE == (stop - 1) // FILE


def merged(taken: list[Unit]) -> Iterator[bytes]:
    """The records, those right behind each other in a file as one."""
    start = end = 0
    for position, size, _ in taken:
        if start < end and (position != end or position % FILE == 0):
            yield BYTES[start:end]
            start = end
        if start == end:
            start = position
        end = position + size
    if start < end:
        yield BYTES[start:end]


@st.composite
def queues(draw: st.DrawFn) -> list[Unit]:
    """Entries as a store has them, in pieces of neighbours, and some that no store should have."""
    units: list[Unit] = []
    position = 0
    sizes, codes = st.integers(1, 60), st.integers(0, 2)
    for kind in draw(st.lists(st.sampled_from("nnnngglfcx"), min_size=1, max_size=45)):
        if kind == "x":
            anywhere = st.integers(-300, 1400)
            units.append(Unit(draw(anywhere), draw(st.integers(-70, 300)), draw(codes)))
            continue
        if kind == "c":  # longer than its file
            units.append(Unit(position, FILE - position % FILE + 1, draw(codes)))
            continue
        if kind == "f":
            units.append(Unit(max(position - 1, 0), FILLER_SIZE, 0))
            continue
        if kind == "g":
            position += draw(sizes)
        elif kind == "l":  # the last record of its file, or beyond that
            position = position // FILE * FILE + FILE
        units.append(Unit(position, draw(sizes), draw(codes)))
        position += units[-1].size
    return units


@st.composite
def asks(draw: st.DrawFn, count: int) -> Ask:
    first = draw(st.sampled_from([0, 0, 0, 1, 2]))
    return Ask(
        draw(st.integers(0, count - 1)),
        draw(st.integers(-1, 12)),
        draw(st.integers(0, 800)),
        draw(st.none() | st.frozensets(st.integers(0, 2))),
        draw(st.booleans()),
        draw(st.integers(0, 20)),
        first,
        draw(st.just(FILE * FILES) | st.integers(first * FILE, FILE * FILES)),
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommitLog]:
    directory = tmp_path_factory.mktemp("commitlog")
    for base in range(0, FILE * FILES, FILE):
        (directory / segment_name(base)).write_bytes(BYTES[base : base + FILE])
    log = CommitLog(QuickOps(), directory, FILE)
    segments = log.segments
    yield log
    log._segments = segments
    log.close()


@settings(max_examples=150, deadline=None)
@given(units=queues(), file_units=st.sampled_from([7, 20, 60]), data=st.data())
def test_every_pull_ends_as_apaches(
    log: CommitLog, units: list[Unit], file_units: int, data: st.DataObject
) -> None:
    open_files = OpenFiles(2)
    all_segments = log.segments
    with TemporaryDirectory() as name:
        queue = ConsumeQueue(QuickOps(), Path(name), TOPIC, 0, file_units, Lock(), open_files)
        flushed = data.draw(st.integers(0, len(units)))
        for number, unit in enumerate(units):
            if number == flushed:
                queue.flush()
            queue.add(UNIT.pack(*unit))
        for _ in range(5):
            ask = data.draw(asks(len(units)))
            log._segments, log.end = all_segments[ask.first :], ask.end
            try:
                assert pulled(log, queue, ask) == apaches(units, file_units, ask)
            finally:
                log._segments, log.end = all_segments, FILE * FILES
        open_files.close_all()


def pulled(log: CommitLog, queue: ConsumeQueue, ask: Ask) -> Outcome:
    looks = 0

    def match_record(record: memoryview) -> bool:
        nonlocal looks
        looks += 1
        if looks > ask.looks:
            raise ScanStopped
        return wanted(record)

    result = get_messages(
        log,
        queue,
        ask.offset,
        (ask.max_count, ask.max_bytes),
        None if ask.codes is None else ask.codes.__contains__,
        match_record if ask.by_record else None,
    )
    assert (result.min_offset, result.max_offset) == (0, queue.max_offset)
    slices = [bytes(part) for part in result.slices]
    return Outcome(result.status, result.next_begin_offset, slices, result.count, result.size)


def test_entries_without_a_record_do_not_end_a_pull(log: CommitLog, tmp_path: Path) -> None:
    """A pull of two looks at two entries first; here it goes on behind them."""
    open_files = OpenFiles(2)
    queue = ConsumeQueue(QuickOps(), tmp_path, TOPIC, 0, 1000, Lock(), open_files)
    for _ in range(799):
        queue.add(UNIT.pack(0, FILLER_SIZE, 0))
    for position in (0, 10, 30):
        queue.add(UNIT.pack(position, 10, 0))
    result = get_messages(log, queue, 0, (2, 1000), None, None)
    assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 800)
    assert [bytes(part) for part in result.slices] == [BYTES[:10]]
    result = get_messages(log, queue, 1, (2, 1000), None, None)
    assert (result.count, result.next_begin_offset) == (2, 801)
    assert [bytes(part) for part in result.slices] == [BYTES[:20]]
