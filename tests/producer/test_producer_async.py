"""Sending without waiting: order, callbacks, futures, coroutines, one-way, bounds and shutdown."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

import pytest

from orbitmq import Producer, codes
from orbitmq.aio.producer import AsyncProducer
from orbitmq.client.config import ClientConfig, ClientSettings
from orbitmq.client.loop import loop_thread
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    ClientStateError,
    ConnectError,
    InvalidMessageError,
    RequestTimeoutError,
    SystemBusyError,
    TopicNotFoundError,
)
from orbitmq.message import Message, MessageQueue, SendResult, SendStatus
from orbitmq.net.connection import Connection
from orbitmq.producer.config import ProducerConfig, ProducerSettings
from orbitmq.testing.wait import wait_until
from orbitmq.wire.command import RemotingCommand
from tests.client.stub_cluster import StubBroker, StubCluster, answer, silence
from tests.waiting import until


@contextmanager
def producing(cluster: StubCluster, **settings: Any) -> Iterator[Producer]:
    with Producer("writers", name_server=cluster.address, **settings) as producer:
        yield producer


def no_callback(result: SendResult | None, error: BaseException | None) -> None:
    """Not care."""


class Gate:
    """Keeps the sends of a broker back until it is opened."""

    def __init__(self, broker: StubBroker) -> None:
        self._broker = broker
        self.held: list[tuple[RemotingCommand, Connection]] = []
        self._default, broker.default = broker.default, self._hold

    def _hold(self, command: RemotingCommand, connection: Connection) -> None:
        if command.code == RequestCode.SEND_MESSAGE_V2:
            self.held.append((command, connection))
        else:
            self._default(command, connection)

    def open(self, count: int = 1_000_000) -> None:
        """Answer the first ``count`` that are held."""

        async def let_through() -> None:
            for _ in range(min(count, len(self.held))):
                self._broker.store(*self.held.pop(0))

        self.run(let_through())

    run: Any = None


@contextmanager
def gated(**settings: Any) -> Iterator[tuple[Gate, Producer]]:
    with StubCluster(t=1) as cluster, producing(cluster, **settings) as producer:
        producer.publish_queues("t")
        gate = Gate(cluster.brokers[0])
        gate.run = cluster.run
        try:
            yield gate, producer
        finally:
            cluster.brokers[0].default = cluster.brokers[0].answer
            gate.open()


def test_messages_of_one_thread_arrive_in_order() -> None:
    with StubCluster(2, t=2) as cluster, producing(cluster) as producer:
        queue = MessageQueue("t", "broker-b", 1)
        futures = [producer.send_async(Message("t", b"%d" % n), queue=queue) for n in range(2000)]
        offsets = [future.result().queue_offset for future in futures]
        assert offsets == sorted(offsets)
        assert cluster.brokers[1].bodies(1) == [b"%d" % n for n in range(2000)]


def test_order_holds_before_the_route_and_the_connection_are_there() -> None:
    for _ in range(5):
        with StubCluster(t=4) as cluster, producing(cluster) as producer:
            for n in range(300):
                producer.send_async(Message("t", b"%d" % n, sharding_key="k"), no_callback)
            producer.shutdown()
            assert cluster.brokers[0].bodies() == [b"%d" % n for n in range(300)]


def test_order_holds_over_all_ways_of_sending() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        for n in range(0, 400, 4):
            producer.send_oneway(Message("t", b"%d" % n))
            producer.send_async(Message("t", b"%d" % (n + 1)))
            producer.send_async(Message("t", b"%d" % (n + 2)), no_callback)
            producer.send(Message("t", b"%d" % (n + 3)))
        assert cluster.brokers[0].bodies() == [b"%d" % n for n in range(400)]


def test_a_callback_gets_the_result_or_the_error() -> None:
    outcomes: list[tuple[SendResult | None, BaseException | None, str]] = []

    def callback(result: SendResult | None, error: BaseException | None) -> None:
        outcomes.append((result, error, threading.current_thread().name))

    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        assert producer.send_async(Message("t", b"x"), callback) is None
        wait_until(lambda: outcomes)
        cluster.brokers[0].default = answer(codes.SYSTEM_BUSY)
        producer.send_async(Message("t", b"x"), callback)
    (good, no_error, thread), (no_result, bad, _) = outcomes
    assert good is not None
    assert good.status is SendStatus.SEND_OK
    assert no_error is None
    assert no_result is None
    assert isinstance(bad, SystemBusyError)
    assert thread == "orbitmq-callbacks"


def test_a_callback_may_fail_block_send_and_shut_down(caplog: pytest.LogCaptureFixture) -> None:
    results: list[SendResult] = []

    def fail(result: SendResult | None, error: BaseException | None) -> None:
        raise ValueError("a bug of the user's")

    def send_more(result: SendResult | None, error: BaseException | None) -> None:
        results.append(producer.send(Message("t", b"more")))
        producer.shutdown()
        results.append(results[0])

    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        producer.send_async(Message("t", b"x"), fail)
        producer.send_async(Message("t", b"x"), send_more)
        wait_until(lambda: len(results) == 2, "the shutdown from a callback")
        assert "a bug of the user's" in caplog.text
        assert cluster.brokers[0].bodies() == [b"x", b"x", b"more"]


def test_futures_behave_as_those_of_the_standard_library() -> None:
    with gated() as (gate, producer):
        futures = [producer.send_async(Message("t", b"x")) for _ in range(3)]
        assert not futures[0].cancel()
        assert not futures[0].done()
        with pytest.raises(TimeoutError):
            futures[0].result(0.01)
        threads: list[str] = []
        futures[0].add_done_callback(lambda _: threads.append(threading.current_thread().name))
        wait_until(lambda: len(gate.held) == 3)
        gate.open()
        done, _ = concurrent.futures.wait(futures, timeout=10)
        assert len(done) == 3
        futures[0].add_done_callback(lambda _: threads.append(threading.current_thread().name))
        wait_until(lambda: len(threads) == 2)
        assert set(threads) == {"orbitmq-callbacks"}


def test_shutdown_waits_for_what_is_on_its_way() -> None:
    outcomes: list[object] = []
    with gated() as (gate, producer):
        for _ in range(3):
            producer.send_async(Message("t", b"x"), lambda *outcome: outcomes.append(outcome[1]))
        wait_until(lambda: len(gate.held) == 3)
        stopping = threading.Thread(target=producer.shutdown)
        stopping.start()
        wait_until(lambda: not producer._core.lifecycle.running)
        with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
            producer.send_async(Message("t", b"x"))
        assert not outcomes
        gate.open()
        stopping.join()
        assert outcomes == [None] * 3


def test_shutdown_takes_no_longer_than_what_is_on_its_way() -> None:
    with StubCluster(t=1) as cluster, producing(cluster, send_timeout_ms=100) as producer:
        cluster.brokers[0].default = silence
        future = producer.send_async(Message("t", b"x"))
        cluster.brokers[0].reactions.append(silence)
        producer.publish_queues("t")
        cluster.brokers[0].default = cluster.brokers[0].answer
        producer.shutdown()
        assert future.done()


def test_nothing_of_a_producer_stays_on_the_loop() -> None:
    async def tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    before = loop_thread().run(tasks())
    with StubCluster(2, t=1) as cluster, producing(cluster) as producer:
        for _ in range(4):
            producer.send(Message("t", b"x"))
    assert loop_thread().run(tasks()) == before


# Bounds


def test_no_more_than_the_bound_is_on_its_way() -> None:
    with gated(max_in_flight=2) as (gate, producer):
        for _ in range(2):
            producer.send_async(Message("t", b"x"))
        with pytest.raises(RequestTimeoutError, match="2 messages were on their way, .*for 30 ms"):
            producer.send_async(Message("t", b"x"), timeout=0.03)
        third = threading.Thread(target=lambda: producer.send_async(Message("t", b"third")))
        third.start()
        wait_until(lambda: len(gate.held) == 2)
        gate.open(1)
        third.join()
        wait_until(lambda: len(gate.held) == 2)
        gate.open()


def test_no_more_bytes_than_the_bound_are_on_their_way() -> None:
    with gated(max_in_flight_bytes=10) as (gate, producer):
        producer.send_async(Message("t", bytes(100)))  # alone, any size may go
        with pytest.raises(RequestTimeoutError, match="max_in_flight_bytes=10"):
            producer.send_async(Message("t", b"x"), timeout=0.02)
        wait_until(lambda: gate.held)
        gate.open()
        for _ in range(2):
            producer.send_async(Message("t", bytes(5)))
        with pytest.raises(RequestTimeoutError):
            producer.send_async(Message("t", b"x"), timeout=0.02)


# One-way


def test_oneway_asks_for_no_answer() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        for n in range(5):
            producer.send_oneway(Message("t", b"%d" % n))
        producer.send_oneway([Message("t", b"x")])
        wait_until(lambda: len(cluster.brokers[0].bodies()) == 6)
        sends = cluster.brokers[0].of(RequestCode.SEND_MESSAGE_V2)
        assert all(command.is_oneway for command in sends)
        queues = producer.publish_queues("t")
        producer.send_oneway(Message("t", b"y"), queue=queues[0])
        producer.send_oneway(Message("t", b"y"), selector=lambda queues, *_: queues[0])


def test_the_first_oneway_send_raises_and_later_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        del cluster.topics["TBW102"]
        with pytest.raises(TopicNotFoundError):
            producer.send_oneway(Message("unknown", b"x"))
        producer.send_oneway(Message("t", b"x"))
        wait_until(cluster.brokers[0].bodies)
        cluster.run(cluster.brokers[0].stop())
        wait_until(lambda: _try_oneway(producer, caplog), "the failure in the log")


def _try_oneway(producer: Producer, caplog: pytest.LogCaptureFixture) -> bool:
    producer.send_oneway(Message("t", b"x"))
    return "was not sent" in caplog.text


def test_oneway_sends_do_not_pile_up_behind_a_broker_that_does_not_read() -> None:
    settings = {"max_in_flight": 8, "send_timeout_ms": 200, "compress_over_bytes": 10_000_000}
    with StubCluster(t=1) as cluster, producing(cluster, **settings) as producer:
        producer.send(Message("t", b"x"))
        (connection,) = cluster.brokers[0].server.connections

        async def read(*, on: bool) -> None:
            transport = connection._transport
            (transport.resume_reading if on else transport.pause_reading)()

        cluster.run(read(on=False))

        def send_for_ever() -> None:
            while True:
                producer.send_oneway(Message("t", bytes(1_000_000)))

        with pytest.raises(RequestTimeoutError, match="8 messages"):
            send_for_ever()
        cluster.run(read(on=True))


# Coroutines


def run(coroutine: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await coroutine

    asyncio.run(limited())


def test_coroutines_send() -> None:
    async def main(cluster: StubCluster) -> None:
        async with AsyncProducer("writers", name_server=cluster.address) as producer:
            results = await asyncio.gather(
                *(producer.send(Message("t", b"%d" % n)) for n in range(100))
            )
            assert len({result.message_id for result in results}) == 100
            batch = await producer.send_batch([Message("t", b"x")] * 2)
            assert batch.status is SendStatus.SEND_OK
            queues = await producer.publish_queues("t")
            chosen = await producer.send(Message("t", b"x"), selector=lambda all_, *_: all_[1])
            assert chosen.message_queue == queues[1]
            await producer.send_oneway(Message("t", b"oneway"), queue=queues[0])
            await producer.send(Message("t", b"x"), queue=queues[0])
            assert b"oneway" in cluster.brokers[0].bodies(0)
        with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
            await producer.send(Message("t", b"x"))

    with StubCluster(t=2) as cluster:
        run(main(cluster))


def test_what_a_coroutine_sends_arrives_in_order() -> None:
    async def main(cluster: StubCluster) -> None:
        async with AsyncProducer("writers", name_server=cluster.address) as producer:
            await asyncio.gather(*(producer.send(Message("t", b"%d" % n)) for n in range(500)))

    with StubCluster(t=1) as cluster:
        run(main(cluster))
        assert cluster.brokers[0].bodies() == [b"%d" % n for n in range(500)]


def test_a_coroutine_gets_the_errors() -> None:
    async def main(cluster: StubCluster) -> None:
        async with AsyncProducer("writers", name_server=cluster.address) as producer:
            cluster.brokers[0].default = answer(codes.SYSTEM_BUSY)
            with pytest.raises(SystemBusyError):
                await producer.send(Message("t", b"x"))
            with pytest.raises(InvalidMessageError):
                await producer.send(Message("t", b""))
            del cluster.topics["TBW102"]
            with pytest.raises(TopicNotFoundError):
                await producer.send(Message("u", b"x"), selector=lambda queues, *_: queues[0])
            with pytest.raises(TopicNotFoundError):
                await producer.send_oneway(Message("u", b"x"))
            with pytest.raises(ConnectError, match="broker-z"):
                await producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-z", 0))

    with StubCluster(t=1) as cluster:
        run(main(cluster))


def test_a_coroutine_waits_for_room_without_blocking_its_loop() -> None:
    async def main(cluster: StubCluster) -> None:
        gate = Gate(cluster.brokers[0])
        gate.run = cluster.run
        settings: ProducerSettings = {"name_server": cluster.address, "max_in_flight": 2}
        async with AsyncProducer("writers", **settings) as producer:
            sends = [asyncio.create_task(producer.send(Message("t", b"x"))) for _ in range(5)]
            await until(lambda: len(gate.held) >= 2, "two sends held")
            with pytest.raises(RequestTimeoutError, match="max_in_flight=2"):
                await producer.send(Message("t", b"x"), timeout=0.02)
            sends[4].cancel()
            while not all(send.done() for send in sends):
                await asyncio.to_thread(gate.open, 1)
                await asyncio.sleep(0.002)
            assert [send.cancelled() for send in sends] == [False] * 4 + [True]
            assert len(cluster.brokers[0].bodies()) == 4

    with StubCluster(t=1) as cluster:
        run(main(cluster))


def test_a_cancelled_send_leaves_its_producer_usable() -> None:
    async def main(cluster: StubCluster) -> None:
        gate = Gate(cluster.brokers[0])
        gate.run = cluster.run
        async with AsyncProducer("writers", name_server=cluster.address) as producer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await producer.send(Message("t", b"x"))
            cluster.brokers[0].default = cluster.brokers[0].answer
            await asyncio.to_thread(gate.open)
            assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK

    with StubCluster(t=1) as cluster:
        run(main(cluster))


def test_one_producer_serves_several_loops() -> None:
    async def send(producer: AsyncProducer) -> SendResult:
        return await producer.send(Message("t", b"x"))

    with StubCluster(t=1) as cluster:
        producer = AsyncProducer("writers", name_server=cluster.address)
        asyncio.run(producer.start())
        for _ in range(3):
            assert asyncio.run(send(producer)).status is SendStatus.SEND_OK
        asyncio.run(producer.shutdown())


def test_a_blocked_loop_of_the_users_costs_no_heartbeat() -> None:
    async def main(cluster: StubCluster) -> None:
        settings: ProducerSettings = {"name_server": cluster.address, "heartbeat_interval_ms": 10}
        async with AsyncProducer("writers", **settings) as producer:
            await producer.send(Message("t", b"x"))
            before = len(cluster.brokers[0].of(RequestCode.HEART_BEAT))
            time.sleep(1.5)  # noqa: ASYNC251 - that is the point
            assert len(cluster.brokers[0].of(RequestCode.HEART_BEAT)) > before + 5

    with StubCluster(t=1) as cluster:
        run(main(cluster))


# Settings


@pytest.mark.parametrize(
    ("config", "settings"), [(ClientConfig, ClientSettings), (ProducerConfig, ProducerSettings)]
)
def test_the_keyword_arguments_are_the_settings(config: type[ClientConfig], settings: type) -> None:
    def plain(hints: dict[str, Any]) -> dict[str, Any]:
        return {name: hint for name, hint in hints.items() if not name.startswith("_")}

    assert plain(get_type_hints(settings)) == {
        name: get_type_hints(config)[name] for name in config.__struct_fields__
    }


def test_logging_says_who_started_and_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "orbitmq.producer")
    with StubCluster(t=1) as cluster, producing(cluster, instance_name="me", client_ip="10.0.0.1"):
        pass
    assert "producer writers started as client 10.0.0.1@me" in caplog.text
    assert "producer writers shut down" in caplog.text
