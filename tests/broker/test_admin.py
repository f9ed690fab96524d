"""What tools ask of the broker."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.message import MessageQueue
from orbitmq.wire.admin_bodies import SubscriptionGroupList
from orbitmq.wire.bodies import (
    Body,
    ClusterInfo,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.registration import KVTable, TopicList
from tests.broker.remote import Client, Running, bodies, running, with_broker


async def create(client: Client, topic: str, **fields: str) -> RemotingCommand:
    header = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "",
        "force": "false",
    }
    return await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header | fields)


def test_a_topic_is_made_routed_shown_changed_and_deleted() -> None:
    async def scenario(node: Running, client: Client) -> None:
        names = await node.connect(node.node.name_server)
        assert (await create(client, "T")).code == codes.SUCCESS
        answer = await names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        route = TopicRouteData.decode(answer.body)
        (queues,), (broker,) = route.queue_datas, route.broker_datas
        assert (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums) == (
            "broker-a", 3, 2,
        )  # fmt: skip
        assert broker.master_address == node.node.address
        answer = await names.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert ClusterInfo.decode(answer.body).cluster_addr_table == {
            "DefaultCluster": frozenset({"broker-a"})
        }
        answer = await client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
        assert TopicConfig.decode(answer.body) == TopicConfig("T", 3, 2)
        await client.send("T", queue_id=1)
        answer = await client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
        stats = TopicStatsTable.decode(answer.body).offset_table
        assert stats == {
            MessageQueue("T", "broker-a", 0): TopicOffset(),
            MessageQueue("T", "broker-a", 1): TopicOffset(0, 1, node.clock.now_ms()),
            MessageQueue("T", "broker-a", 2): TopicOffset(),
        }
        for attributes in ("+message.type=DELAY,+reserve.time=7", "-reserve.time"):
            answer = await create(client, "T", perm="4", attributes=attributes)
            assert answer.code == codes.SUCCESS, answer.remark
        changed = node.broker.topics.topics["T"]
        assert (changed.perm, changed.attributes) == (4, {"message.type": "DELAY"})
        deletion = await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert deletion.code == codes.SUCCESS
        await names.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
        for asked, code in (
            (client, RequestCode.GET_TOPIC_STATS_INFO),
            (client, RequestCode.GET_TOPIC_CONFIG),
            (names, RequestCode.GET_ROUTEINFO_BY_TOPIC),
        ):
            assert (await asked.call(code, {"topic": "T"})).code == codes.TOPIC_NOT_EXIST
        answer = await names.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert "T" not in TopicList.decode(answer.body).topic_list

    with_broker(scenario)


def test_a_topic_made_anew_begins_at_offset_0() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"old")
        await client.pull("T", sys_flag=4 | 1, commit_offset=1)
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        answer = await client.send("T", b"new")
        assert answer.ext_fields["queueOffset"] == "0"
        assert bodies(await client.pull("T")) == [b"new"]
        assert node.broker.offsets.table == {}

    with_broker(scenario)


@pytest.mark.parametrize(
    ("topic", "fields", "remark"),
    [
        ("TBW102", {}, "broker's own"),
        ("DefaultCluster", {}, "broker's own"),
        ("rmq_sys_x", {}, "broker's own"),
        ("a b", {}, "' '"),
        ("T", {"writeQueueNums": "-1"}, "-1 queues"),
        ("T", {"readQueueNums": "100000"}, "100000 queues"),
    ],
)
def test_topics_that_cannot_be_made_are_refused(
    topic: str, fields: dict[str, str], remark: str
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await create(client, topic, **fields)
        assert answer.code == codes.INVALID_PARAMETER
        assert remark in (answer.remark or "")

    with_broker(scenario)


def test_all_topics_are_told_with_their_version() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await create(client, "T")
        answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
        told = TopicConfigSerializeWrapper.decode(answer.body)
        assert {"T", "TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a"} <= set(told.topic_config_table)
        assert told.data_version.counter == 1

    with_broker(scenario)


def test_groups_are_made_told_and_deleted() -> None:
    async def scenario(node: Running, client: Client) -> None:
        async def call(code: int, **header: str) -> RemotingCommand:
            return await client.call(code, header or None, body)

        body = SubscriptionGroupConfig("g", retry_max_times=3).encode()
        answer = await call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert answer.code == codes.SUCCESS
        body = b""
        answer = await call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        groups = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
        assert groups["g"].retry_max_times == 3
        node.broker.offsets.commit("g", "T", 0, 1)
        for clean, left in (("false", 1), ("true", 0)):
            await call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset=clean)
            assert len(node.broker.offsets.table) == left
        assert "g" not in node.broker.groups
        body = SubscriptionGroupConfig("no group").encode()
        answer = await call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert answer.code == codes.INVALID_PARAMETER

    with_broker(scenario)


def test_state_and_settings_are_told() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", properties={"DELAY": "2"})
        node.advance(5_000)
        answer = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.decode(answer.body).table
        assert int(table["commitLogMaxOffset"]) == node.broker.store.max_physical_offset
        assert table["scheduleMessageOffset_2"] == "1,1"
        answer = await client.call(RequestCode.GET_BROKER_CONFIG)
        lines = bytes(answer.body).decode().splitlines()
        assert "brokerName=broker-a" in lines
        assert "autoCreateTopicEnable=true" in lines
        assert "flushDiskType=ASYNC_FLUSH" in lines

    with_broker(scenario)


def test_unknown_codes_and_headers_that_lack_something_are_answered() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.call(12345)
        assert answer.code == codes.REQUEST_CODE_NOT_SUPPORTED
        assert "12345" in (answer.remark or "")
        answer = await client.call(RequestCode.GET_TOPIC_CONFIG, {"topicName": "T"})
        assert answer.code == codes.SYSTEM_ERROR
        assert "`topic`" in (answer.remark or "")
        answer = await client.call(RequestCode.PULL_MESSAGE, {"queueId": "x"})
        assert answer.code == codes.SYSTEM_ERROR

    with_broker(scenario)


def test_a_failure_nobody_foresaw_is_answered_and_the_broker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError("a mistake of ours")

        node.broker.store.min_offset = fail  # type: ignore[method-assign, assignment]
        answer = await client.call(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})
        assert answer.code == codes.SYSTEM_ERROR
        assert "ZeroDivisionError: a mistake of ours" in (answer.remark or "")
        assert (await client.send("T")).code == codes.SUCCESS

    with_broker(scenario)
    assert "GET_MIN_OFFSET (31)" in caplog.text


def test_garbage_ends_its_connection_only() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 64):
            reader, writer = await asyncio.open_connection(*node.node.address.split(":"))
            writer.write(garbage)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        assert (await client.send("T")).code == codes.SUCCESS

    with_broker(scenario)


def test_a_big_table_is_encoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    encode = Body.encode

    def noted(body: Body, **options: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return encode(body, **options)

    async def scenario(node: Running, client: Client) -> None:
        for number in range(1_000):
            node.broker.topics.put(TopicConfig(f"T{number}"))
            node.broker.groups.put(SubscriptionGroupConfig(f"G{number}"))
        node.broker.saved.save_changes()
        monkeypatch.setattr(Body, "encode", noted)
        topics = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = TopicConfigSerializeWrapper.decode(topics.body)
        assert table.topic_config_table == node.broker.topics.topics
        groups = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        settings = SubscriptionGroupWrapper.decode(groups.body).subscription_group_table
        assert settings == node.broker.groups.groups
        assert sum(name.startswith("asyncio") for name in threads) == 2
        assert threading.current_thread().name not in threads
        monkeypatch.undo()

    with_broker(scenario)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"readQueueNums": "-1"}, "-1 queues"),
        ({"writeQueueNums": "65537"}, "65537 queues"),
        ({"perm": "8"}, "permission 8"),
        ({"perm": "-1"}, "permission -1"),
        ({"topicFilterType": "NO_TAG"}, "filter type 'NO_TAG'"),
        ({"attributes": "+message.type=MIXED"}, "enableMixedMessageType"),
    ],
)
def test_topics_that_cannot_be_are_refused(fields: dict[str, str], named: str) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await create(client, "T", **fields)
        assert answer.code == codes.INVALID_PARAMETER
        assert named in (answer.remark or "")
        assert "T" not in node.broker.topics.topics

    with_broker(scenario)


@pytest.mark.parametrize(
    "settings",
    [
        {"retry_queue_nums": 300_000},
        {"retry_queue_nums": -1},
        {"retry_max_times": 1 << 70},
        {"subscription_data_set": [SimpleSubscriptionData("T", "TAG", 66_000 * "x")]},
    ],
)
def test_groups_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    async def scenario(node: Running, client: Client) -> None:
        group = SubscriptionGroupConfig("g", **settings)
        groups = SubscriptionGroupList([SubscriptionGroupConfig("other"), group])
        for code, body in (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode()),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups.encode()),
        ):
            answer = await client.call(code, None, body)
            assert answer.code == codes.INVALID_PARAMETER, answer
            assert "g " in (answer.remark or "")
        assert not {"g", "other"} & node.broker.groups.groups.keys()

    with_broker(scenario)


def test_tables_saved_with_numbers_out_of_range_are_taken_with_others(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    topics = {"T": TopicConfig("T", 300_000, -1), "fits": TopicConfig("fits", 65_536, 0)}
    groups = {"g": SubscriptionGroupConfig("g", retry_queue_nums=300_000)}
    (config / "topics.json").write_bytes(TopicConfigSerializeWrapper(topics).encode())
    (config / "subscriptionGroup.json").write_bytes(SubscriptionGroupWrapper(groups).encode())
    (config / "consumerOffset.json").write_text(
        '{"offsetTable":{"T@g":{0:7,1:-1,2:1180591620717411303424}}}'
    )

    async def main() -> None:
        async with running(tmp_path) as node:
            table = node.broker.topics.topics
            assert (table["T"].read_queue_nums, table["T"].write_queue_nums) == (65_536, 0)
            assert table["fits"] == topics["fits"]
            assert node.broker.groups.groups["g"].retry_queue_nums == 1_024
            assert node.broker.offsets.table == {"T@g": {0: 7}}

    asyncio.run(main())


def test_the_statistics_of_a_topic_of_many_queues_list_those_that_were_written() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for topic, queues in (("many", 65_536), ("some", 1_024)):
            node.broker.topics.put(TopicConfig(topic, queues, queues))
            await client.send(topic, queue_id=1_000)
        many = await client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "many"})
        assert set(TopicStatsTable.decode(many.body).offset_table) == {
            MessageQueue("many", "broker-a", 1_000)
        }
        some = await client.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "some"})
        assert len(TopicStatsTable.decode(some.body).offset_table) == 1_024

    with_broker(scenario)
