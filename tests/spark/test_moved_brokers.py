"""A task that reads while its broker sends it to a slave, or comes back somewhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import DataLossError
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.wire.message_view import decode_records
from tests.spark.fake_cluster import cluster, server
from tests.spark.planners import FakeTopic, Topic

FOUND = codes.SUCCESS


def read(name_server: str, master: str, end: int = 9) -> None:
    """Read queue 0 of broker-0; what is lost is an error."""
    reader = RangeReader("T", "g", "*", fail_on_data_loss=True, name_servers=(name_server,))
    assert not list(reader.read([QueueRange("T", "broker-0", 0, master, 0, end)]))


def test_a_slave_is_read_while_it_is_suggested() -> None:
    master, slave = FakeTopic(), FakeTopic()
    master.suggested = slave.suggested = 1
    master.pulls = [(FOUND, 3)]
    slave.pulls = [(FOUND, 6), (FOUND, 9)]
    with server(slave) as there, cluster(master, slave=there) as address:
        read(address, address)
    assert (master.asked, slave.asked) == ([0], [3, 6])


def test_a_slave_suggests_the_master_again() -> None:
    master, slave = FakeTopic(), FakeTopic()
    master.suggested = 1
    master.pulls = [(FOUND, 3), (FOUND, 9)]
    slave.pulls = [(FOUND, 5)]
    with server(slave) as there, cluster(master, slave=there) as address:
        read(address, address)
    assert (master.asked, slave.asked) == ([0, 5], [3])


@pytest.mark.parametrize(
    "refusal", [codes.PULL_RETRY_IMMEDIATELY, codes.PULL_OFFSET_MOVED, codes.NO_PERMISSION]
)
def test_what_a_slave_lacks_the_master_has(refusal: int) -> None:
    """It may lag, or not let itself be read: neither is a loss, and it is not asked again."""
    master, slave = FakeTopic(), FakeTopic()
    master.suggested = 1
    master.pulls = [(FOUND, 3), (FOUND, 6), (FOUND, 9)]
    slave.pulls = [(refusal, 7)]
    with server(slave) as there, cluster(master, slave=there) as address:
        read(address, address)
    assert (master.asked, slave.asked) == ([0, 3, 6], [3])


def test_a_slave_that_is_away_is_not_waited_for() -> None:
    master, slave = FakeTopic(), FakeTopic()
    master.suggested = 1
    master.pulls = [(FOUND, 3), (FOUND, 9)]
    slave.down = True
    with server(slave) as there, cluster(master, slave=there) as address:
        read(address, address)
    assert master.asked == [0, 3]


def test_a_slave_nobody_knows_is_not_looked_for() -> None:
    master = FakeTopic()
    master.suggested = 1
    master.pulls = [(FOUND, 3), (FOUND, 9)]
    with cluster(master) as address:
        read(address, address)
    assert master.asked == [0, 3]


def test_a_loss_is_still_one_where_the_master_says_so() -> None:
    master, slave = FakeTopic(), FakeTopic()
    master.suggested = 1
    master.pulls = [(FOUND, 3), (codes.PULL_OFFSET_MOVED, 6)]
    slave.pulls = [(codes.PULL_OFFSET_MOVED, 6)]
    with (
        server(slave) as there,
        cluster(master, slave=there) as address,
        pytest.raises(DataLossError, match="offsets 3 to 5 are gone"),
    ):
        read(address, address)


def test_a_broker_that_came_back_elsewhere_is_found(tmp_path: Path) -> None:
    with EmbeddedBroker(broker_name="other") as known:
        name_server = known.name_server
        with EmbeddedBroker(tmp_path, name_server=name_server) as broker:
            topic = Topic(broker, queues=1)
            topic.send(*(str(number) for number in range(50)))
            planned = broker.address
        with EmbeddedBroker(tmp_path, name_server=name_server):
            reader = RangeReader(
                topic.name, "g", "*", fail_on_data_loss=True, name_servers=(name_server,)
            )
            ranges = [QueueRange(topic.name, "broker-a", 0, planned, 0, 50)]
            bodies = [
                int(view.body) for _, data in reader.read(ranges) for view in decode_records(data)
            ]
    assert bodies == list(range(50))
