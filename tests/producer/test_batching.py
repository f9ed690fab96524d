"""Messages that wait for others and go as one batch, each with a result of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from orbitmq import (
    AsyncProducer,
    BrokerError,
    ConfigError,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    RequestTimeoutError,
    SendMessageContext,
    SendResult,
    select_queue_by_hash,
)
from orbitmq.codes import MESSAGE_ILLEGAL, RequestCode
from orbitmq.testing.wait import wait_until
from tests.client.stub_cluster import StubCluster, answer, silence

PATIENT = 60
HOLD: dict[str, Any] = {"auto_batch": True, "batch_max_delay_ms": 30_000, "send_timeout_ms": 60_000}
"""Batches leave when they are full, or by a shutdown: nothing depends on how fast a test is."""


def sent(cluster: StubCluster) -> list[tuple[int, int]]:
    """The codes and queues of what a stub was sent."""
    return [
        (command.code, int(command.ext_fields["e"]))
        for stub in cluster.brokers
        for command in stub.requests
        if command.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    ]


def test_each_message_has_a_result_of_its_own(broker: EmbeddedBroker) -> None:
    queue = MessageQueue("orders", "broker-a", 1)
    with Producer("makers", name_server=broker.name_server, **HOLD) as producer:
        producer.publish_queues("orders")
        futures = [
            producer.send_async(Message("orders", str(number).encode()), queue=queue)
            for number in range(5)
        ]
    results = [future.result(PATIENT) for future in futures]
    assert [result.queue_offset for result in results] == list(range(5))
    assert len({result.message_id for result in results}) == 5
    assert len({result.offset_message_id for result in results}) == 5
    with LitePullConsumer(
        "readers",
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    ) as consumer:
        consumer.assign([queue])
        seen: dict[str, bytes] = {}

        def all_seen() -> bool:
            seen.update({view.message_id: view.body for view in consumer.poll(timeout=1)})
            return len(seen) == 5

        wait_until(all_seen)
    assert seen == {
        result.message_id: str(number).encode() for number, result in enumerate(results)
    }


def test_they_go_as_one_request_and_in_order() -> None:
    with StubCluster(1, orders=4) as cluster:
        with Producer("makers", name_server=cluster.address, **HOLD) as producer:
            for number in range(3):
                producer.send_async(Message("orders", bytes([number])), queue=queue_of(2))
        assert sent(cluster) == [(RequestCode.SEND_BATCH_MESSAGE, 2)]


def queue_of(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


def test_a_message_that_finds_no_other_goes_as_it_is() -> None:
    with StubCluster(1, orders=4) as cluster:
        with Producer("makers", name_server=cluster.address, **HOLD) as producer:
            producer.send_async(Message("orders", b"-"), queue=queue_of(2))
        assert sent(cluster) == [(RequestCode.SEND_MESSAGE_V2, 2)]


def test_a_full_batch_leaves_at_once() -> None:
    with (
        StubCluster(1, orders=1) as cluster,
        Producer("makers", name_server=cluster.address, batch_max_bytes=1000, **HOLD) as producer,
    ):
        futures = [producer.send_async(Message("orders", b"x" * 400)) for _ in range(3)]
        for future in futures:
            future.result(PATIENT)
        assert [code for code, _ in sent(cluster)] == [RequestCode.SEND_BATCH_MESSAGE]


@pytest.mark.parametrize(
    "second",
    [
        {"tags": "b"},
        {"sharding_key": "other"},
        {"properties": {"WAIT": "false"}},
    ],
)
def test_what_differs_goes_apart(second: dict[str, Any]) -> None:
    with StubCluster(1, orders=4) as cluster:
        with Producer("makers", name_server=cluster.address, **HOLD) as producer:
            for fields in ({}, second, {}, second):
                producer.send_async(Message("orders", b"-", **fields))
        assert [code for code, _ in sent(cluster)] == [RequestCode.SEND_BATCH_MESSAGE] * 2


def test_queues_and_selectors_make_batches_of_their_own() -> None:
    with StubCluster(1, orders=4) as cluster:
        with Producer("makers", name_server=cluster.address, **HOLD) as producer:
            for number in (0, 1, 0, 1):
                producer.send_async(
                    Message("orders", b"-"), selector=select_queue_by_hash, arg=number
                )
                producer.send_async(Message("orders", b"-"), queue=queue_of(number))
        assert sent(cluster) == [(RequestCode.SEND_BATCH_MESSAGE, number) for number in (0, 1)]


def test_some_go_by_themselves() -> None:
    with (
        StubCluster(1, orders=1) as cluster,
        Producer("makers", name_server=cluster.address, **HOLD) as producer,
    ):
        producer.send_async(Message("orders", b"-", delay_level=1)).result(PATIENT)
        producer.send_async(Message("orders", b"-", properties={"TIMER_DELAY_SEC": "1"})).result(
            PATIENT
        )
        producer.send_async(Message("orders", b"-"), timeout=PATIENT).result(PATIENT)
        producer.send_oneway(Message("orders", b"-"))
        producer.send([Message("orders", b"1")])
        assert [code for code, _ in sent(cluster)] == [RequestCode.SEND_MESSAGE_V2] * 4 + [
            RequestCode.SEND_BATCH_MESSAGE
        ]


def test_when_too_much_is_held_they_go_by_themselves() -> None:
    with (
        StubCluster(1, orders=1) as cluster,
        Producer(
            "makers", name_server=cluster.address, total_batch_max_bytes=1, **HOLD
        ) as producer,
    ):
        held = producer.send_async(Message("orders", b"first"))
        wait_until(lambda: not producer._core._batching.has_room)  # type: ignore[union-attr]
        producer.send_async(Message("orders", b"second")).result(PATIENT)
        assert not held.done()


def test_threads_that_wait_go_together(broker: EmbeddedBroker) -> None:
    results: list[SendResult] = []
    with Producer(
        "makers", name_server=broker.name_server, auto_batch=True, send_timeout_ms=60_000
    ) as producer:
        threads = [
            threading.Thread(target=lambda: results.append(producer.send(Message("orders", b"-"))))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENT)
    assert len({result.message_id for result in results}) == 4


def test_coroutines_and_one_that_is_cancelled(broker: EmbeddedBroker) -> None:
    async def main() -> tuple[SendResult, SendResult]:
        async with AsyncProducer("makers", name_server=broker.name_server, **HOLD) as producer:
            await producer.publish_queues("orders")
            sends = [
                asyncio.ensure_future(producer.send(Message("orders", b"-"), queue=queue_of(0)))
                for _ in range(3)
            ]
            await asyncio.sleep(0)
            sends[1].cancel()
            await producer.shutdown()
            return await asyncio.gather(sends[0], sends[2])

    first, last = asyncio.run(main())
    assert first.message_id != last.message_id
    assert last.queue_offset == first.queue_offset + 2, "it was sent all the same"


def test_a_refusal_reaches_each() -> None:
    with StubCluster(1, orders=1) as cluster:
        cluster.brokers[0].reactions.append(answer(MESSAGE_ILLEGAL, "no"))
        with Producer("makers", name_server=cluster.address, **HOLD) as producer:
            futures = [producer.send_async(Message("orders", b"-")) for _ in range(3)]
        errors = [future.exception(PATIENT) for future in futures]
        assert all(isinstance(error, BrokerError) for error in errors)
        assert len({id(error) for error in errors}) == 3
        wait_until(lambda: not producer._service.in_flight.messages)


def test_a_silent_broker_is_waited_for_as_long_as_for_any_message() -> None:
    with (
        StubCluster(1, orders=1) as cluster,
        Producer(
            "makers",
            name_server=cluster.address,
            auto_batch=True,
            send_timeout_ms=200,
            retry_times_when_send_async_failed=0,
        ) as producer,
    ):
        cluster.brokers[0].reactions.append(silence)
        producer.publish_queues("orders", timeout=PATIENT)
        with pytest.raises(RequestTimeoutError):
            producer.send_async(Message("orders", b"-")).result(PATIENT)


def test_hooks_see_the_batch(broker: EmbeddedBroker) -> None:
    seen: list[SendMessageContext] = []

    class Hook:
        def send_message_before(self, context: SendMessageContext) -> None: ...

        def send_message_after(self, context: SendMessageContext) -> None:
            seen.append(context)

    messages = [Message("orders", b"1"), Message("orders", b"2")]
    with Producer("makers", name_server=broker.name_server, **HOLD) as producer:
        producer.register_send_message_hook(Hook())
        for message in messages:
            producer.send_async(message)
    (context,) = seen
    assert context.message == messages
    assert len(context.message_ids) == 2


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"batch_max_delay_ms": 0}, "batch_max_delay_ms=0"),
        ({"batch_max_delay_ms": 30_001}, "batch_max_delay_ms=30001"),
        ({"batch_max_bytes": 2 * 1024 * 1024 + 1}, "batch_max_bytes=2097153"),
        ({"total_batch_max_bytes": 0}, "total_batch_max_bytes=0"),
        ({"auto_batch": True, "batch_max_delay_ms": 3_000}, "less than send_timeout_ms=3000"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Producer("makers", name_server="127.0.0.1:9876", **settings)
