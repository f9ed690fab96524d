"""``process``: a push consumer's listeners in the tasks of a real stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from orbitmq import EmbeddedBroker
from orbitmq.errors import ConfigError
from orbitmq.spark import process
from tests.patience import eventually
from tests.spark.topics import Topic, stored

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]

NOW = {"availableNow": True}


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


@pytest.fixture
def stream(spark: SparkSession, topic: Topic) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("nameServer", topic.broker.name_server)
    return reader.option("topic", topic.name).option("startingOffsets", "earliest").load()


def writing(file: Path) -> Callable[..., Any]:
    """A listener that writes down what it gets, and fails on ``bad`` the first time."""

    def listener(messages: Any, context: Any) -> bool:
        bad = False
        with file.open("a") as lines:
            for message in messages:
                lines.write(f"{message.topic} {message.body.decode()} {message.reconsume_times}\n")
                bad |= message.body == b"bad" and not message.reconsume_times
        if bad and hasattr(context, "delay_level_when_next_consume"):
            context.delay_level_when_next_consume = 1
        return not bad

    return listener


def test_what_fails_comes_again(stream: DataFrame, topic: Topic, tmp_path: Path) -> None:
    group = f"group-{topic.name}"
    written = tmp_path / "written"

    def run() -> list[str]:
        written.write_text("")
        running = process(
            stream,
            writing(written),
            group=group,
            checkpoint=tmp_path / "checkpoint",
            trigger=NOW,
            name_server=topic.broker.name_server,
        )
        running.query.awaitTermination()
        assert running.query.exception() is None
        failed.append(running.consume_status(topic.name).consume_failed_msgs)
        return sorted(written.read_text().splitlines())

    failed: list[int] = []
    topic.send("good", "bad")
    assert run() == [f"{topic.name} bad 0", f"{topic.name} good 0"]
    assert failed == [1]
    eventually(lambda: stored(topic.broker, f"%RETRY%{group}"), "the message to come again")
    topic.send("new")
    assert run() == [f"{topic.name} bad 1", f"{topic.name} new 0"]
    assert failed == [1, 0]


def test_in_order(stream: DataFrame, topic: Topic, tmp_path: Path) -> None:
    first, second = [f"a{number}" for number in range(5)], [f"b{number}" for number in range(5)]
    topic.send(*first[:2], "bad", *first[2:])
    topic.send(*second, key="1")
    written = tmp_path / "written"
    running = process(
        stream.where("body IS NOT NULL"),
        writing(written),
        group=f"group-{topic.name}",
        checkpoint=tmp_path / "checkpoint",
        trigger=NOW,
        tasks=2,
        orderly=True,
        suspend_current_queue_time_ms=10,
        name_server=topic.broker.name_server,
    )
    running.query.awaitTermination()
    lines = [line.removeprefix(f"{topic.name} ") for line in written.read_text().splitlines()]
    assert [line for line in lines if line[:2] not in second] == [
        *("a0 0", "a1 0", "bad 0", "bad 1", "a2 0", "a3 0", "a4 0"),
    ]
    assert [line for line in lines if line[:2] in second] == [f"{body} 0" for body in second]
    assert running.consume_status(topic.name).consume_failed_msgs == 1


def test_what_cannot_be_is_told_before_anything_starts(
    stream: DataFrame, topic: Topic, tmp_path: Path
) -> None:
    def start(frame: DataFrame, listener: Any = print, **settings: Any) -> None:
        process(
            frame,
            listener,
            group="g",
            checkpoint=tmp_path,
            name_server=topic.broker.name_server,
            **settings,
        )

    with pytest.raises(ConfigError, match="do not drop brokerName"):
        start(stream.select("body", "topic"))
    with pytest.raises(ConfigError, match="message_model.*CLUSTERING"):
        start(stream, message_model="BROADCASTING")
    with pytest.raises(ConfigError, match="listener.*it must take messages"):
        start(stream, lambda: None)
    with pytest.raises(ConfigError, match="consume_thread.*did you mean consume_threads"):
        start(stream, consume_thread=3)
