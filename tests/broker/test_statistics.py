"""What the broker counts, and how it tells tools (28, 208, 303, 315, 317, 328)."""

from __future__ import annotations

import pytest

from orbitmq import codes
from orbitmq.broker.statistics import IDLE_MS, Statistics
from orbitmq.codes import RequestCode
from orbitmq.message import MessageQueue
from orbitmq.wire.admin_bodies import ConsumeStats
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.operator_bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStatsList,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
)
from orbitmq.wire.registration import KVTable
from tests.broker.remote import (
    COMMIT,
    SUBSCRIPTION,
    Client,
    Running,
    bodies,
    heartbeat,
    with_broker,
)

CLUSTER = "DefaultCluster"


async def view(client: Client, name: str, key: str) -> RemotingCommand:
    header = {"statsName": name, "statsKey": key}
    return await client.call(RequestCode.VIEW_BROKER_STATS_DATA, header)


async def minute(client: Client, name: str, key: str) -> BrokerStatsItem:
    answer = await view(client, name, key)
    assert answer.code == codes.SUCCESS, answer.remark
    return BrokerStatsData.decode(answer.body).stats_minute


async def runtime(client: Client) -> dict[str, str]:
    answer = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return dict(KVTable.decode(answer.body).table)


def test_messages_are_counted_by_topic_queue_group_and_in_all() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for queue_id in (0, 0, 1):
            await client.send("T", b"x" * 100, queue_id=queue_id)
        size = node.broker.store.max_physical_offset
        assert len(bodies(await client.pull("T"))) == 2
        await client.pull("T", offset=2)
        for name, key, sum_, average in (
            ("TOPIC_PUT_NUMS", "T", 3, 1.0),
            ("TOPIC_PUT_SIZE", "T", size, size / 3),
            ("QUEUE_PUT_NUMS", "T@0", 2, 1.0),
            ("QUEUE_PUT_NUMS", "T@1", 1, 1.0),
            ("BROKER_PUT_NUMS", CLUSTER, 3, 1.0),
            ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, 3, 1.0),
            ("GROUP_GET_NUMS", "T@readers", 2, 2.0),
            ("GROUP_GET_SIZE", "T@readers", size * 2 // 3, size * 2 / 3),
            ("QUEUE_GET_NUMS", "T@0@readers", 2, 2.0),
            ("BROKER_GET_NUMS", CLUSTER, 2, 2.0),
        ):
            found = await minute(client, name, key)
            assert (found.sum, found.avgpt) == (sum_, average), name
            assert found.tps == pytest.approx(sum_ / 10), name
        node.advance(60_000)
        data = BrokerStatsData.decode((await view(client, "TOPIC_PUT_NUMS", "T")).body)
        assert (data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum) == (0, 3, 3)

    with_broker(scenario)


