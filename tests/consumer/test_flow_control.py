"""Flow control compares as Java does, counts, and logs the first and then every 1000th time."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.consumer.flow_control import FlowControl, FlowLimits
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.message import MessageQueue
from tests.consumer.records import message, messages

QUEUE = MessageQueue("orders", "broker-a", 0)
MIB = 1024 * 1024


def holding(*offsets: int) -> ProcessQueue:
    queue = ProcessQueue(0)
    queue.put(messages(offsets))
    return queue


def test_as_many_messages_as_the_limit_are_not_too_many() -> None:
    flow = FlowControl(FlowLimits(messages=3, mib=100, span=2000))
    assert not flow.holds_back(QUEUE, holding(1, 2, 3))
    assert flow.holds_back(QUEUE, holding(1, 2, 3, 4))
    assert (flow.held_back, flow.held_back_by_span) == (1, 0)


def test_sizes_are_compared_in_whole_mib() -> None:
    flow = FlowControl(FlowLimits(messages=1000, mib=1, span=2000))
    queue = holding()
    queue.put([message(1, bytes(2 * MIB - 1000))])
    assert not flow.holds_back(QUEUE, queue)
    queue.put([message(2, bytes(1000))])
    assert flow.holds_back(QUEUE, queue)
    assert flow.held_back == 1


def test_the_span_is_counted_apart_and_may_be_unlimited() -> None:
    flow = FlowControl(FlowLimits(messages=1000, mib=1, span=10))
    assert not flow.holds_back(QUEUE, holding(5, 15))
    assert flow.holds_back(QUEUE, holding(5, 16))
    assert (flow.held_back, flow.held_back_by_span) == (0, 1)
    assert not FlowControl(FlowLimits(1000, 1, None)).holds_back(QUEUE, holding(5, 5000))


@given(
    cached=st.sets(st.integers(0, 30), max_size=12),
    coming=st.sets(st.integers(0, 10), min_size=1, max_size=8),
    limits=st.builds(FlowLimits, st.integers(1, 12), st.just(1), st.none() | st.integers(1, 40)),
)
def test_room_is_found_only_where_nothing_would_be_held_back(
    cached: set[int], coming: set[int], limits: FlowLimits
) -> None:
    """The next pull may be sent before an answer is put only if it would be sent after it too."""
    queue = holding(*sorted(cached))
    answer = messages(31 + offset for offset in sorted(coming))
    start = max(cached, default=30) + 1
    offsets = answer[-1].queue_offset + 1 - start
    room = FlowControl(limits).has_room(queue, offsets, sum(m.store_size for m in answer))
    queue.put(answer)
    if room:
        assert not FlowControl(limits).holds_back(QUEUE, queue)


def test_the_first_and_every_thousandth_time_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    flow = FlowControl(FlowLimits(messages=1, mib=1, span=1))
    queue = holding(1, 2)
    with caplog.at_level(logging.INFO, "orbitmq.consumer.pull"):
        for _ in range(2001):
            flow.holds_back(QUEUE, queue)
    times = [record.getMessage().rsplit(maxsplit=2)[1] for record in caplog.records]
    assert times == ["1", "1001", "2001"]
    assert "more than 1 messages" in caplog.text
