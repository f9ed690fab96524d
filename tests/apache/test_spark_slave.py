"""Spark's tasks read from Apache's slave where Apache's master suggests that."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from orbitmq import Admin
from orbitmq.codes import RequestCode
from orbitmq.net.blocking import CONNECTIONS, BlockingConnection
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.wire.headers import OffsetResponseHeader, TopicQueueRequestHeader
from orbitmq.wire.message_view import decode_records
from orbitmq.wire.properties import encode_properties
from tests.apache.cluster import ApacheBroker
from tests.patience import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.net.blocking import Access
    from tests.apache.cluster import ApacheCluster

COUNT = 500
PRUDENT = {"slaveReadEnable": False, "accessMessageInMemoryMaxRatio": 40}
SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
EAGER = {"slaveReadEnable": True, "accessMessageInMemoryMaxRatio": 0}
"""All that is not at the log's end is too far behind for the master."""

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def end_at(address: str, topic: str) -> int:
    """Where queue 0 of ``topic`` ends at the broker at ``address``."""
    with closing(BlockingConnection(address)) as connection:
        answer = connection.request(RequestCode.GET_MAX_OFFSET, TopicQueueRequestHeader(topic, 0))
    return answer.header(OffsetResponseHeader).offset


def test_what_lies_far_back_is_read_from_the_slave(
    apache_cluster: ApacheCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, master = apache_cluster, apache_cluster.broker
    topic = cluster.new_topic("slave", 1)
    with closing(Sender((cluster.name_server,), "spark")) as sender:
        for number in range(COUNT):
            sender.add(topic, Outgoing(b"%d" % number, encode_properties({}), None))
        sender.finish()
    slave = ApacheBroker(cluster.release, cluster.name_server, tmp_path, settings=SLAVE | EAGER)
    asked: list[str] = []
    take = CONNECTIONS.take

    def noted(address: str, access: Access) -> BlockingConnection:
        asked.append(address)
        return take(address, access)

    with Admin(name_server=cluster.name_server) as admin, slave:
        eventually(lambda: end_at(slave.address, topic) == COUNT, "the slave's copy")
        monkeypatch.setattr(CONNECTIONS, "take", noted)
        reader = RangeReader(
            topic, "spark", "*", fail_on_data_loss=True, name_servers=(cluster.name_server,)
        )
        ranges = [QueueRange(topic, master.name, 0, master.address, 0, COUNT)]
        admin.update_broker_config(EAGER, broker=master.name)
        try:
            found = [decode_records(data) for _, data in reader.read(ranges)]
        finally:
            admin.update_broker_config(PRUDENT, broker=master.name)
    read = [int(view.body) for views in found for view in views]
    assert read == list(range(COUNT))
    assert slave.address in asked
