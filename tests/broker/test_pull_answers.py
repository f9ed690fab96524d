"""Answers to pulls have the bytes that their header encodes to, in both forms of a header."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.broker.handlers.pull import encode_answer
from orbitmq.broker.pulling import Pulled
from orbitmq.message import PullStatus
from orbitmq.store.pull import GetResult, GetStatus
from orbitmq.wire.bodies import MASTER_ID, SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.command import BINARY, JSON, RemotingCommand, encode_response
from orbitmq.wire.headers import PullMessageResponseHeader

OFFSETS = st.integers(0, (1 << 63) - 1)
FLAGS = st.integers(-(1 << 31), (1 << 31) - 1)
OUTCOMES = {
    (PullStatus.FOUND, GetStatus.FOUND): codes.SUCCESS,
    (PullStatus.NO_NEW_MESSAGE, GetStatus.OFFSET_OVERFLOW_ONE): codes.PULL_NOT_FOUND,
    (PullStatus.NO_MATCHED_MESSAGE, GetStatus.NO_MATCHED_MESSAGE): codes.PULL_RETRY_IMMEDIATELY,
    (PullStatus.OFFSET_ILLEGAL, GetStatus.OFFSET_TOO_SMALL): codes.PULL_OFFSET_MOVED,
}


@given(
    st.sampled_from(list(OUTCOMES)),
    st.tuples(OFFSETS, OFFSETS, OFFSETS),
    st.tuples(FLAGS, FLAGS, FLAGS),
    st.lists(st.binary(min_size=1, max_size=20), max_size=3),
    st.sampled_from([JSON, BINARY]),
)
def test_an_answer_is_its_header_and_the_records(
    outcome: tuple[PullStatus, GetStatus],
    offsets: tuple[int, int, int],
    numbers: tuple[int, int, int],
    records: list[bytes],
    serialize_type: int,
) -> None:
    status, found = outcome
    opaque, topic_sys_flag, group_sys_flag = numbers
    request = RemotingCommand(opaque=opaque, serialize_type=serialize_type)
    size = sum(map(len, records))
    slices = [memoryview(record) for record in records]
    result = GetResult(found, *offsets, slices, len(records), size)
    pulled = Pulled(
        status,
        result,
        TopicConfig("T", topic_sys_flag=topic_sys_flag),
        SubscriptionGroupConfig("G", group_sys_flag=group_sys_flag),
    )
    header = PullMessageResponseHeader(
        suggest_which_broker_id=MASTER_ID,
        next_begin_offset=offsets[0],
        min_offset=offsets[1],
        max_offset=offsets[2],
        topic_sys_flag=topic_sys_flag,
        group_sys_flag=group_sys_flag,
    )
    head = encode_response(request, OUTCOMES[outcome], header, remark=found.value, body_length=size)
    assert b"".join(encode_answer(request, pulled)) == head + b"".join(records)
