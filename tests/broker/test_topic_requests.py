"""Topics and groups as operators handle them: lists, pages, clean-up, modes, engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.handlers import answering
from orbitmq.broker.saved import SavedTables
from orbitmq.codes import RequestCode
from orbitmq.names import SYSTEM_TOPICS
from orbitmq.wire.admin_bodies import SubscriptionGroupList
from orbitmq.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.registration import TopicList
from orbitmq.wire.topic_bodies import (
    ColdDataFlowCtrInfo,
    CreateTopicListRequestBody,
    GroupForbidden,
    HARuntimeInfo,
    SetMessageRequestModeBody,
)
from tests.broker.remote import Client, Running, with_broker

LIST = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


async def make(client: Client, *topics: TopicConfig) -> RemotingCommand:
    return await client.call(LIST, None, CreateTopicListRequestBody(list(topics)).encode())


def test_topics_are_made_in_lists_all_or_none() -> None:
    async def scenario(node: Running, client: Client) -> None:
        typed = TopicConfig("B", 2, 2, attributes={"+message.type": "FIFO"})
        assert (await make(client, TopicConfig("A", 1, 1), typed)).code == codes.SUCCESS
        topics = node.broker.topics.topics
        assert topics["B"].attributes == {"message.type": "FIFO"}
        answer = await make(client, TopicConfig("C"), TopicConfig("A", 9, 9), TopicConfig("a b"))
        assert answer.code == codes.INVALID_PARAMETER
        assert "C" not in topics
        assert topics["A"].read_queue_nums == 1
        answer = await make(client, TopicConfig("A", 1, 1), TopicConfig("C"))  # A is as it was
        assert answer.code == codes.SUCCESS
        assert "C" in topics

    with_broker(scenario)


def test_a_list_is_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "MAX_LISTED", 2)

    async def scenario(node: Running, client: Client) -> None:
        answer = await make(client, *(TopicConfig(f"T{number}") for number in range(3)))
        assert answer.code == codes.INVALID_PARAMETER
        assert "3 topics are too many" in (answer.remark or "")
        groups = [SubscriptionGroupConfig(f"g{number}") for number in range(3)]
        answer = await client.call(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            None,
            SubscriptionGroupList(groups).encode(),
        )
        assert answer.code == codes.INVALID_PARAMETER
        assert "T0" not in node.broker.topics.topics
        assert "g0" not in node.broker.groups.groups

    with_broker(scenario)


def test_all_topics_and_groups_are_told_in_pages_to_who_asks_for_pages() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for number in range(5):
            node.broker.topics.put(TopicConfig(f"T{number}"))
            node.broker.groups.put(SubscriptionGroupConfig(f"g{number}"))
        names: list[str] = []
        version = DataVersion()
        while True:
            header = {
                "topicSeq": str(len(names)),
                "dataVersion": version.encode().decode(),
                "maxTopicNum": "4",
            }
            answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            page = TopicConfigSerializeWrapper.decode(answer.body)
            version = page.data_version
            names += page.topic_config_table
            assert int(answer.ext_fields["totalTopicNum"]) == len(node.broker.topics.topics)
            if len(page.topic_config_table) < 4:
                break
        assert sorted(names) == sorted(node.broker.topics.topics)
        # The version has changed: from the first again.
        node.broker.topics.put(TopicConfig("0"))
        header = {"topicSeq": "8", "dataVersion": version.encode().decode(), "maxTopicNum": "1"}
        answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG, header)
        page = TopicConfigSerializeWrapper.decode(answer.body)
        assert list(page.topic_config_table) == ["0"]
        header = {"groupSeq": "0", "maxGroupNum": "3"}
        answer = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        groups = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
        assert list(groups) == sorted(node.broker.groups.groups)[:3]
        assert int(answer.ext_fields["totalGroupNum"]) == len(node.broker.groups.groups)
        for wrong in ({"topicSeq": "-5", "maxTopicNum": "-1"}, {"topicSeq": "999999"}):
            answer = await client.call(RequestCode.GET_ALL_TOPIC_CONFIG, wrong)
            assert answer.code == codes.SUCCESS

    with_broker(scenario)


def test_what_belongs_to_a_topic_goes_with_it() -> None:
    async def scenario(node: Running, client: Client) -> None:
        broker = node.broker
        for topic in ("T", "T2", "%RETRY%g_T", "%RETRY%g_T2"):
            broker.topics.put(TopicConfig(topic, 1, 1))
            await client.send(topic)
            broker.offsets.commit("g", topic, 0, 1)
        answer = await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert answer.code == codes.SUCCESS
        assert not {"T", "%RETRY%g_T"} & broker.topics.topics.keys()
        assert sorted(broker.offsets.topics("g")) == ["%RETRY%g_T2", "T2"]
        assert sorted(broker.store.topics()) == ["%RETRY%g_T2", "T2"]
        for topic in (" ", "TBW102"):
            answer = await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert answer.code == codes.INVALID_PARAMETER

    with_broker(scenario)


@pytest.mark.parametrize("name", ["cleanOffset", "removeOffset"])  # of 5.x, and of 4.9
@pytest.mark.parametrize("clean", [True, False])
def test_a_groups_offsets_go_with_it_where_that_is_wanted(name: str, *, clean: bool) -> None:
    async def scenario(node: Running, client: Client) -> None:
        broker = node.broker
        broker.groups.put(SubscriptionGroupConfig("g"))
        for group in ("g", "other"):
            broker.offsets.commit(group, "T", 0, 1)
        header = {"groupName": "g", name: str(clean).lower()}
        answer = await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert answer.code == codes.SUCCESS
        assert "g" not in broker.groups
        assert broker.offsets.topics("g") == ([] if clean else ["T"])
        assert broker.offsets.topics("other") == ["T"]

    with_broker(scenario)


def test_queues_of_topics_that_are_no_more_are_cleaned_up() -> None:
    async def scenario(node: Running, client: Client) -> None:
        broker = node.broker
        for topic in ("used", "unused", "BenchmarkTest"):
            await client.send(topic)
        broker.topics.delete("unused")
        broker.topics.delete("BenchmarkTest")
        assert (await client.call(RequestCode.CLEAN_UNUSED_TOPIC)).code == codes.SUCCESS
        assert set(broker.store.topics()) == {"used", "BenchmarkTest"}
        answer = await client.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert answer.code == codes.SUCCESS
        assert set(broker.store.topics()) == {"used", "BenchmarkTest"}
        answer = await client.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert answer.code == codes.SUCCESS

    with_broker(scenario)


def test_the_brokers_own_topics_are_listed() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        names = TopicList.decode(answer.body).topic_list
        assert names >= SYSTEM_TOPICS | {"broker-a", "DefaultCluster"}

    with_broker(scenario)


def test_a_group_may_be_forbidden_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedTables, "save_small_tables", lambda _: None)  # so it is in the journal

    async def scenario(node: Running, client: Client) -> None:
        async def readable(value: str | None = None) -> bool:
            header = {"group": "readers", "topic": "T"}
            if value is not None:
                header["readable"] = value
            answer = await client.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
            assert answer.code == codes.SUCCESS
            return GroupForbidden.decode(answer.body).readable

        await client.send("T")
        await client.heartbeat("readers", "T")
        assert await readable()
        assert (await client.pull("T", sys_flag=0)).code == codes.SUCCESS
        assert not await readable("false")
        assert (await client.pull("T", sys_flag=0)).code == codes.NO_PERMISSION
        answer = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        told = SubscriptionGroupWrapper.decode(answer.body).forbidden_table
        assert told == {"readers": {"T": 4}}
        # Killed and started again, from the journal; then from the file.
        node.broker.saved.save_changes()
        journal = tmp_path / "config" / "subscriptionGroup.json.journal"
        copy = tmp_path.parent / "copy" / "config"
        copy.mkdir(parents=True)
        (copy / journal.name).write_bytes(journal.read_bytes())
        with EmbeddedBroker(copy.parent) as again:
            assert again.call(lambda node: node.broker.groups.forbidden) == told
        saved = json.loads((copy / "subscriptionGroup.json").read_bytes())
        assert saved["forbiddenTable"] == told
        with EmbeddedBroker(copy.parent) as again:
            assert again.call(lambda node: node.broker.groups.forbidden) == told
        assert await readable("true")
        assert node.broker.groups.forbidden == {}
        assert (await client.pull("T", sys_flag=0)).code == codes.SUCCESS

    with_broker(scenario, store_directory=tmp_path)


def test_modes_of_groups_are_kept(tmp_path: Path) -> None:
    async def scenario(node: Running, client: Client) -> None:
        async def put(topic: str) -> int:
            mode = SetMessageRequestModeBody(topic, "g", "POP", 8)
            code = RequestCode.SET_MESSAGE_REQUEST_MODE
            return (await client.call(code, None, mode.encode())).code

        assert await put("%RETRY%g") == codes.NO_PERMISSION
        assert await put("T") == codes.TOPIC_NOT_EXIST
        await client.send("T")
        assert await put("T") == codes.SUCCESS

    with_broker(scenario, store_directory=tmp_path)
    path = tmp_path / "config" / "messageRequestMode.json"
    expected = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 8, "topic": "T"}
    assert json.loads(path.read_bytes()) == {"messageRequestModeMap": {"T": {"g": expected}}}

    async def again(node: Running, client: Client) -> None:
        answer = await client.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert json.loads(bytes(answer.body)) == json.loads(path.read_bytes())

    with_broker(again, store_directory=tmp_path)


def test_a_master_without_slaves_answers_as_one() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        node.broker.offsets.commit("g", "T", 0, 1)
        answer = await client.call(RequestCode.GET_BROKER_HA_STATUS)
        status = HARuntimeInfo.decode(answer.body)
        assert status.master
        assert status.master_commit_log_max_offset == node.broker.store.max_physical_offset
        assert status.ha_connection_info == []
        answer = await client.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = ConsumerOffsetSerializeWrapper.decode(answer.body).offset_table
        assert table == {"T@g": {0: 1}}
        answer = await client.call(RequestCode.GET_ALL_DELAY_OFFSET)
        assert "offsetTable" in bytes(answer.body).decode()

    with_broker(scenario)


def test_limits_for_cold_data_are_kept_and_told() -> None:
    async def scenario(node: Running, client: Client) -> None:
        update = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        assert (await client.call(update, None, b"g=1000\nh=7\n")).code == codes.SUCCESS
        for wrong in (b"g=x", b"i=1\na b=5", b"g=99999999999999999999"):
            assert (await client.call(update, None, wrong)).code == codes.INVALID_PARAMETER
        await client.call(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, b"h")
        answer = await client.call(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        assert ColdDataFlowCtrInfo.decode(answer.body).config_table == {"g": 1000}

    with_broker(scenario)


@pytest.mark.parametrize(
    ("code", "name", "good", "wrong"),
    [
        (RequestCode.SET_COMMITLOG_READ_MODE, "READ_AHEAD_MODE", ("0", "1"), ("2", "", "x")),
        (RequestCode.SWITCH_TIMER_ENGINE, "E_T", ("F",), ("R", "", "x")),
    ],
)
def test_engines_are_switched_between_those_there_are(
    code: RequestCode, name: str, good: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        for value in good:
            answer = await client.call(code, {name: value})
            assert answer.code == codes.SUCCESS
            assert "success" in (answer.remark or "")
            assert (await client.pull("T")).code == codes.SUCCESS
        for value in wrong:
            assert (await client.call(code, {name: value})).code == codes.INVALID_PARAMETER

    with_broker(scenario)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (50, "access control is to come later"),
        (200_050, "pop consumption is to come later"),
        (513, "a static topic is no part of OrbitMQ"),
        (1005, "a controller is no part of OrbitMQ"),
        (355, "RocksDB is no part of OrbitMQ"),
        (123_456, "is not supported here"),
    ],
)
def test_what_is_not_supported_says_why(code: int, why: str) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.call(code)
        assert answer.code == codes.REQUEST_CODE_NOT_SUPPORTED
        assert (answer.remark or "").endswith(why)

    with_broker(scenario)


def test_a_name_server_tells_its_broker_of_ordered_topics() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        names = await node.connect(node.node.name_server)
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}
        assert (await names.call(RequestCode.PUT_KV_CONFIG, order)).code == codes.SUCCESS
        assert not node.broker.topics.topics["T"].order
        node.clock.advance(30_000)
        node.broker.run_due()
        assert node.broker.topics.topics["T"].order

    with_broker(scenario)


def test_keys_and_values_are_kept_beside_the_store(tmp_path: Path) -> None:
    async def scenario(node: Running, client: Client) -> None:
        names = await node.connect(node.node.name_server)
        header = {"namespace": "n", "key": "k", "value": "v"}
        assert (await names.call(RequestCode.PUT_KV_CONFIG, header)).code == codes.SUCCESS

    with_broker(scenario, store_directory=tmp_path)
    saved = json.loads((tmp_path / "namesrv" / "kvConfig.json").read_bytes())
    assert saved == {"configTable": {"n": {"k": "v"}}}