def test_retries_and_dead_letters_are_counted() -> None:
    async def scenario(_node: Running, client: Client) -> None:
        await client.send("T")
        await client.heartbeat("readers", "T")
        for level in ("0", "-1"):
            header = {"offset": "0", "group": "readers", "delayLevel": level}
            answer = await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
            assert answer.code == codes.SUCCESS
        assert (await minute(client, "SNDBCK_PUT_NUMS", "T@readers")).sum == 2
        assert (await minute(client, "DLQ_PUT_NUMS", "T@readers")).sum == 1
        assert (await minute(client, "TOPIC_PUT_NUMS", "%DLQ%readers")).sum == 1
        assert (await minute(client, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")).sum == 1
        assert (await minute(client, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)).sum == 2

    with_broker(scenario)


@pytest.mark.parametrize(
    ("name", "key"), [("TOPIC_PUT_NUMS", "U"), ("NO_SUCH", "T"), ("", ""), ("x" * 9999, "y" * 9999)]
)
def test_what_was_not_counted_is_not_there(name: str, key: str) -> None:
    async def scenario(_node: Running, client: Client) -> None:
        answer = await view(client, name, key)
        assert answer.code == codes.SYSTEM_ERROR
        assert "not exist" in (answer.remark or "")
        assert len(answer.remark or "") < 1_000

    with_broker(scenario)


def test_statistics_go_with_their_topic_and_when_idle() -> None:
    async def scenario(node: Running, client: Client) -> None:
        patience = 1 << 30
        assert node.broker.config.connection_idle_ms == patience
        for topic in ("T", "U"):
            await client.send(topic)
            await minute(client, "TOPIC_PUT_NUMS", topic)
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert (await view(client, "TOPIC_PUT_NUMS", "T")).code == codes.SYSTEM_ERROR
        await minute(client, "TOPIC_PUT_NUMS", "U")
        node.advance(IDLE_MS + 600_000)
        assert (await view(client, "TOPIC_PUT_NUMS", "U")).code == codes.SYSTEM_ERROR

    with_broker(scenario, connection_idle_ms=1 << 30, client_timeout_ms=1 << 30)


def test_the_runtime_info_has_what_both_versions_tools_read() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for _ in range(30):
            await client.send("T")
        await client.pull("T")
        node.advance(10_000)
        table = await runtime(client)
        for key in (
            "runtime bootTimestamp brokerActive brokerVersion brokerVersionDesc putTps "
            "getTransferredTps getTransferedTps getTotalTps getFoundTps getMissTps "
            "sendThreadPoolQueueSize pullThreadPoolQueueSize litePullThreadPoolQueueSize "
            "sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills "
            "queryThreadPoolQueueSize EndTransactionQueueSize pageCacheLockTimeMills "
            "earliestMessageTimeStamp commitLogDiskRatio commitLogDirCapacity timerReadBehind "
            "timerOffsetBehind timerCongestNum timerEnqueueTps timerDequeueTps "
            "remainHowManyDataToFlush dispatchBehindBytes putMessageDistributeTime "
            "msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgGetTotalTodayNow"
        ).split():
            assert table[key], key
        assert table["putTps"] == "3.0 3.0 3.0"
        assert table["msgPutTotalTodayNow"] == table["msgGetTotalTodayNow"] == "30"
        assert table["putMessageTimesTotal"] == "30"
        assert 0 < float(table["commitLogDiskRatio"]) < 1
        node.advance(86_400_000)
        assert (await runtime(await node.connect()))["msgPutTotalTodayMorning"] == "30"

    with_broker(scenario)


def test_the_time_span_of_a_group() -> None:
    async def scenario(node: Running, client: Client) -> None:
        started = node.clock.now_ms()
        for _ in range(3):
            await client.send("T")
            node.clock.advance(1_000)
        await client.pull("T", sys_flag=SUBSCRIPTION | COMMIT, commit_offset=2)
        header = {"topic": "T", "group": "readers"}
        answer = await client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        first, *others = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
        assert first.message_queue == MessageQueue("T", "broker-a", 0)
        assert (first.min_time_stamp, first.max_time_stamp) == (started, started + 2_000)
        assert (first.consume_time_stamp, first.delay_time) == (started + 1_000, 1_000)
        assert len(others) == 3
        header = {"topic": "U", "group": "readers"}
        answer = await client.call(RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        assert answer.code == codes.TOPIC_NOT_EXIST

    with_broker(scenario)


def test_the_progress_of_all_groups() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for _ in range(5):
            await client.send("T")
        for group in ("readers", "others"):
            await client.pull(
                "T", consumer_group=group, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=2
            )
        node.advance(1_000)
        answer = await client.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
        stats = ConsumeStatsList.decode(answer.body)
        assert stats.broker_addr == node.node.address
        assert stats.total_diff == 6
        groups = {
            group: found for each in stats.consume_stats_list for group, found in each.items()
        }
        (readers,) = groups["readers"]
        assert readers.offset_table[MessageQueue("T", "broker-a", 0)].consumer_offset == 2
        assert readers.consume_tps == pytest.approx(0.5)
        answer = await client.call(
            RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers", "topic": "T"}
        )
        assert ConsumeStats.decode(answer.body).consume_tps == pytest.approx(0.5)
        answer = await client.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
        assert ConsumeStatsList.decode(answer.body).total_diff == 0

    with_broker(scenario)


def test_all_producers_are_told() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.call(
            RequestCode.HEART_BEAT, None, heartbeat("", client_id="me", producers=("makers",))
        )
        answer = await client.call(RequestCode.GET_ALL_PRODUCER_INFO)
        (producer,) = ProducerTableInfo.decode(answer.body).data["makers"]
        assert producer.client_id == "me"
        assert abs(producer.last_update_timestamp - node.clock.now_ms()) < 2

    with_broker(scenario)


def test_counts_are_brought_in_some_at_a_time() -> None:
    statistics = Statistics(CLUSTER, 0, 0)
    for number in range(5_000):
        statistics.pulled("g", f"T{number}", 0, 1, 10, 0.0)
    assert statistics.collect(0)
    assert statistics.collect(0)
    assert not statistics.collect(0)
    assert statistics.view("GROUP_GET_NUMS", "T4999@g", 0) is not None
