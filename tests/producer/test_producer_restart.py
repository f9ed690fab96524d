"""A broker restarts: what is sent meanwhile waits for it, in order, for as long as it may."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from orbitmq import Message, Producer
from orbitmq.errors import ConnectError, NetworkError
from orbitmq.message import MessageQueue
from orbitmq.testing.wait import wait_until
from tests.client.stub_cluster import StubCluster

QUEUE = MessageQueue("t", "broker-a", 0)


@pytest.fixture
def cluster() -> Iterator[StubCluster]:
    with StubCluster(t=1) as cluster:
        yield cluster


@pytest.fixture
def producer(cluster: StubCluster) -> Iterator[Producer]:
    """May not try again, but for a broker it does not reach."""
    with Producer(
        "writers",
        name_server=cluster.address,
        send_timeout_ms=20_000,
        retry_times_when_send_failed=0,
        retry_times_when_send_async_failed=0,
    ) as producer:
        producer.send(Message("t", b"first"))
        yield producer


class Broker:
    """Goes away and comes back at the same address."""

    def __init__(self, cluster: StubCluster) -> None:
        self._cluster = cluster
        self._broker = cluster.brokers[0]
        self._port = self._broker.server.port

    def stop(self) -> None:
        self._cluster.run(self._broker.stop())

    def start(self) -> None:
        self._cluster.run(self._broker.server.start("127.0.0.1", self._port))


def test_what_is_sent_while_the_only_broker_is_away_waits_for_it(
    cluster: StubCluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.producer")
    broker = Broker(cluster)
    broker.stop()
    wait_until(lambda: producer._core.instance.pool.idle(cluster.brokers[0].address) is None)
    futures = [producer.send_async(Message("t", b"%d" % n)) for n in range(50)]
    wait_until(lambda: "broker broker-a cannot be reached" in caplog.text)
    futures += [producer.send_async(Message("t", b"%d" % n), queue=QUEUE) for n in range(50, 100)]
    with pytest.raises(NetworkError, match="refused"):
        producer.send_oneway(Message("u", b"one-way sends do not wait"))
    with pytest.raises(ConnectError, match="refused") as raised:
        producer.send(Message("t", b"too late"), timeout=0.25)
    assert raised.value.__notes__ == ["tried again and again for 250 ms"]
    assert not any(future.done() for future in futures)
    broker.start()
    for future in futures:
        future.result(20)
    assert cluster.brokers[0].bodies()[1:] == [b"%d" % n for n in range(100)]
    assert caplog.text.count("cannot be reached") == 1
    assert caplog.text.count("is reached again") == 1


def test_a_topic_whose_only_broker_left_the_route_waits_for_it(cluster: StubCluster) -> None:
    with Producer(
        "writers", name_server=cluster.address, poll_name_server_interval_ms=10
    ) as producer:
        producer.send(Message("t", b"first"))
        cluster.topics.pop("TBW102")
        cluster.away.add("broker-a")
        wait_until(lambda: producer._core.known_queues("t") is None, "the route is gone")
        queues = cluster.topics.pop("t")
        future = producer.send_async(Message("t", b"x"), timeout=20)
        wait_until(lambda: producer._core._sender.routes.error_of("t"), "a first attempt")
        cluster.away.clear()
        cluster.topics["t"] = queues
        future.result(20)


def test_another_broker_takes_over_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with (
        StubCluster(2, t=4) as cluster,
        Producer("writers", name_server=cluster.address, send_timeout_ms=20_000) as producer,
    ):
        producer.publish_queues("t")
        Broker(cluster).stop()
        for number in range(40):
            result = producer.send(Message("t", b"%d" % number))
            assert result.message_queue.broker_name == "broker-b"
        assert caplog.text.count("cannot be reached") == 1
