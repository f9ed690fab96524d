"""What is read, and from where to where: topics, queues, filters, times, groups, namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.codes import RequestCode
from orbitmq.errors import ConfigError, DataLossError
from orbitmq.spark.source.options import ReadOptions, read_options
from orbitmq.spark.source.planner import StreamPlanner
from orbitmq.spark.source.reader import RocketMQReader
from orbitmq.spark.source.schema import READ_SCHEMA
from orbitmq.spark.source.topic_queues import DISCOVERY_SECONDS
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.headers import TopicRequestHeader, UpdateConsumerOffsetRequestHeader
from tests.spark.planners import Offset
from tests.spark.topics import Topic

INITIAL: Offset = {"initial": "earliest"}


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


def options_of(broker: EmbeddedBroker, *, streaming: bool = False, **given: str) -> ReadOptions:
    least = {"nameServer": broker.name_server}
    if streaming:
        least |= {"startingOffsets": "earliest", "idleWaitMs": "0"}
    return read_options(least | given, streaming=streaming)


def rows(options: ReadOptions) -> Iterator[dict[str, Any]]:
    """The rows of a batch read, as its tasks read them."""
    reader = RocketMQReader(READ_SCHEMA, options)
    for partition in reader.partitions():
        for batch in reader.read(partition):
            yield from batch.to_pylist()


def bodies(broker: EmbeddedBroker, **given: str) -> list[str]:
    options = options_of(broker, streaming=False, **given)
    return sorted(row["body"].decode() for row in rows(options))


def read(planner: StreamPlanner, start: Offset, end: Offset) -> list[tuple[str, int, int]]:
    """What the batch between two offsets reads: topics, and offsets from and to."""
    return sorted((item.topic, item.begin, item.end) for item in planner.ranges(start, end))


def test_several_topics(broker: EmbeddedBroker, topic: Topic) -> None:
    other = Topic(broker)
    topic.send("a", "b")
    other.send("c")
    both = options_of(broker, topics=f"{topic.name}, {other.name}")
    assert sorted((row["topic"], row["body"]) for row in rows(both)) == sorted(
        [(topic.name, b"a"), (topic.name, b"b"), (other.name, b"c")]
    )
    some = f'{{"{topic.name}": {{"broker-a": {{"0": 1}}}}}}'
    assert bodies(broker, topics=f"{topic.name},{other.name}", startingOffsets=some) == ["b", "c"]


def test_queues_that_are_assigned(broker: EmbeddedBroker, topic: Topic) -> None:
    topic.send("a")
    topic.send("b", key="1")
    assert bodies(broker, assign=f'{{"{topic.name}": {{"broker-a": [1]}}}}') == ["b"]
    assert bodies(broker, assign=f'{{"{topic.name}": [0, 1]}}') == ["a", "b"]
    with pytest.raises(ConfigError, match=f"queue 7 of {topic.name}.*queues that the topics have"):
        bodies(broker, assign=f'{{"{topic.name}": [0, 7]}}')


def test_topics_that_match_a_pattern_are_found_while_it_runs(broker: EmbeddedBroker) -> None:
    clock = ManualClock()
    first = Topic(broker)
    given = {"subscribePattern": f"{first.name}(-.*)?"}
    first.send("a")
    planner = StreamPlanner(options_of(broker, streaming=True, **given), clock)
    begun = planner.latest_offset(INITIAL)
    assert read(planner, INITIAL, begun) == [(first.name, 0, 1)]
    second = Topic(broker)
    second.name = f"{first.name}-eu"
    second.resize(1)
    second.send("b")
    assert planner.latest_offset(begun) is begun  # not asked for all the time
    clock.advance(int(DISCOVERY_SECONDS * 1000))
    found = planner.latest_offset(begun)
    assert read(planner, begun, found) == [(second.name, 0, 1)]
    assert bodies(broker, **given) == ["a", "b"]


def test_a_pattern_that_nothing_matches_reads_nothing_yet(broker: EmbeddedBroker) -> None:
    assert bodies(broker, subscribePattern="nothing-[0-9]+") == []
    clock = ManualClock()
    topic = Topic(broker)
    given = {"subscribePattern": f"{topic.name}-later", "startingOffsets": "latest"}
    planner = StreamPlanner(options_of(broker, streaming=True, **given), clock)
    begun = planner.latest_offset(INITIAL)
    assert read(planner, INITIAL, begun) == []
    assert planner.latest_offset(begun) is begun
    topic.name += "-later"
    topic.resize(1)
    topic.send("before it was found")  # and yet after the query began
    clock.advance(int(DISCOVERY_SECONDS * 1000))
    assert read(planner, begun, planner.latest_offset(begun)) == [(topic.name, 0, 1)]


def test_a_condition_on_properties_is_met_by_the_broker(
    broker: EmbeddedBroker, topic: Topic
) -> None:
    for number in range(6):
        topic.send(str(number), tags="UA" if number % 3 == 0 else "AA")
    assert bodies(broker, topic=topic.name, sql="TAGS = 'UA'") == ["0", "3"]


def test_the_last_of_each_queue(broker: EmbeddedBroker, topic: Topic) -> None:
    topic.send("a", "b", "c")
    topic.send("d", key="1")
    assert bodies(broker, topic=topic.name, startingOffsets="-2") == ["b", "c", "d"]
    assert bodies(broker, topic=topic.name, endingOffsets="-1") == ["a", "b"]
    assert bodies(broker, topic=topic.name, startingOffsets="-1h") == ["a", "b", "c", "d"]


def test_from_one_time_to_another(broker: EmbeddedBroker, topic: Topic) -> None:
    topic.send("a", "b")
    stored = [view.store_timestamp for views in topic.by_queue().values() for view in views]
    last = str(max(stored))
    after = str(max(stored) + 1)
    assert bodies(broker, topic=topic.name, startingTimestamp=after) == []
    assert bodies(broker, topic=topic.name, endingTimestamp=after) == ["a", "b"]
    assert "b" in bodies(broker, topic=topic.name, startingTimestamp=last)
    assert bodies(broker, topic=topic.name, endingTimestamp=str(min(stored))) == []
    by_queue = f'{{"broker-a": {{"0": {after}}}}}'
    assert bodies(broker, topic=topic.name, startingOffsetsByTimestamp=by_queue) == []
    with pytest.raises(ConfigError, match="has no message of then or later"):
        bodies(
            broker,
            topic=topic.name,
            startingTimestamp=after,
            startingOffsetsByTimestampStrategy="error",
        )


def test_a_query_goes_on_where_a_group_was(broker: EmbeddedBroker, topic: Topic) -> None:
    topic.send("a", "b", "c")
    topic.send("d", "e", key="1")
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="TOOLS_CONSUMER", topic=topic.name, queue_id=0, commit_offset=2
    )
    topic.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    given = {"topic": topic.name, "group": "TOOLS_CONSUMER", "startingOffsets": "group"}
    assert bodies(broker, **given) == ["c", "d", "e"]


def test_new_queues_may_begin_at_their_end(broker: EmbeddedBroker) -> None:
    topic = Topic(broker, queues=1)
    topic.send("a")
    given = {"topic": topic.name, "newQueueOffsets": "latest"}
    planner = StreamPlanner(options_of(broker, streaming=True, **given))
    begun = planner.latest_offset(INITIAL)
    topic.resize(2)
    topic.send("before it was known", key="1")
    found = planner.latest_offset(begun)
    assert read(planner, begun, found) == []
    topic.send("after", key="1")
    end = planner.latest_offset(found)
    assert read(planner, found, end) == [(topic.name, 1, 2)]


def test_topics_of_a_namespace_are_named_without_it(broker: EmbeddedBroker) -> None:
    mine, theirs = Topic(broker), Topic(broker)
    name = mine.name
    for topic, namespace in ((mine, "mine"), (theirs, "theirs")):
        topic.name = f"{namespace}%{name}"
        topic.resize(1)
        topic.send(namespace)
    (row,) = rows(options_of(broker, topic=name, namespace="mine"))
    assert (row["topic"], row["body"]) == (name, b"mine")
    for given in ({"topic": name}, {"subscribePattern": f"{name}|mine%.*"}):
        assert bodies(broker, namespace="theirs", **given) == ["theirs"]


def test_a_topic_made_anew_is_noticed_when_it_is_longer_than_before(
    broker: EmbeddedBroker, topic: Topic
) -> None:
    topic.send("a", "b")
    stored = max(view.store_timestamp for view in topic.by_queue()[0])
    planner = StreamPlanner(options_of(broker, streaming=True, topic=topic.name))
    end = planner.latest_offset(INITIAL)
    topic.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic.name))
    topic.resize(2)
    wait_until(lambda: SYSTEM_CLOCK.now_ms() > stored, "another millisecond")
    topic.send("new", "and", "longer", "than", "before")
    with pytest.raises(DataLossError, match="deleted and made again, offset 2 was of the old one"):
        StreamPlanner(options_of(broker, streaming=True, topic=topic.name)).latest_offset(end)
    again = StreamPlanner(
        options_of(broker, streaming=True, topic=topic.name, failOnDataLoss="false")
    )
    following = again.latest_offset(end)
    assert read(again, end, following) == [(topic.name, 0, 5)]
    assert again.latest_offset(following) is following
