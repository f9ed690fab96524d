"""Connections of clients to brokers that send them away, fall silent, or leave."""

from __future__ import annotations

import logging
import re

import pytest

from orbitmq import Message, Producer, codes
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import RequestTimeoutError
from orbitmq.net import connection as connection_module
from tests.client.stub_cluster import StubCluster, answer, silence
from tests.client.test_instance import Producer as RegisteredProducer
from tests.client.test_instance import with_instance
from tests.waiting import until


def test_a_send_that_is_sent_away_goes_over_a_new_connection() -> None:
    with StubCluster(t=1) as cluster:
        broker = cluster.brokers[0]
        with Producer("g", name_server=cluster.address) as producer:
            producer.send(Message("t", b"one"))
            (first,) = broker.server.connections
            broker.reactions.append(answer(codes.GO_AWAY, "shutting down"))
            producer.send(Message("t", b"two"))
            assert broker.bodies() == [b"one", b"two"]
            assert broker.server.connections - {first}


def test_a_broker_that_hangs_is_named_and_connected_to_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_SILENCE_MS", 20)

    async def scenario(instance: ClientInstance) -> None:
        broker = cluster.brokers[0]
        broker.default = silence
        with pytest.raises(RequestTimeoutError) as raised:
            await instance.request(broker.address, RequestCode.GET_MAX_OFFSET)
        text = rf"{broker.address} did not answer GET_MAX_OFFSET \(30\) within \d+ ms"
        assert re.fullmatch(text, str(raised.value))  # what connecting took is gone of the 30
        assert instance.pool.idle(broker.address) is None
        broker.default = broker.answer
        await instance.request(broker.address, RequestCode.GET_MAX_OFFSET, timeout_ms=10_000)

    with StubCluster(t=1) as cluster:
        with_instance(cluster, scenario, api_timeout_ms=30)


def test_a_broker_that_is_in_no_route_any_more_gets_no_heartbeats(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.client")

    async def scenario(instance: ClientInstance) -> None:
        stays, goes = cluster.brokers
        instance.register_producer("g", RegisteredProducer("t"))
        await until(lambda: stays.of(RequestCode.HEART_BEAT) and goes.of(RequestCode.HEART_BEAT))
        cluster.away.add(goes.name)
        await until(lambda: f"{goes.address} is in no route any more" in caplog.text)
        told = len(goes.of(RequestCode.HEART_BEAT))
        before = len(stays.of(RequestCode.HEART_BEAT))
        await until(lambda: len(stays.of(RequestCode.HEART_BEAT)) >= before + 3)
        assert len(goes.of(RequestCode.HEART_BEAT)) <= told + 1, "one was under way at most"
        assert set(instance.routes.brokers()) == {stays.address}

    with StubCluster(2, t=1) as cluster:
        with_instance(cluster, scenario, heartbeat_interval_ms=10, poll_name_server_interval_ms=10)
