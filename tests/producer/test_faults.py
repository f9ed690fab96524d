"""Producers that leave brokers alone which failed, and find them again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orbitmq import ConfigError, Message, Producer
from orbitmq.codes import SYSTEM_BUSY, RequestCode
from orbitmq.errors import ConnectError
from orbitmq.producer.detector import Detector
from orbitmq.producer.fault_strategy import FaultStrategy
from orbitmq.testing.clock import ManualClock
from tests.client.stub_cluster import StubCluster, answer


def brokers_of(producer: Producer, count: int) -> set[str]:
    return {producer.send(Message("orders", b"-")).message_queue.broker_name for _ in range(count)}


def test_a_broker_that_refused_is_left_alone() -> None:
    with StubCluster(2, orders=4) as cluster:
        for stub in cluster.brokers:
            stub.default = stub.answer
        cluster.brokers[0].reactions.append(answer(SYSTEM_BUSY))
        with Producer(
            "makers",
            name_server=cluster.address,
            send_latency_fault_enable=True,
            not_available_duration_ms=(0, 0, 0, 0, 0, 3_600_000, 3_600_000),
        ) as producer:
            while cluster.brokers[0].reactions:  # until its turn came
                producer.send(Message("orders", b"-"))
            assert brokers_of(producer, 16) == {"broker-b"}


def test_by_default_it_is_not() -> None:
    with StubCluster(2, orders=4) as cluster:
        cluster.brokers[0].reactions.append(answer(SYSTEM_BUSY))
        with Producer("makers", name_server=cluster.address) as producer:
            while cluster.brokers[0].reactions:
                producer.send(Message("orders", b"-"))
            assert brokers_of(producer, 16) == {"broker-a", "broker-b"}


def test_queues_take_turns_while_all_is_well() -> None:
    with (
        StubCluster(2, orders=2) as cluster,
        Producer(
            "makers",
            name_server=cluster.address,
            send_latency_fault_enable=True,
            latency_max_ms=(3_600_000,),  # no machine is so slow
            not_available_duration_ms=(1,),
        ) as producer,
    ):
        queues = [producer.send(Message("orders", b"-")).message_queue for _ in range(8)]
    assert queues[:4] == queues[4:]
    assert len(set(queues)) == 4


def test_when_all_failed_all_are_tried() -> None:
    with StubCluster(2, orders=1) as cluster:
        for stub in cluster.brokers:
            stub.reactions.append(answer(SYSTEM_BUSY))
        with Producer(
            "makers", name_server=cluster.address, send_latency_fault_enable=True
        ) as producer:
            producer.send(Message("orders", b"-"))


class Instance:
    """What a detector asks: a broker that is there or not."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.there = False
        self.known = True
        self.asked: list[str] = []

    def send_address(self, broker: str) -> str | None:
        return f"{broker}:10911" if self.known else None

    async def request(self, address: str, code: int, header: Any, *, timeout_ms: int) -> None:
        assert (code, header.topic, timeout_ms) == (RequestCode.GET_MAX_OFFSET, "orders", 200)
        self.asked.append(address)
        if not self.there:
            raise ConnectError("nobody", address)


def detecting(instance: Instance, faults: FaultStrategy) -> Detector:
    sender: Any = SimpleNamespace(
        instance=instance, routes=SimpleNamespace(topics=lambda: ["orders"])
    )
    return Detector(faults, sender, interval_ms=2_000, timeout_ms=200)


def test_the_detector_finds_a_broker_again() -> None:
    instance, faults = Instance(), FaultStrategy(detector=True)
    detector = detecting(instance, faults)
    faults.unreachable("broker-a", instance.clock.monotonic() * 1000)

    asyncio.run(detector.look())
    assert instance.asked == ["broker-a:10911"]
    assert not faults.is_reachable("broker-a")
    asyncio.run(detector.look())
    assert len(instance.asked) == 1, "not before the interval is over"
    instance.there = True
    instance.clock.advance(2_000)
    asyncio.run(detector.look())
    assert faults.is_reachable("broker-a")


def test_the_detector_forgets_who_is_in_no_route() -> None:
    instance, faults = Instance(), FaultStrategy(detector=True)
    faults.unreachable("broker-a", instance.clock.monotonic() * 1000)
    instance.known = False
    asyncio.run(detecting(instance, faults).look())
    assert faults.is_reachable("broker-a")
    assert instance.asked == []


def test_a_producer_with_a_detector_ends() -> None:
    with (
        StubCluster(1, orders=1) as cluster,
        Producer(
            "makers",
            name_server=cluster.address,
            send_latency_fault_enable=True,
            start_detector_enable=True,
        ) as producer,
    ):
        producer.send(Message("orders", b"-"))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"latency_max_ms": [2, 1], "not_available_duration_ms": [0, 0]}, "ascending"),
        ({"latency_max_ms": [1, 2]}, "as many as latency_max_ms has: 2"),
        ({"start_detector_enable": True}, "send_latency_fault_enable=True"),
        ({"detect_timeout_ms": 0}, "detect_timeout_ms=0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Producer("makers", name_server="127.0.0.1:9876", **settings)
