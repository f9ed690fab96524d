"""What tools ask about groups: who is online, how far they are, what they subscribe to."""

from __future__ import annotations

import pytest

from orbitmq import codes
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.codes import RequestCode
from orbitmq.message import MessageQueue
from orbitmq.wire.admin_bodies import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    ProducerConnection,
    QuerySubscriptionResponseBody,
    SubscriptionGroupList,
)
from orbitmq.wire.bodies import ConsumeType, MessageModel, SubscriptionGroupConfig
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.registration import TopicList
from tests.broker.remote import Client, Running, bodies, with_broker


async def stats(client: Client, group: str = "g", **header: str) -> ConsumeStats:
    answer = await client.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group} | header)
    assert answer.code == codes.SUCCESS
    return ConsumeStats.decode(answer.body)


def offset_in(stats: ConsumeStats, topic: str, queue_id: int = 0) -> OffsetWrapper:
    return stats.offset_table[MessageQueue(topic, "broker-a", queue_id)]


def test_who_is_online_and_what_they_subscribe_to() -> None:
    async def scenario(node: Running, client: Client) -> None:
        other = await node.connect()
        await client.heartbeat("g", "T", client_id="one", producers=("p",))
        await other.heartbeat("g", "T", client_id="two")
        answer = await client.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        online = ConsumerConnection.decode(answer.body)
        host, port = client.connection._transport.get_extra_info("sockname")
        assert online.connection_set[0] == Connection("one", f"{host}:{port}", "PYTHON", 479)
        assert [member.client_id for member in online.connection_set] == ["one", "two"]
        assert online.subscription_table["T"].sub_string == "*"
        assert online.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert online.message_model is MessageModel.CLUSTERING
        answer = await client.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
        producers = ProducerConnection.decode(answer.body).connection_set
        assert producers == online.connection_set[:1]

    with_broker(scenario)


@pytest.mark.parametrize(
    ("request_code", "header", "code"),
    [
        (
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            {"consumerGroup": "g"},
            codes.CONSUMER_NOT_ONLINE,
        ),
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "g"}, codes.SYSTEM_ERROR),
    ],
)
def test_a_group_without_members_is_not_online(
    request_code: int, header: dict[str, str], code: int
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.call(request_code, header)
        assert answer.code == code
        assert "'g' has no member online" in (answer.remark or "")

    with_broker(scenario)


def test_how_far_a_group_is() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for _ in range(5):
            await client.send("T")
        stored = node.clock.now_ms()
        node.advance(1000)
        await client.send("T")
        node.broker.offsets.commit("g", "T", 0, 5)
        assert offset_in(await stats(client), "T") == OffsetWrapper(6, 5, 5, stored)
        await client.pull("T", consumer_group="g", offset=5)
        found = await stats(client)
        assert offset_in(found, "T") == OffsetWrapper(6, 5, 6, stored)
        # The other queues of the topic were not consumed yet.
        assert len(found.offset_table) == 4
        assert offset_in(found, "T", 3) == OffsetWrapper()

    with_broker(scenario)


def test_how_far_a_group_is_in_the_topics_asked_for() -> None:
    async def scenario(node: Running, client: Client) -> None:
        async def topics(**header: str) -> set[str]:
            return {queue.topic for queue in (await stats(client, **header)).offset_table}

        for topic in ("A", "B", "C"):
            await client.send(topic)
            node.broker.offsets.commit("g", topic, 0, 1)
        node.broker.offsets.commit("g", "deleted", 0, 1)
        assert await topics() == {"A", "B", "C"}
        assert await topics(topic="B") == {"B"}
        assert await topics(topicList="A;C;") == {"A", "C"}
        await client.heartbeat("g", "B")  # what a group online no longer subscribes to is left out
        assert await topics() == {"B"}
        assert await topics(topic="A") == set()
        assert await topics(topic="A", topicList="A;C") == {"A", "C"}

    with_broker(scenario)


def test_who_consumes_a_topic_and_what_a_group_consumes() -> None:
    async def scenario(node: Running, client: Client) -> None:
        async def ask(code: int, **header: str) -> RemotingCommand:
            answer = await client.call(code, header)
            assert answer.code == codes.SUCCESS
            return answer

        node.broker.offsets.commit("before", "T", 0, 1)
        await client.heartbeat("now", "T", tags="A")
        answer = await ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
        assert GroupList.decode(answer.body).group_list == {"before", "now"}
        answer = await ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="before")
        assert TopicList.decode(answer.body).topic_list == {"T"}
        answer = await ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="now", topic="T")
        found = QuerySubscriptionResponseBody.decode(answer.body)
        assert found.subscription_data
        assert found.subscription_data.sub_string == "A"
        answer = await ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="before", topic="T")
        assert QuerySubscriptionResponseBody.decode(answer.body) == (
            QuerySubscriptionResponseBody("before", "T")
        )

    with_broker(scenario)


