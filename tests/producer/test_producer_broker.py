"""The producer against the embedded broker: what is sent is what is pulled."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from orbitmq import LitePullConsumer, Producer, PushConsumer
from orbitmq.aio.producer import AsyncProducer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.message import Message, MessageQueue, SendResult, SendStatus
from orbitmq.net.blocking import BlockingConnection
from orbitmq.testing.wait import wait_until
from orbitmq.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader
from orbitmq.wire.message_view import MessageView, decode_records


def pull_all(broker: EmbeddedBroker, topic: str, queues: int = 4) -> dict[int, list[MessageView]]:
    """All messages of a topic, by queue."""
    found: dict[int, list[MessageView]] = defaultdict(list)
    connection = BlockingConnection(broker.address)
    for queue_id in range(queues):
        offset = 0
        while True:
            header = PullMessageRequestHeader(
                consumer_group="test",
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                max_msg_nums=1000,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
            )
            answer = connection.invoke(RequestCode.PULL_MESSAGE, header)
            if answer.code != 0:
                break
            found[queue_id] += decode_records(answer.body)
            offset = answer.header(PullMessageResponseHeader).next_begin_offset
    connection.close()
    return found


def test_every_way_of_sending_reaches_the_log() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer("writers", name_server=broker.name_server) as producer,
    ):
        results = [
            producer.send(Message("t", b"sync", tags="a", keys="k", properties={"p": "v"})),
            producer.send_async(Message("t", b"async")).result(),
            producer.send([Message("t", b"batch 0"), Message("t", b"batch 1", tags="b")]),
            producer.send(Message("t", b"large " * 2000)),
        ]
        producer.send_oneway(Message("t", b"oneway"))
        results.append(producer.send(Message("t", b"last")))
        assert all(result.status is SendStatus.SEND_OK for result in results)
        messages = {
            bytes(message.body): message
            for queue in pull_all(broker, "t").values()
            for message in queue
        }
    assert len(messages) == 7
    assert messages[b"large " * 2000].message_id == results[3].message_id
    sync = messages[b"sync"]
    assert (sync.tags, sync.keys, sync.property("p")) == ("a", "k", "v")
    assert sync.message_id == results[0].message_id
    assert sync.offset_message_id == results[0].offset_message_id
    assert sync.queue_offset == results[0].queue_offset
    assert messages[b"batch 1"].tags == "b"
    assert b"oneway" in messages


def test_keys_keep_their_queue_and_their_order() -> None:
    keys = [f"N{number}" for number in range(17)]
    with (
        EmbeddedBroker() as broker,
        Producer("writers", name_server=broker.name_server, send_timeout_ms=30_000) as producer,
    ):
        for number in range(3000):
            key = keys[number % len(keys)]
            producer.send_async(Message("t", b"%d" % number, sharding_key=key))
        producer.shutdown()
        found = pull_all(broker, "t")
    queue_of: dict[str, int] = {}
    for queue_id, messages in found.items():
        seen: dict[str, int] = {}
        for message in messages:
            key, number = str(message.sharding_key), int(bytes(message.body))
            assert queue_of.setdefault(key, queue_id) == queue_id
            assert seen.get(key, -1) < number
            seen[key] = number
    assert sum(map(len, found.values())) == 3000


def test_results_name_the_places_of_the_log() -> None:
    async def main() -> list[SendResult]:
        async with AsyncProducer("writers", name_server=broker.name_server) as producer:
            return await asyncio.gather(
                *(producer.send(Message("t", b"%d" % number)) for number in range(400))
            )

    with EmbeddedBroker() as broker:
        results = asyncio.run(main())
        found = pull_all(broker, "t")
    places = {
        MessageQueue("t", "broker-a", queue_id): [message.message_id for message in messages]
        for queue_id, messages in found.items()
    }
    for result in results:
        assert places[result.message_queue][result.queue_offset] == result.message_id


def test_a_new_topic_is_sent_to_and_consumed_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = "CONSUME_FROM_FIRST_OFFSET"
    pushed: list[MessageView] = []
    with EmbeddedBroker() as broker:
        name_server = broker.name_server
        listener = PushConsumer("pushed", name_server=name_server, consume_from_where=first)
        listener.subscribe("new", listener=pushed.extend)
        with (
            listener,
            LitePullConsumer("polled", name_server=name_server, consume_from_where=first) as poller,
            Producer("writers", name_server=name_server, send_timeout_ms=20_000) as producer,
        ):
            poller.subscribe("new")
            for _ in range(4):
                producer.send(Message("new", b"x"))
            polled = 0
            while polled < 4:
                polled += len(poller.poll(timeout=10))
            wait_until(lambda: len(pushed) == 4)
            assert [record.getMessage() for record in caplog.records] == []
