"""Requests and replies between Java's clients and ours; batches and traces as Java finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from orbitmq import Message, PushConsumer, create_reply_message
from orbitmq.producer.selectors import _hash_code
from orbitmq.wire.trace import FIELD_END, RECORD_END
from tests.apache.java_program import JavaProgram, options
from tests.apache.python_clients import PATIENT, new_producer
from tests.consumer_program import FROM_FIRST
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq import MessageView
    from tests.apache.jars import ApacheRelease
    from tests.apache.orbit import Cluster

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]

WORDS = ["one", "two", "three"]


@pytest.fixture
def replied(cluster: Cluster) -> Iterator[str]:
    """A topic of both brokers, where a consumer of ours replies to what is meant for it."""
    topic = cluster.new_topic("questions", 2, brokers=2)
    with new_producer(f"{topic}-replies", cluster.name_server) as producer:

        def reply(messages: list[MessageView]) -> None:
            for message in messages:
                producer.send(create_reply_message(message, b"re: " + message.body))

        consumer = PushConsumer(
            f"{topic}-servants",
            reply,
            name_server=cluster.name_server,
            consume_from_where=FROM_FIRST,
            **PATIENT,
        )
        consumer.subscribe(topic, "python")
        with consumer:
            yield topic


def test_java_and_python_ask_each_other(
    cluster: Cluster, apache: ApacheRelease, replied: str
) -> None:
    traces = cluster.new_topic("traces", 1, brokers=2)
    with new_producer(
        f"{replied}-asks",
        cluster.name_server,
        auto_batch=True,
        batch_max_delay_ms=30_000,
        enable_trace=True,
        trace_topic=traces,
    ) as batching:
        queue = batching.publish_queues(replied)[0]
        futures = [
            batching.send_async(
                Message(replied, word.encode(), tags="batched", keys=f"key-{word}"), queue=queue
            )
            for word in WORDS
        ]
    ids = [future.result(PATIENCE_SECONDS).message_id for future in futures]
    values = {
        "nameServer": cluster.name_server,
        "topic": replied,
        "keys": ",".join(f"key-{word}" for word in WORDS),
        "traces": traces,
        "traced": ids[1],
    }
    with (
        new_producer(f"{replied}-asks-again", cluster.name_server) as producer,
        JavaProgram(apache, "Asking", options(values)) as java,
    ):
        java.wait_for("ready")
        asked = [
            producer.request_async(
                Message(replied, word.encode(), tags="java"), timeout=PATIENCE_SECONDS
            )
            for word in WORDS
        ]
        assert [future.result(PATIENCE_SECONDS).body.decode() for future in asked] == [
            word.upper() for word in WORDS
        ]
        java.wait_for("trace")
        java.wait_for("called")
        java.stop()
    assert java.values("reply") == [f"re: java{number}" for number in range(3)]
    assert java.values("called") == ["re: called"]
    assert java.values("late") == [10006]
    assert java.values("found") == [WORDS]
    records = [record.split(FIELD_END) for record in java.values("trace")[0].split(RECORD_END)]
    assert {record[5] for record in records if record[0] == "Pub"} >= {ids[1]}
    shared = ["polygenelubricants", 1 << 31, 1.5, True, UUID(int=(1 << 64) + 2)]
    assert java.values("hashes") == [[_hash_code(value) for value in shared]]
