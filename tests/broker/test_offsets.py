"""Committed offsets and queue ranges; what of them survives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.codes import RequestCode
from orbitmq.errors import CorruptStoreError
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.command import RemotingCommand
from tests.broker.remote import COMMIT, SUBSCRIPTION, Client, Running, running, with_broker
from tests.waiting import until


async def query(client: Client, queue_id: int = 0, **fields: str) -> RemotingCommand:
    header = {"consumerGroup": "g", "topic": "T", "queueId": str(queue_id), **fields}
    return await client.call(RequestCode.QUERY_CONSUMER_OFFSET, header)


async def update(client: Client, offset: int, **fields: str) -> RemotingCommand:
    header = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
    return await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header | fields)


async def ask(client: Client, code: int, **fields: object) -> int:
    header = {"topic": "T", "queueId": "0"} | {name: str(value) for name, value in fields.items()}
    answer = await client.call(code, header)
    assert answer.code == codes.SUCCESS
    (value,) = answer.ext_fields.values()
    return int(value)


def test_an_offset_is_what_was_committed_last() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await client.heartbeat("g", "T")
        for offset in (5, 3):
            assert (await update(client, offset)).code == codes.SUCCESS
            assert (await query(client)).ext_fields == {"offset": str(offset)}
        client.connection.oneway(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "9"},
        )
        assert (await query(client)).ext_fields == {"offset": "9"}

    with_broker(scenario)


def test_without_one_a_recent_queue_is_begun_at_its_first_message() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        assert (await query(client)).ext_fields == {"offset": "0"}
        answer = await query(client, setZeroIfNotFound="false")
        assert answer.code == codes.QUERY_NOT_FOUND
        answer = await query(client, queue_id=1)  # nothing was ever sent there
        assert answer.code == codes.QUERY_NOT_FOUND
        assert "T queue 1" in (answer.remark or "")

    with_broker(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "unknown"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "unknown"}, codes.TOPIC_NOT_EXIST),
    ],
)
def test_offsets_of_unknown_groups_and_topics_are_refused(
    fields: dict[str, str], code: int
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await client.heartbeat("g", "T")
        answer = await update(client, 1, **fields)
        assert answer.code == code
        assert "'unknown' does not exist" in (answer.remark or "")

    with_broker(scenario)


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"commitOffset": "-1"}, codes.INVALID_PARAMETER, "-1 is no offset of T queue 0"),
        ({"commitOffset": str(1 << 63)}, codes.SYSTEM_ERROR, "9223372036854775807"),
        ({"commitOffset": str(1 << 70)}, codes.SYSTEM_ERROR, "9223372036854775807"),
        ({"queueId": "4"}, codes.INVALID_PARAMETER, "no queue 4: its queues are 0 to 3"),
        ({"queueId": "-1"}, codes.INVALID_PARAMETER, "no queue -1"),
    ],
)
def test_what_is_no_offset_or_no_queue_is_not_committed(
    fields: dict[str, str], code: int, named: str
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await client.heartbeat("g", "T")
        answer = await update(client, 1, **fields)
        assert answer.code == code
        assert named in (answer.remark or "")
        answer = await client.pull(
            "T", sys_flag=COMMIT | SUBSCRIPTION, commit_offset=-3, consumer_group="g"
        )
        assert answer.code == codes.INVALID_PARAMETER
        assert node.broker.offsets.table == {}
        assert (await update(client, (1 << 63) - 1)).code == codes.SUCCESS
        assert node.broker.offsets.table == {"T@g": {0: (1 << 63) - 1}}

    with_broker(scenario)


def test_offsets_of_queues_that_a_topic_had_are_committed_still() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", queue_id=3)
        await client.heartbeat("g", "T")
        node.broker.topics.put(TopicConfig("T", 1, 1))
        assert (await update(client, 1, queueId="3")).code == codes.SUCCESS
        assert (await update(client, 1, queueId="2")).code == codes.INVALID_PARAMETER

    with_broker(scenario)


def test_ranges_and_times_of_queues() -> None:
    async def scenario(node: Running, client: Client) -> None:
        start = node.clock.now_ms()
        for _ in range(5):
            await client.send("T")
            node.clock.advance(100)
        assert await ask(client, RequestCode.GET_MAX_OFFSET) == 5
        assert await ask(client, RequestCode.GET_MIN_OFFSET) == 0
        assert await ask(client, RequestCode.GET_EARLIEST_MSG_STORETIME) == start
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        assert await ask(client, search, timestamp=start + 150) == 2
        assert await ask(client, search, timestamp=start + 150, boundaryType="UPPER") == 1
        assert await ask(client, search, timestamp=start + 9_999) == 5
        assert await ask(client, RequestCode.GET_MAX_OFFSET, queueId=3) == 0
        assert await ask(client, RequestCode.GET_MAX_OFFSET, topic="unknown") == 0

    with_broker(scenario)


def test_offsets_topics_and_groups_survive_a_restart_in_apaches_form(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            await client.send("T", default_topic_queue_nums=2)
            await client.heartbeat("g", "T")
            await update(client, 1)
            file = tmp_path / "config" / "consumerOffset.json"
            assert not file.exists()
            node.advance(5_000)
            await until(lambda: not node.broker.saved.saving, "the saved tables")
            assert b'"offsetTable":{"T@g":{0:1}}' in file.read_bytes()
            assert b'"topicName":"T"' in (tmp_path / "config" / "topics.json").read_bytes()
            groups = (tmp_path / "config" / "subscriptionGroup.json").read_bytes()
            assert b'"groupName":"g"' in groups
            await update(client, 7)
        async with running(tmp_path) as node:
            client = await node.connect()
            assert (await query(client)).ext_fields == {"offset": "7"}
            assert node.broker.topics.topics["T"].write_queue_nums == 2
            assert node.broker.topics.version.counter == 2
            assert "g" in node.broker.groups

    asyncio.run(main())


def test_files_of_apache_are_read(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},"topicConfigTable":{"A":'
        '{"attributes":{},"order":false,"perm":6,"readQueueNums":7,"topicFilterType":"SINGLE_TAG",'
        '"topicName":"A","topicSysFlag":0,"writeQueueNums":7}}}'
    )
    (config / "consumerOffset.json").write_text('{\n\t"offsetTable":{"A@g":{0:12,1:0\n\t\t}\n\t}}')
    (config / "delayOffset.json").write_text('{"offsetTable":{1:0,3:0}}')

    async def main() -> None:
        async with running(tmp_path) as node:
            assert node.broker.topics.topics["A"].read_queue_nums == 7
            assert node.broker.offsets.query("g", "A", 0) == 12
            assert node.broker.delivery.offsets == {1: 0, 3: 0}

    asyncio.run(main())


def test_a_file_that_cannot_be_read_gives_way_to_its_backup_or_stops_the_broker(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    file, backup = config / "consumerOffset.json", config / "consumerOffset.json.bak"

    async def main() -> None:
        file.write_text('{"offsetTable":{"A@g":{0:1')
        backup.write_text('{"offsetTable":{"A@g":{0:1}}}')
        async with running(tmp_path) as node:
            assert node.broker.offsets.query("g", "A", 0) == 1
        backup.write_text("nor can this")
        file.write_text("this cannot be read")
        with pytest.raises(CorruptStoreError, match=r"consumerOffset.json.*mend the file"):
            async with running(tmp_path):
                pass
        file.unlink()
        backup.unlink()
        async with running(tmp_path) as node:  # the store was given back
            assert node.broker.offsets.query("g", "A", 0) is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("topics.json", "topics are made anew"),
        ("subscriptionGroup.json", "default settings"),
        ("consumerOffset.json", "begin where new ones do"),
        ("delayOffset.json", "delivered again"),
    ],
)
def test_an_empty_file_without_a_backup_stops_the_broker_and_is_told(
    tmp_path: Path, name: str, without: str
) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / name
    file.touch()

    async def main() -> None:
        with pytest.raises(CorruptStoreError, match=rf"{name} is empty.*delete it.*{without}"):
            async with running(tmp_path):
                pass
        file.unlink()
        async with running(tmp_path):
            pass

    asyncio.run(main())


def test_tables_that_cannot_be_saved_are_kept_and_saved_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            await client.send("T")
            await client.heartbeat("g", "T")
            blocker = tmp_path / "config" / "consumerOffset.json.tmp"
            blocker.mkdir()  # no file can be made there now
            await update(client, 4)
            node.advance(5_000)
            await until(lambda: node.broker.offsets.changed, "the failure")
            file = tmp_path / "config" / "consumerOffset.json"
            assert not file.exists()
            blocker.rmdir()
            node.advance(5_000)
            await until(file.exists, "the saved offsets")

    asyncio.run(main())


def test_the_table_knows_who_has_committed_where() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "A", 0, 1)
    offsets.commit("g", "B", 2, 3)
    offsets.commit("h", "A", 0, 5)
    assert (offsets.groups("A"), offsets.topics("g")) == (["g", "h"], ["A", "B"])
    assert offsets.query("g", "B", 2) == 3
    offsets.forget_topic("A")
    assert offsets.table == {"B@g": {2: 3}}
    offsets.changed = False
    offsets.forget_group("g")
    assert (offsets.table, offsets.changed) == ({}, True)
