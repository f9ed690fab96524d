"""Pulls: what they find, which wait, what wakes them, what is refused."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.wire.bodies import MessageModel, SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.command import RemotingCommand
from tests.broker.remote import (
    COMMIT,
    SUSPEND,
    Client,
    Running,
    bodies,
    pull_header,
    with_broker,
)
from tests.waiting import until


def outcome(answer: RemotingCommand) -> tuple[int, str | None, int, int, int]:
    fields = answer.ext_fields
    assert fields["suggestWhichBrokerId"] == "0"
    return (
        answer.code,
        answer.remark,
        int(fields["nextBeginOffset"]),
        int(fields["minOffset"]),
        int(fields["maxOffset"]),
    )


def test_every_outcome_has_apaches_code_and_offsets() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", tags="A")
        await client.send("T", tags="A")
        found = codes.SUCCESS, "FOUND", 2, 0, 2
        assert outcome(await client.pull("T")) == found
        not_found = codes.PULL_NOT_FOUND
        assert outcome(await client.pull("T", offset=2)) == (
            not_found,
            "OFFSET_OVERFLOW_ONE",
            2,
            0,
            2,
        )
        moved = codes.PULL_OFFSET_MOVED
        assert outcome(await client.pull("T", offset=9)) == (
            moved,
            "OFFSET_OVERFLOW_BADLY",
            2,
            0,
            2,
        )
        assert outcome(await client.pull("T", offset=-1)) == (moved, "OFFSET_TOO_SMALL", 0, 0, 2)
        retry = codes.PULL_RETRY_IMMEDIATELY
        assert outcome(await client.pull("T", tags="B")) == (retry, "NO_MATCHED_MESSAGE", 2, 0, 2)
        assert (await client.pull("T", queue_id=1)).code == not_found
        assert (await client.pull("T", queue_id=1, offset=5)).code == moved

    with_broker(scenario)


def test_a_pull_is_limited_by_count_bytes_and_the_broker() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for n in range(20):
            await client.send("T", b"%02d" % n + bytes(998))
        assert len(bodies(await client.pull("T", max_msg_nums=3))) == 3
        assert len(bodies(await client.pull("T", max_msg_bytes=5000))) == 4
        assert len(bodies(await client.pull("T", max_msg_bytes=1))) == 1
        assert len(bodies(await client.pull("T", max_msg_nums=1000))) == 10

    with_broker(scenario, max_pull_count=10)


def test_pulls_sent_all_at_once_cannot_take_all_memory() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", bytes(900))
        answers = await asyncio.gather(*(client.pull("T") for _ in range(40)))
        assert {answer.code for answer in answers} == {codes.SUCCESS, codes.SYSTEM_BUSY}
        refused = next(answer for answer in answers if answer.code == codes.SYSTEM_BUSY)
        assert "fewer pulls at once" in (refused.remark or "")
        assert (await client.pull("T")).code == codes.SUCCESS

    with_broker(scenario, max_pull_bytes=1000)


def test_the_lite_pull_code_does_the_same() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"x")
        answer = await client.call(RequestCode.LITE_PULL_MESSAGE, pull_header("T", sys_flag=22))
        assert bodies(answer) == [b"x"]

    with_broker(scenario)


def test_a_pull_that_finds_nothing_waits_for_a_message_it_wants() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", tags="A")
        waiting = client.hold("T", offset=1, tags="B")
        elsewhere = client.hold("T", offset=0, queue_id=1)
        await client.settle()
        await client.send("T", b"not this", tags="A")
        assert not waiting.done()
        await client.send("T", b"this", tags="B")
        assert bodies(await waiting) == [b"this"]
        assert not elsewhere.done()
        await client.send("T", b"there", queue_id=1)
        assert bodies(await elsewhere) == [b"there"]

    with_broker(scenario)


def test_many_wait_at_one_queue_and_all_are_woken() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", tags="A")
        others = [await node.connect() for _ in range(5)]
        waiting = [other.hold("T", offset=1) for other in others]
        for other in others:
            await other.settle()
        await client.send("T", b"all")
        assert [bodies(answer) for answer in await asyncio.gather(*waiting)] == [[b"all"]] * 5

    with_broker(scenario)


def test_a_wait_ends_when_its_time_is_up() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        waiting = client.hold("T", offset=1, suspend_timeout_millis=7_000)
        await client.settle()
        node.advance(5_000)
        await client.settle()
        assert not waiting.done()
        node.advance(5_000)
        assert outcome(await waiting) == (codes.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 1, 0, 1)
        assert len(node.broker.pulling.held) == 0

    with_broker(scenario)


def test_the_sweep_moves_a_waiting_pull_past_what_it_does_not_want() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", tags="A")
        waiting = client.hold("T", offset=1, tags="B")
        await client.settle()
        await client.send("T", tags="A")
        node.advance(5_000)
        answer = await waiting
        assert outcome(answer) == (codes.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 2, 0, 2)

    with_broker(scenario)


def test_a_pull_without_the_suspend_bit_never_waits() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        assert (await client.pull("T", offset=1)).code == codes.PULL_NOT_FOUND

    with_broker(scenario)


def test_a_client_that_goes_takes_its_waiting_pulls_along() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        leaving = await node.connect()
        leaving.hold("T", offset=1).add_done_callback(lambda future: future.exception())
        await leaving.settle()
        assert len(node.broker.pulling.held) == 1
        leaving.close()
        await until(lambda: not len(node.broker.pulling.held), "the end of the pull")
        await client.send("T", b"goes on")
        assert bodies(await client.pull("T", offset=1)) == [b"goes on"]

    with_broker(scenario)


def test_a_topic_deleted_under_a_waiting_pull_is_said() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        waiting = client.hold("T", offset=1)
        await client.settle()
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        node.advance(15_000)
        assert (await waiting).code == codes.TOPIC_NOT_EXIST

    with_broker(scenario)


def test_a_pull_may_commit_how_far_its_group_is() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await client.pull("T", sys_flag=4 | COMMIT, commit_offset=1)
        assert node.broker.offsets.query("readers", "T", 0) == 1
        await client.pull("T", sys_flag=4, commit_offset=0)
        assert node.broker.offsets.query("readers", "T", 0) == 1

    with_broker(scenario)


def test_the_subscription_may_be_that_of_the_heartbeat() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"a", tags="A")
        await client.send("T", b"b", tags="B")
        await client.send("Other")
        answer = await client.pull("T", sys_flag=SUSPEND)
        assert answer.code == codes.SUBSCRIPTION_NOT_EXIST
        assert "has no members" in (answer.remark or "")
        await client.heartbeat("readers", "T", tags="B", version=5)
        assert bodies(await client.pull("T", sys_flag=SUSPEND, sub_version=5)) == [b"b"]
        answer = await client.pull("T", sys_flag=SUSPEND, sub_version=6)
        assert answer.code == codes.SUBSCRIPTION_NOT_LATEST
        answer = await client.pull("Other", sys_flag=SUSPEND)
        assert answer.code == codes.SUBSCRIPTION_NOT_EXIST
        assert "same topics" in (answer.remark or "")

    with_broker(scenario)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nowhere"}, codes.TOPIC_NOT_EXIST, "'nowhere' does not exist"),
        ({"queue_id": 4}, codes.INVALID_PARAMETER, "no queue 4"),
        ({"queue_id": -1}, codes.INVALID_PARAMETER, "no queue -1"),
        ({"consumer_group": "a group"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "'a group'"),
        ({"tags": "||"}, codes.SUBSCRIPTION_PARSE_FAILED, "||"),
        ({"expression_type": "REGEX"}, codes.SUBSCRIPTION_PARSE_FAILED, "'REGEX'"),
        ({"consumer_group": "idle"}, codes.NO_PERMISSION, "idle"),
        ({"topic": "Closed"}, codes.NO_PERMISSION, "permission is 2"),
    ],
)
def test_pulls_that_cannot_be_are_refused_with_the_reason(
    fields: dict[str, object], code: int, remark: str
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        node.broker.groups.put(SubscriptionGroupConfig("idle", consume_enable=False))
        node.broker.topics.put(TopicConfig("Closed", perm=2))
        answer = await client.pull(str(fields.get("topic", "T")), **{
            name: value for name, value in fields.items() if name != "topic"
        })  # fmt: skip
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (await client.pull("T")).code == codes.SUCCESS

    with_broker(scenario)


def test_a_group_may_be_kept_from_broadcasting() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        node.broker.groups.put(SubscriptionGroupConfig("readers", consume_broadcast_enable=False))
        await client.heartbeat("readers", "T", model=MessageModel.BROADCASTING)
        answer = await client.pull("T", sys_flag=SUSPEND)
        assert answer.code == codes.NO_PERMISSION
        assert "broadcasting" in (answer.remark or "")

    with_broker(scenario)


def test_no_group_is_made_where_that_is_switched_off() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        assert (await client.pull("T")).code == codes.SUBSCRIPTION_GROUP_NOT_EXIST

    with_broker(scenario, auto_create_groups=False)
