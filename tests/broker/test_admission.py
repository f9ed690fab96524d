"""Which messages a topic's settings and the broker's keep out, and what consumers may read."""

from __future__ import annotations

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.wire.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    TopicConfig,
    TopicRouteData,
)
from orbitmq.wire.message_types import message_type
from orbitmq.wire.record import encode_batch
from tests.broker.remote import Client, Running, bodies, messages, with_broker


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "NORMAL"),
        ({"TRAN_MSG": "true", "DELAY": "1"}, "TRANSACTION"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
        ({"DELAY": "1", "__SHARDINGKEY": "x"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "1"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "1"}, "DELAY"),
        ({"TIMER_DELAY_MS": "1"}, "DELAY"),
        ({"__SHARDINGKEY": "x", "_SYS_MSG_PRIORITY_": "1"}, "FIFO"),
        ({"_SYS_MSG_PRIORITY_": "1"}, "PRIORITY"),
    ],
)
def test_what_a_message_is_follows_from_its_properties(
    properties: dict[str, str], expected: str
) -> None:
    assert message_type(properties) == expected


SENDS = {
    "NORMAL": {"KEYS": "k"},
    "DELAY": {"DELAY": "1"},
    "FIFO": {"__SHARDINGKEY": "x"},
}


def test_a_topic_with_a_message_type_takes_messages_of_that_type_only() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for expected in SENDS:
            attributes = {"message.type": expected}
            node.broker.topics.put(TopicConfig(expected, 1, 1, attributes=attributes))
        for expected in SENDS:
            for sent, properties in SENDS.items():
                answer = await client.send(expected, properties=properties)
                if sent == expected:
                    assert answer.code == codes.SUCCESS
                else:
                    assert answer.code == codes.MESSAGE_ILLEGAL
                    assert f"takes {expected} messages, this is a {sent} one" in (
                        answer.remark or ""
                    )
        for attribute in ("UNSPECIFIED", "MIXED"):
            attributes = {"message.type": attribute}
            node.broker.topics.put(TopicConfig("any", 1, 1, attributes=attributes))
            for properties in SENDS.values():
                answer = await client.send("any", properties=properties)
                assert answer.code == codes.SUCCESS
        retry = TopicConfig("%RETRY%g", 1, 1, attributes={"message.type": "FIFO"})
        node.broker.topics.put(retry)
        assert (await client.send("%RETRY%g")).code == codes.SUCCESS

    with_broker(scenario)


def test_message_types_are_not_looked_at_where_that_is_set() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.topics.put(TopicConfig("T", 1, 1, attributes={"message.type": "FIFO"}))
        assert (await client.send("T")).code == codes.SUCCESS

    with_broker(scenario, topic_message_type_check=False)


def test_a_topic_is_written_and_read_as_its_permission_says() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"first")
        for perm, may_write, may_read in ((4, False, True), (2, True, False), (0, False, False)):
            node.broker.topics.put(TopicConfig("T", 1, 1, perm=perm))
            answer = await client.send("T", b"more")
            assert answer.code == (codes.SUCCESS if may_write else codes.NO_PERMISSION)
            batch = encode_batch([(0, b"batched", b"")])
            answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, batch_header("T"), batch)
            assert answer.code == (codes.SUCCESS if may_write else codes.NO_PERMISSION)
            answer = await client.pull("T")
            assert answer.code == (codes.SUCCESS if may_read else codes.NO_PERMISSION)
        node.broker.topics.put(TopicConfig("T", 1, 1))
        assert bodies(await client.pull("T")) == [b"first", b"more", b"batched"]

    with_broker(scenario)


def batch_header(topic: str) -> dict[str, str]:
    return {
        "a": "senders", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1",
        "h": "0", "i": "", "m": "true",
    }  # fmt: skip


def test_a_topic_is_made_after_a_pattern_that_is_inherited_only() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.topics.put(TopicConfig("pattern", 3, 3, perm=7))
        node.broker.topics.put(TopicConfig("plain", 3, 3, perm=6))
        answer = await client.send("A", default_topic="plain")
        assert answer.code == codes.TOPIC_NOT_EXIST
        assert (await client.send("B", default_topic="pattern")).code == codes.SUCCESS
        made = node.broker.topics.topics["B"]
        assert (made.perm, made.write_queue_nums) == (6, 3)

    with_broker(scenario)


