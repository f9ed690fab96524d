"""Staged batches: as they were when nothing is missing, and apart where something is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.sink.lanes import Batch, Part
from orbitmq.spark.sink.message_rows import MessageRows
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.staged import (
    ATTEMPT_DIGITS,
    STAGED,
    AttemptIds,
    HalfMessage,
    StagedBatch,
    StagedList,
)

OPTIONS = WriteOptions(name_servers=("127.0.0.1:1",), topic="T")


def batch_of(bodies: list[bytes], keys: list[str | None], first: int = 0) -> Batch:
    """As a task fills it."""
    ids = AttemptIds()
    columns = pa.RecordBatch.from_pydict({"body": bodies, "keys": pa.array(keys, pa.string())})
    rows = MessageRows(columns, OPTIONS, first)
    (messages,) = rows.messages(ids.of(rows), ids_win=True)
    batch = Batch()
    batch.take(Part(messages.frames, 0, len(messages.frames)))
    assert {one[:ATTEMPT_DIGITS].decode() for one in batch.ids()} == {ids.tag}
    return batch


ROWS = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=40),
        st.none() | st.text("abc \u00e9", min_size=1, max_size=9),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@given(ROWS, st.integers(0, 1 << 40))
def test_what_is_there_already_is_left_out(
    drawn: list[tuple[bytes, str | None, bool]], first: int
) -> None:
    filled = batch_of([body for body, _, _ in drawn], [keys for _, keys, _ in drawn], first)
    whole = bytes(filled.body)
    staged = StagedBatch(whole, filled.count, 8, first)
    assert (bytes(staged.body), staged.first_row, staged.kind) == (whole, first, 8)
    assert staged.ids() == filled.ids()
    assert staged.without(()) is staged
    here = [is_here for _, _, is_here in drawn]
    present = {one for one, is_here in zip(filled.ids(), here, strict=True) if is_here}
    rest = staged.without(present)
    wanted = filled.only([not is_here for is_here in here])
    assert (bytes(rest.body), rest.ids(), rest.count) == (
        bytes(wanted.body), wanted.ids(), wanted.count,
    )  # fmt: skip
    assert rest.placed
    halves = staged.halves()
    assert b"".join(bytes(half.body) for half in halves if half.count) == whole
    assert sum(half.count for half in halves) == filled.count


def test_two_attempts_have_no_id_in_common() -> None:
    assert len({AttemptIds().tag for _ in range(100)}) == 100


def test_lists_hold_batches() -> None:
    batches = np.array([(7, 1 << 40, 2000, 1 << 30, 3)], STAGED)
    listed = StagedList("T", HalfMessage(5, 6), batches.tobytes())
    assert listed.staged.tolist() == batches.tolist()
