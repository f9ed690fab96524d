"""Which messages consumers get, and how many of them: tags, SQL92, broadcasting; on each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message, MessageSelector
from tests.apache.exchanges import (
    check_content,
    check_received,
    number_of,
    send_messages,
    stored,
    wait_received,
)
from tests.apache.java_clients import Sent, body_of
from tests.apache.python_clients import PythonLitePullConsumer, PythonPushConsumer, new_producer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.apache.orbit import Cluster

QUEUES = 4  # at each of two brokers

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def test_a_subscription_chooses_by_tag(cluster: Cluster) -> None:
    server, topic = cluster.name_server, cluster.new_topic("tags", QUEUES, brokers=2)
    with (
        PythonLitePullConsumer(server, topic, f"{topic}-lite-pull", "TagA || TagC") as lite_pull,
        PythonPushConsumer(server, topic, f"{topic}-push", "TagA || TagC") as push,
        PythonPushConsumer(server, topic, f"{topic}-orderly", "TagB", orderly=True) as orderly,
    ):
        rows = send_messages(server, topic, range(120))
        tag_b = [row for row in rows if number_of(row) % 3 == 1]
        others = [row for row in rows if number_of(row) % 3 != 1]
        for consumer, wanted in ((lite_pull, others), (push, others), (orderly, tag_b)):
            consumer.wait_count(len(wanted))
            check_received(consumer.messages, wanted)
            check_content(consumer.messages)


def test_a_subscription_chooses_by_sql92(cluster: Cluster) -> None:
    server, topic = cluster.name_server, cluster.new_topic("sql", QUEUES, brokers=2)
    selector = MessageSelector.by_sql(
        "number BETWEEN 10 AND 59 AND (region = 'north' OR TAGS IN ('TagX')) AND absent IS NULL"
    )
    with (
        PythonLitePullConsumer(server, topic, f"{topic}-lite-pull", selector) as lite_pull,
        PythonPushConsumer(server, topic, f"{topic}-push", selector) as push,
        new_producer(f"{topic}-senders", server) as producer,
    ):
        rows: list[Sent] = []
        for number in range(80):
            region = ("north", "south")[number % 2]
            message = Message(
                topic,
                body_of(f"k{number}"),
                keys=f"k{number}",
                tags="TagX" if number % 5 == 0 else "TagY",
                properties={"number": str(number), "region": region},
            )
            rows += stored([f"k{number}"], producer.send(message))
        wanted = [
            row
            for row in rows
            if 10 <= number_of(row) <= 59 and (number_of(row) % 2 == 0 or number_of(row) % 5 == 0)
        ]
        for consumer in (lite_pull, push):
            consumer.wait_count(len(wanted))
            check_received(consumer.messages, wanted)


def test_each_consumer_gets_all_that_is_broadcast(cluster: Cluster, tmp_path: Path) -> None:
    server, topic = cluster.name_server, cluster.new_topic("broadcast", QUEUES, brokers=2)
    group = f"{topic}-listeners"

    def settings(name: str) -> dict[str, Any]:
        return {
            "message_model": "BROADCASTING",
            "instance_name": f"{topic}-{name}",
            "local_offset_dir": str(tmp_path / name),
        }

    with (
        PythonPushConsumer(server, topic, group, **settings("push")) as push,
        PythonPushConsumer(server, topic, group, orderly=True, **settings("orderly")) as orderly,
    ):
        rows = send_messages(server, topic, range(80))
        for consumer in (push, orderly):
            consumer.wait_count(80)
            check_received(consumer.messages, rows)
    rows = send_messages(server, topic, range(80, 160))
    with (
        PythonPushConsumer(server, topic, group, **settings("push")) as push,
        PythonLitePullConsumer(server, topic, f"{topic}-pollers", **settings("poll")) as lite_pull,
    ):
        # It goes on where its file says; the new one begins at the beginning.
        wait_received(rows, push, lite_pull)
        push.wait_count(80)
        check_received(push.messages, rows)
        lite_pull.wait_count(160)
        assert {number_of(row) for row in lite_pull.messages} == set(range(160))
