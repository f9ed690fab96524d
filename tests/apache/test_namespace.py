"""Namespaces between Apache's Java clients and ours: the same names on the wire, none in sight."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from orbitmq import LitePullConsumer, Message, PushConsumer
from orbitmq.client.namespace import with_namespace, without_namespace
from tests.apache.exchanges import side_by_side
from tests.apache.java_program import JavaProgram, options
from tests.apache.python_clients import PATIENT, new_producer
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq import ConsumeConcurrentlyContext, MessageView
    from tests.apache.jars import ApacheRelease
    from tests.apache.orbit import Cluster

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]

NAMESPACE = "MQ_INST_1_a"
COUNT = 8
QUEUES = 4
NAMES = [
    *("flights", "%RETRY%readers", "%DLQ%readers", "a%b", "%RETRY%", "%DLQ%x%y", "%x"),
    *("TBW102", "SELF_TEST_TOPIC", "rmq_sys_x", "CID_RMQ_SYS_x", "SCHEDULE_TOPIC_XXXX"),
    *("MQ_INST_1_a%flights", "%RETRY%MQ_INST_1_a%readers", "MQ_INST_1_a", "MQ_INST_1_a%"),
    *("MQ_INST_2_b%flights", "%DLQ%MQ_INST_2_b%readers", "MQ_INST_1_ab%x", "%RETRY%%DLQ%x"),
]


def test_clients_of_both_kinds_share_a_namespace(
    apache: ApacheRelease, orbit_cluster: Cluster, apache_cluster: Cluster
) -> None:
    """On ours and 5.5.0 at once; Java's lite pull consumer of 5.5.0 cannot pull from a 4.9.7."""
    side_by_side(
        partial(share_a_namespace, apache, cluster) for cluster in (orbit_cluster, apache_cluster)
    )


def share_a_namespace(apache: ApacheRelease, cluster: Cluster) -> None:
    server = cluster.name_server
    # Made by its name on the wire; clients in the namespace call it by what is behind the %.
    wire_topic = cluster.new_topic(f"{NAMESPACE}%orders", QUEUES)
    topic = wire_topic.removeprefix(f"{NAMESPACE}%")
    with new_producer("python-producers", server, namespace=NAMESPACE) as producer:
        for number in range(COUNT):
            producer.send(Message(topic, b"1", keys=f"python{number}"))
    values = {
        "nameServer": server,
        "namespace": NAMESPACE,
        "topic": topic,
        "count": COUNT,
        "names": ",".join(NAMES),
    }
    pushed: list[tuple[str, str | None, int]] = []
    polled: list[tuple[str, str | None, int]] = []

    def listen(messages: Sequence[MessageView], context: ConsumeConcurrentlyContext) -> bool:
        (message,) = messages
        context.delay_level_when_next_consume = 1
        pushed.append((message.topic, message.keys, message.reconsume_times))
        return message.reconsume_times > 0

    push = PushConsumer(
        "python-push",
        listen,
        name_server=server,
        namespace=NAMESPACE,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        poll_name_server_interval_ms=1_000,
        **PATIENT,
    )
    lite = LitePullConsumer(
        "mixed",
        name_server=server,
        namespace=NAMESPACE,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        poll_name_server_interval_ms=1_000,
        **PATIENT,
    )
    with JavaProgram(apache, "Namespaced", options(values)) as java, push, lite:
        push.subscribe(topic)
        lite.subscribe(topic)
        java.wait_for("ready")
        java.wait_until(lambda: java.values("queues")[-1:] == [QUEUES // 2], "half the queues")
        eventually(lambda: len(lite.assignment()) == QUEUES // 2, "the other half", lite.assignment)
        assert {queue.topic for queue in lite.assignment()} == {topic}
        with new_producer("python-producers", server, namespace=NAMESPACE) as producer:
            for number in range(COUNT, 2 * COUNT):
                producer.send(Message(topic, b"1", keys=f"python{number}"))

        def all_polled() -> bool:
            polled.extend((item.topic, item.keys, 0) for item in lite.poll(0.05))
            return len(set(polled) | {tuple(row) for row in java.values("polled")}) == 3 * COUNT

        eventually(all_polled, "all messages, polled by either", lambda: sorted(polled, key=str))
        java.wait_until(lambda: len(java.values("pushed")) >= 6 * COUNT, "retries in Java")
        eventually(lambda: len(pushed) >= 6 * COUNT, "retries here", lambda: pushed)
        java.stop()

    assert java.values("names") == [
        [
            [name, with_namespace(NAMESPACE, name), without_namespace(name, NAMESPACE)]
            for name in NAMES
        ]
    ]
    assert [row[0] for row in java.values("sent")] == [topic] * COUNT
    keys = [
        f"{kind}{number}"
        for kind, end in (("java", COUNT), ("python", 2 * COUNT))
        for number in range(end)
    ]
    twice = Counter((topic, key, times) for key in keys for times in (0, 1))
    assert Counter(pushed) == twice
    assert Counter(tuple(row) for row in java.values("pushed")) == twice
    by_either = Counter(polled) + Counter(tuple(row) for row in java.values("polled"))
    assert by_either.keys() == {(topic, key, 0) for key in keys}