def test_the_settings_of_one_group() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.groups.put(SubscriptionGroupConfig("g", retry_max_times=3))
        for group, code in (("g", codes.SUCCESS), ("h", codes.SUBSCRIPTION_GROUP_NOT_EXIST)):
            answer = await client.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
            assert answer.code == code
            if code == codes.SUCCESS:
                assert SubscriptionGroupConfig.decode(answer.body).retry_max_times == 3

    with_broker(scenario, auto_create_groups=False)


def test_several_groups_are_made_at_once_or_none() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for names, code in (
            (("a", "b"), codes.SUCCESS),
            (("c", "no group"), codes.INVALID_PARAMETER),
        ):
            body = SubscriptionGroupList([SubscriptionGroupConfig(name) for name in names])
            answer = await client.call(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body.encode()
            )
            assert answer.code == code
        groups = node.broker.groups
        assert ("a" in groups, "b" in groups, "c" in groups) == (True, True, False)

    with_broker(scenario)


def test_a_message_is_found_by_its_place_in_the_log() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"first")
        sent = await client.send("T", b"second")
        offset = int(sent.ext_fields["msgId"][16:], 16)
        answer = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        assert bodies(answer) == [b"second"]
        answer = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset + 1)})
        assert answer.code == codes.SYSTEM_ERROR
        assert f"offset {offset + 1}" in (answer.remark or "")

    with_broker(scenario)


async def clone(client: Client, **fields: str) -> None:
    header = {"srcGroup": "g", "destGroup": "copy", "offline": "false"} | fields
    answer = await client.call(RequestCode.CLONE_GROUP_OFFSET, header)
    assert answer.code == codes.SUCCESS


def test_a_group_goes_on_where_another_is() -> None:
    async def scenario(node: Running, client: Client) -> None:
        offsets = node.broker.offsets
        for topic in ("A", "B"):
            await client.send(topic)
            offsets.commit("g", topic, 0, 1)
        offsets.commit("g", "deleted", 0, 1)
        await clone(client, topic="A")
        assert offsets.topics("copy") == ["A"]
        offsets.commit("g", "A", 0, 9)
        assert offsets.query("copy", "A", 0) == 1  # its own from now on
        await client.heartbeat("g", "B")
        await clone(client, topic="A")  # which the source does not subscribe to now
        assert offsets.query("copy", "A", 0) == 1
        await clone(client)
        assert set(offsets.topics("copy")) == {"A", "B"}
        await clone(client, topic="A", offline="true")
        assert offsets.query("copy", "A", 0) == 9

    with_broker(scenario)


def test_what_is_forgotten_of_a_topic_and_of_a_group() -> None:
    offsets = ConsumerOffsets()
    for group, topic in (("g", "A"), ("g", "B"), ("h", "A")):
        offsets.pulled(group, topic, 0, 7)
        offsets.reset(group, topic, 0, 3)
    offsets.forget_topic("A")
    assert (offsets.pull_offset("g", "A", 0), offsets.is_reset("g", "A", 0)) == (None, False)
    assert (offsets.pull_offset("g", "B", 0), offsets.is_reset("g", "B", 0)) == (7, True)
    offsets.forget_group("g")
    assert (offsets.pull_offset("g", "B", 0), offsets.is_reset("g", "B", 0)) == (None, False)
    assert offsets.table == {}
    offsets.reset("g", "A", 0, 3)
    offsets.commit("h", "A", 0, 5)
    offsets.clone("h", "g", "A")  # after which the reset is out of date
    assert (offsets.query("g", "A", 0), offsets.is_reset("g", "A", 0)) == (5, False)