def test_what_consumers_send_back_goes_into_a_retry_topic_that_may_be_written() -> None:
    async def scenario(node: Running, client: Client) -> None:
        async def send_back() -> int:
            header = {"offset": "0", "group": "readers", "delayLevel": "1"}
            return (await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code

        await client.send("T")
        await client.heartbeat("readers", "T")
        assert await send_back() == codes.SUCCESS
        node.broker.topics.put(TopicConfig("%RETRY%readers", 1, 1, perm=4))
        assert await send_back() == codes.NO_PERMISSION

    with_broker(scenario)


def test_the_brokers_permission_is_over_all_topics() -> None:
    async def scenario(node: Running, client: Client) -> None:
        names = await node.connect(node.node.name_server)

        async def allow(permission: int) -> None:
            body = f"brokerPermission={permission}\n".encode()
            answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, body)
            assert answer.code == codes.SUCCESS, answer.remark

        async def told(topic: str) -> int:
            answer = await names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return TopicRouteData.decode(answer.body).queue_datas[0].perm

        await client.send("T")
        await client.heartbeat("readers", "T")
        node.broker.topics.put(TopicConfig("ordered", 1, 1, order=True))
        before = node.broker.topics.version
        await allow(4)
        assert node.broker.topics.version != before
        assert await told("T") == 4
        # Routes keep clients away; only for ordered topics the broker itself is strict.
        assert (await client.send("T")).code == codes.SUCCESS
        assert (await client.send("ordered")).code == codes.NO_PERMISSION
        header = {"offset": "0", "group": "readers", "delayLevel": "1"}
        answer = await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == codes.NO_PERMISSION
        assert (await client.pull("T")).code == codes.SUCCESS
        await allow(2)
        assert await told("T") == 2
        assert (await client.pull("T")).code == codes.NO_PERMISSION
        await allow(6)
        assert await told("T") == 6
        assert len(messages(await client.pull("T"))) == 2

    with_broker(scenario)


def test_queues_are_taken_away_and_added_while_they_are_used() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.topics.put(TopicConfig("T", 4, 4))
        await client.send("T", b"in 3", queue_id=3)
        # First they are written no more, and what is there is still read ...
        node.broker.topics.put(TopicConfig("T", 4, 2))
        assert bodies(await client.pull("T", queue_id=3)) == [b"in 3"]
        answer = await client.send("T", b"late", queue_id=3)  # of a client with an old route
        assert answer.code == codes.SUCCESS
        # ... then they are read no more either; who waits there is told when his time is up.
        held = client.hold("T", queue_id=3, offset=2)
        await client.settle()
        node.broker.topics.put(TopicConfig("T", 2, 2))
        assert (await client.pull("T", queue_id=3)).code == codes.INVALID_PARAMETER
        assert (await client.send("T", queue_id=3)).code == codes.INVALID_PARAMETER
        node.clock.advance(20_000)
        node.node.server.run_due()
        assert (await held).code == codes.INVALID_PARAMETER
        # Grown again, they go on where they were.
        node.broker.topics.put(TopicConfig("T", 8, 8))
        assert bodies(await client.pull("T", queue_id=3)) == [b"in 3", b"late"]
        answer = await client.send("T", queue_id=7)
        assert answer.ext_fields["queueOffset"] == "0"

    with_broker(scenario)


@pytest.mark.parametrize("rejects", [True, False])
def test_consumers_without_listeners_can_be_left_out(*, rejects: bool) -> None:
    async def scenario(node: Running, client: Client) -> None:
        data = [
            ConsumerData("polls", consume_type=ConsumeType.CONSUME_ACTIVELY),
            ConsumerData("listens", consume_type=ConsumeType.CONSUME_PASSIVELY),
        ]
        body = HeartbeatData("c", consumer_data_set=data).encode()
        assert (await client.call(RequestCode.HEART_BEAT, None, body)).code == codes.SUCCESS
        expected = {"listens"} if rejects else {"polls", "listens"}
        assert node.broker.consumers.groups.keys() == expected

    with_broker(scenario, reject_pull_consumers=rejects)
