"""Listeners in a task, without Spark around it: rows in, messages consumed or given back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from orbitmq import (
    ConsumeConcurrentlyContext,
    ConsumeMessageContext,
    ConsumeOrderlyContext,
    ConsumeStatus,
    EmbeddedBroker,
)
from orbitmq.errors import ConfigError
from orbitmq.net.blocking import OPEN
from orbitmq.spark.listeners.process import make_retry_topic
from orbitmq.spark.listeners.task_consumer import (
    REQUIRED_COLUMNS,
    Consumed,
    consume_rows,
    messages_of,
)
from orbitmq.spark.source.columns import ColumnDecoder
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire.message_view import MessageView
from tests.spark.topics import Topic, stored

GROUP = "listeners"
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("bornTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


@pytest.fixture
def group(topic: Topic) -> str:
    """A group of its own, whose retry topic is there."""
    name = f"{GROUP}-{topic.name}"
    make_retry_topic((topic.broker.name_server,), name, OPEN)
    return name


def rows(topic: Topic, schema: Any = SCHEMA) -> list[Any]:
    """What Spark would hand to a task that reads all of ``topic``."""
    client = TopicClient((topic.broker.name_server,), topic.name)
    client.refresh()
    bounds = client.bounds(all_brokers=True)
    ranges = [QueueRange(*queue, client.address(queue), *bounds[queue]) for queue in bounds]
    reader = RangeReader(topic.name, "TOOLS_CONSUMER", "*", fail_on_data_loss=True)
    decoder = ColumnDecoder(schema, topic.name)
    wanted = (item for item in ranges if item.rows)
    return [decoder.decode(bytes(data), name) for name, data in reader.read(wanted)]


def consume(topic: Topic, group: str, listener: Callable[..., Any], **settings: Any) -> Consumed:
    hooks = settings.pop("hooks", ())
    settings["name_server"] = topic.broker.name_server
    (done,) = consume_rows(rows(topic), group, listener, hooks, settings)  # type: ignore[arg-type]
    return done


def test_rows_are_messages(topic: Topic) -> None:
    topic.send("a", "b", tags="UA")
    views = [view for batch in rows(topic) for view in messages_of(batch)]
    (originals,) = topic.by_queue().values()
    for view, original in zip(views, originals, strict=True):
        for name in ("topic", "body", "queue_id", "queue_offset", "born_timestamp", "tags"):
            assert getattr(view, name) == getattr(original, name)
        assert view.message_queue.broker_name == "broker-a"
    few = pa.schema([SCHEMA.field(name) for name in REQUIRED_COLUMNS])
    assert messages_of(rows(topic, few)[0])[0].tags is None


def test_all_are_consumed_at_once(topic: Topic, group: str) -> None:
    topic.send(*map(str, range(6)))
    topic.send(*map(str, range(6, 9)), key="1")
    together = threading.Barrier(3)  # breaks unless three listeners run at once
    bodies: list[str] = []

    def listener(messages: Sequence[MessageView]) -> None:
        together.wait(60)
        bodies.extend(message.body.decode() for message in messages)

    done = consume(topic, group, listener, consume_batch_size=3)
    assert sorted(bodies) == [*"012345678"]
    assert done[:4] == (topic.name, 9, 0, 3)


def test_what_fails_goes_back_whole(topic: Topic, group: str) -> None:
    topic.send("good", "bad", "worse", tags="t")
    seen: list[object] = []

    class Hook:
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            seen.append(len(context.message_list))

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            seen.append(context.status)

    def listener(messages: Sequence[MessageView], context: ConsumeConcurrentlyContext) -> None:
        context.ack_index = 0
        context.delay_level_when_next_consume = -1  # never again

    done = consume(topic, group, listener, consume_batch_size=3, hooks=[Hook()])
    assert done[:4] == (topic.name, 1, 2, 1)
    assert seen == [3, "CONSUME_SUCCESS"]
    (dead,) = stored(topic.broker, f"%DLQ%{group}").values()
    assert sorted(view.body for view in dead) == [b"bad", b"worse"]
    originals = {view.body: view for view in topic.by_queue()[0]}
    for view in dead:
        original = originals[view.body]
        assert view.tags == "t"
        assert view.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id


def test_a_delay_level_counts(topic: Topic, group: str) -> None:
    topic.send("later")

    async def listener(messages: Sequence[MessageView], context: Any) -> ConsumeStatus:
        context.delay_level_when_next_consume = 18
        return ConsumeStatus.RECONSUME_LATER

    assert consume(topic, group, listener)[1:3] == (0, 1)
    waiting = stored(topic.broker, "SCHEDULE_TOPIC_XXXX")
    found = [
        view
        for view in waiting[17]
        if view.properties["REAL_TOPIC"] == f"%RETRY%{group}" and view.body == b"later"
    ]
    assert len(found) == 1
    assert found[0].reconsume_times == 1


def test_in_order_a_failure_stops_its_queue_and_is_given_up(topic: Topic, group: str) -> None:
    topic.send("a", "b", "c")
    topic.send("x", "y", key="1")
    seen: dict[int, list[str]] = {0: [], 1: []}

    def listener(messages: Sequence[MessageView], context: ConsumeOrderlyContext) -> bool:
        (message,) = messages
        seen[message.queue_id].append(f"{message.body.decode()}{message.reconsume_times}")
        context.suspend_current_queue_time_ms = 10
        return message.body != b"b"

    done = consume(topic, group, listener, orderly=True, max_reconsume_times=2)
    assert seen == {0: ["a0", "b0", "b1", "b2", "c0"], 1: ["x0", "y0"]}
    assert done[:4] == (topic.name, 4, 3, 7)
    ((dead,),) = stored(topic.broker, f"%DLQ%{group}").values()
    assert dead.body == b"b"


def test_what_is_gone_from_its_queue_is_sent_as_it_is_known(
    topic: Topic, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic.send("kept")
    (batch,) = rows(topic)
    gone = batch.set_column(3, SCHEMA.field("queueOffset"), pa.array([99], pa.int64()))

    def listener(messages: Sequence[MessageView], context: Any) -> bool:
        return False

    settings: Any = {"name_server": topic.broker.name_server, "max_reconsume_times": 0}
    with caplog.at_level(logging.WARNING, "orbitmq.spark"):
        consume_rows([gone], group, listener, (), settings)
    assert "is gone from its queue, so it is sent anew" in caplog.text
    ((dead,),) = stored(topic.broker, f"%DLQ%{group}").values()
    assert dead.body == b"kept"


def test_nothing_to_consume(topic: Topic, group: str) -> None:
    settings: Any = {"name_server": topic.broker.name_server}
    assert consume_rows([], group, print, (), settings) == []
    with pytest.raises(ConfigError, match="listener"):
        consume_rows([], group, lambda: None, (), settings)
