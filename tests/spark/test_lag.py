"""How far a stream is behind, in messages and in seconds, as its planner reports it."""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.spark.progress.lag import Lag, LagMeter, lag_of
from orbitmq.spark.source.offsets import Offsets, Queue
from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.topic import TopicClient
from orbitmq.testing.clock import ManualClock
from tests.spark.planners import Topic


def meter_of(topic: Topic, clock: ManualClock) -> LagMeter:
    given = {"nameServer": topic.broker.name_server, "topic": topic.name}
    options = read_options(given, streaming=True)
    client = TopicClient(
        options.name_servers, options.choice, options.access, options.namespace, clock
    )
    client.refresh()
    return LagMeter(options, client, clock)


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


def offsets(topic: Topic, *found: int) -> Offsets:
    return {Queue(topic.name, "broker-a", number): offset for number, offset in enumerate(found)}


def test_the_oldest_message_that_is_still_to_be_read_counts(topic: Topic) -> None:
    topic.send("a", "b", "c", key="0")
    topic.send("d", key="1")
    stored = [view.store_timestamp for view in topic.by_queue()[0]]
    clock = ManualClock(now_ms=stored[1] + 90_000)
    meter = meter_of(topic, clock)
    ends = offsets(topic, 3, 1)
    assert meter.measure(offsets(topic, 1, 1), ends) == Lag(2, 90.0)
    assert meter.measure(ends, ends) == Lag(0, 0.0)
    both = meter.measure(offsets(topic, 2, 0), ends)
    assert both.messages == 2
    assert both.seconds == (clock.now_ms() - stored[2]) / 1000


def test_queues_nobody_reads_yet_are_not_behind(topic: Topic) -> None:
    topic.send("a", key="0")
    assert meter_of(topic, ManualClock()).measure({}, offsets(topic, 1, 0)) == Lag(0, 0.0)


def test_a_broker_that_is_away_leaves_the_messages(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.send("a", key="0")
    meter = meter_of(topic, ManualClock())
    meter._topics.addresses = dict.fromkeys(meter._topics.addresses, "127.0.0.1:1")
    with caplog.at_level(logging.WARNING):
        assert meter.measure(offsets(topic, 0, 0), offsets(topic, 1, 0)) == Lag(1, None)
    assert "how long messages have waited at 127.0.0.1:1 is not known" in caplog.text


def test_a_planner_reports_what_the_batch_leaves(topic: Topic) -> None:
    topic.send(*"abcde")
    planner = topic.planner(maxOffsetsPerTrigger="2")
    assert planner.latest_known() is None
    start = {"initial": "earliest"}
    left = []
    for _ in range(3):
        start = planner.latest_offset(start)
        lag = lag_of(planner.latest_known())
        assert lag is not None
        assert lag.seconds is not None
        assert lag.seconds >= 0
        left.append(lag.messages)
    assert left == [3, 1, 0]


@pytest.mark.parametrize("report", [None, 7, {}, {"lag": 1}, {"lag": {"messages": "x"}}])
def test_other_reports_have_no_lag(report: object) -> None:
    assert lag_of(report) is None
