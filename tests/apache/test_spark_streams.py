"""Spark itself on Apache's brokers: streams from topic to topic, and what their groups have read.

The suite has the parts of it, without Spark; this takes a minute, where ORBITMQ_LONG is set.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.codes import RequestCode
from orbitmq.net.blocking import BlockingConnection
from orbitmq.spark import sending
from orbitmq.spark.sending import Outgoing, Sender
from orbitmq.spark.topic import TopicClient
from orbitmq.wire.headers import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from tests.patience import PATIENCE_SECONDS, eventually
from tests.spark.crashes.campaign import Driver
from tests.spark.crashes.copying import Copy, Spec
from tests.spark.crashes.counting import bodies

if TYPE_CHECKING:
    from tests.apache.cluster import ApacheCluster

pytestmark = [
    pytest.mark.apache,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("jvm"),
]

ROWS = [f"{number % 70}" for number in range(200)]


def send(cluster: ApacheCluster, topic: str) -> None:
    """Send all rows, and wait until they can be read."""
    with closing(Sender((cluster.name_server,), "spark")) as sender:
        for row in ROWS:
            sender.add(topic, Outgoing(row.encode(), b""))
        sender.finish()
    await_rows(cluster, topic)


def await_rows(cluster: ApacheCluster, topic: str) -> None:
    """Apache shows messages a little after it acknowledged them."""
    eventually(lambda: sum(ends_of(cluster, topic).values()) >= len(ROWS), f"all of {topic}")


def ends_of(cluster: ApacheCluster, topic: str) -> dict[int, int]:
    """Where the queues of ``topic`` end."""
    client = TopicClient((cluster.name_server,), topic)
    client.refresh()
    return {queue[2]: bound.end for queue, bound in client.bounds(all_brokers=True).items()}


def committed_of(cluster: ApacheCluster, topic: str, group: str) -> dict[int, int]:
    """What ``group`` has read of each queue."""
    found = {}
    with closing(BlockingConnection(cluster.broker.address)) as broker:
        for number in ends_of(cluster, topic):
            header = QueryConsumerOffsetRequestHeader(
                consumer_group=group, topic=topic, queue_id=number
            )
            answer = broker.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
            found[number] = answer.header(OffsetResponseHeader).offset
    return found


def test_streams_with_every_guarantee(
    old_apache_cluster: ApacheCluster,
    apache_cluster: ApacheCluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sending, "SEND_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    copies: list[tuple[ApacheCluster, Copy]] = []
    for cluster in (old_apache_cluster, apache_cluster):
        source = cluster.new_topic("spark-source", queues=2)
        send(cluster, source)
        for guarantee in ("at_least_once", "idempotent", "exactly_once"):
            name = f"{guarantee}-{cluster.release.version}"
            copy = Copy(
                name=name, name_server=cluster.name_server, source=source,
                sink=cluster.new_topic("spark-sink", queues=2), guarantee=guarantee,
                checkpoint=str(tmp_path / name),
                options={"maxOffsetsPerTrigger": "120", "group": f"spark-{guarantee}"},
            )  # fmt: skip
            copies.append((cluster, copy))
    spec = Spec(
        master="local[2,4]", home=str(tmp_path / "driver"), copies=[copy for _, copy in copies]
    )
    with Driver(spec) as driver:
        driver.wait_for("done")
        assert driver.values("failed") == []
    for cluster, copy in copies:
        await_rows(cluster, copy["sink"])
        assert bodies(cluster.name_server, copy["sink"]) == Counter(ROWS), copy["name"]
        read = committed_of(cluster, copy["source"], copy["options"]["group"])
        assert read == ends_of(cluster, copy["source"]), copy["name"]
