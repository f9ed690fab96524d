"""An operator resets the offsets of a group: by the broker itself, or by its consumers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.wire import command
from orbitmq.wire.admin_bodies import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import ResetOffsetRequestHeader
from tests.broker.remote import (
    COMMIT,
    SUBSCRIPTION,
    Client,
    Running,
    bodies,
    running,
    with_broker,
)
from tests.waiting import until


async def reset(client: Client, **fields: object) -> RemotingCommand:
    header = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"} | fields
    return await client.call(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {name: str(value) for name, value in header.items()},
    )


def offsets_in(answer: RemotingCommand) -> dict[int, int]:
    assert answer.code == codes.SUCCESS, answer.remark
    table = ResetOffsetBody.decode(answer.body).offset_table
    assert all(queue[:2] == ("T", "broker-a") for queue in table)
    return {queue.queue_id: offset for queue, offset in table.items()}


async def commit(client: Client, offset: int, queue_id: int = 0) -> RemotingCommand:
    return await client.call(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "T", "queueId": str(queue_id), "commitOffset": str(offset)},
    )


async def fill(node: Running, client: Client, count: int = 4) -> list[int]:
    """Stores ``count`` messages a second apart, known to group g; the times they were stored."""
    times = []
    for number in range(count):
        await client.send("T", b"%d" % number, default_topic_queue_nums=2)
        times.append(node.clock.now_ms())
        node.clock.advance(1000)
    await client.heartbeat("g", "T")
    return times


def scenario_of(
    scenario: Callable[[Running, Client, list[int]], Awaitable[None]], **settings: object
) -> None:
    async def filled(node: Running, client: Client) -> None:
        await scenario(node, client, await fill(node, client))

    with_broker(filled, **settings)


def test_a_reset_goes_to_what_was_stored_at_a_time() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        offsets = node.broker.offsets
        assert offsets_in(await reset(client, timestamp=times[2])) == {0: 2, 1: 0}
        assert offsets.query("g", "T", 0) == 2
        assert offsets_in(await reset(client, timestamp=times[2] + 1)) == {0: 3, 1: 0}
        assert offsets_in(await reset(client, timestamp=0)) == {0: 0, 1: 0}
        assert offsets_in(await reset(client, timestamp=-1)) == {0: 4, 1: 0}
        assert offsets_in(await reset(client, timestamp=-2)) == {0: 4, 1: 0}
        # As Java's broker does: force or not, online or not.
        assert offsets_in(await reset(client, timestamp=-1, isForce="false")) == {0: 4, 1: 0}

    scenario_of(scenario)


def test_one_queue_may_be_reset_to_an_offset() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        assert offsets_in(await reset(client, queueId=0, offset=3, timestamp=0)) == {0: 3}
        assert offsets_in(await reset(client, queueId=0, offset=-1, timestamp=times[1])) == {0: 1}
        assert offsets_in(await reset(client, queueId=0, timestamp=times[2])) == {0: 2}
        assert offsets_in(await reset(client, queueId=0, offset=5, timestamp=0)) == {0: 5}
        for wrong in (6, -2):
            answer = await reset(client, queueId=0, offset=wrong, timestamp=0)
            assert answer.code == codes.SYSTEM_ERROR
            assert f"offset {wrong} is not in T queue 0, which has 0 to 4" in (answer.remark or "")
        assert not node.broker.offsets.is_reset("g", "T", 1)

    scenario_of(scenario)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "none"}, codes.TOPIC_NOT_EXIST, "'none'"),
        ({"group": "none"}, codes.SUBSCRIPTION_GROUP_NOT_EXIST, "'none'"),
        ({"queueId": 2}, codes.INVALID_PARAMETER, "no queue 2: its queues are 0 to 1"),
    ],
)
def test_a_reset_of_what_is_not_there_is_refused(
    fields: dict[str, object], code: int, remark: str
) -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        answer = await reset(client, **fields)
        assert answer.code == code
        assert remark in (answer.remark or "")

    scenario_of(scenario)


def test_the_next_pull_is_sent_where_the_operator_wants_it() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        await commit(client, 4)
        await reset(client, timestamp=times[1])
        ignored = await commit(client, 4)  # by a consumer that does not know yet
        assert (ignored.code, ignored.remark) == (codes.SUCCESS, "the offset was reset before")
        moved = await client.pull(
            "T", consumer_group="g", offset=4, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=4
        )
        assert (moved.code, moved.remark) == (codes.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert moved.ext_fields["nextBeginOffset"] == "1"
        assert (moved.ext_fields["minOffset"], moved.ext_fields["maxOffset"]) == ("0", "4")
        assert node.broker.offsets.query("g", "T", 0) == 1
        answer = await client.pull("T", consumer_group="g", offset=1)  # once is enough
        assert bodies(answer) == [b"1", b"2", b"3"]
        await commit(client, 3)
        assert node.broker.offsets.query("g", "T", 0) == 3

    scenario_of(scenario)


def test_a_consumer_that_begins_at_the_new_offset_need_not_be_sent_there() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        async def ask_offset() -> str:
            header = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
            answer = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, header)
            return answer.ext_fields["offset"]

        async def pull(offset: int) -> RemotingCommand:
            return await client.pull("T", consumer_group="g", offset=offset)

        await reset(client, timestamp=times[2])
        assert await ask_offset() == "2"
        assert bodies(await pull(2)) == [b"2", b"3"]
        # Who did not ask may have messages from before, even if it pulls just there.
        await reset(client, timestamp=times[2])
        assert (await pull(2)).code == codes.PULL_OFFSET_MOVED
        await reset(client, timestamp=times[2])
        assert await ask_offset() == "2"
        assert (await pull(3)).code == codes.PULL_OFFSET_MOVED
        assert bodies(await pull(3)) == [b"3"]
        # Told of the reset before, not of this one.
        await reset(client, timestamp=times[2])
        await ask_offset()
        await reset(client, timestamp=times[1])
        assert (await pull(1)).code == codes.PULL_OFFSET_MOVED

    scenario_of(scenario)


def test_another_group_is_not_concerned() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        await reset(client, timestamp=times[1])
        answer = await client.pull("T", consumer_group="other", offset=3)
        assert bodies(answer) == [b"3"]

    scenario_of(scenario)


def test_a_pull_that_waits_is_sent_there_at_once() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        held = client.hold("T", consumer_group="g", offset=4)
        other = client.hold("T", consumer_group="other", offset=4)
        await client.settle()
        operator = await node.connect()
        await reset(operator, timestamp=times[2])
        assert (await held).ext_fields["nextBeginOffset"] == "2"
        # Who waits in the same queue pulls again.
        assert (await other).code == codes.PULL_NOT_FOUND

    scenario_of(scenario)


def test_a_reset_of_a_group_that_is_away_survives_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            times = await fill(node, client)
            await commit(client, 4)
            client.close()
            await until(lambda: not node.broker.consumers.groups, "the end of the consumer")
            await reset(await node.connect(), timestamp=times[3])
        async with running(tmp_path) as node:
            assert node.broker.offsets.query("g", "T", 0) == 3

    asyncio.run(main())


# With server_side_reset_offset=False


def resets(client: Client) -> list[RemotingCommand]:
    return [n for n in client.notices if n.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]


def test_members_are_told_to_reset_themselves() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        second, operator = await node.connect(), await node.connect()
        await second.heartbeat("g", "T", client_id="two")
        for queue_id in (0, 1):
            await commit(client, 2, queue_id)
        assert offsets_in(await reset(operator, timestamp=times[1])) == {0: 1, 1: 0}
        await client.settle()
        await second.settle()
        for member in (client, second):
            (told,) = resets(member)
            assert told.is_oneway
            header = told.header(ResetOffsetRequestHeader)
            assert (header.group, header.topic, header.timestamp) == ("g", "T", times[1])
            assert offsets_in_body(told) == {0: 1, 1: 0}
        # The broker changes nothing itself.
        assert node.broker.offsets.query("g", "T", 0) == 2
        assert not node.broker.offsets.is_reset("g", "T", 0)

    scenario_of(scenario, server_side_reset_offset=False)


def offsets_in_body(told: RemotingCommand) -> dict[int, int]:
    table = ResetOffsetBody.decode(told.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


def test_without_force_members_only_go_back() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        for queue_id in (0, 1):
            await commit(client, 2, queue_id)
        for timestamp, force, offset in (
            (times[3], "false", 2), (times[3], "true", 3), (times[0], "false", 0), (-1, "true", 4),
        ):  # fmt: skip
            answer = await reset(client, timestamp=timestamp, isForce=force)
            assert offsets_in(answer)[0] == offset

    scenario_of(scenario, server_side_reset_offset=False)


def test_what_members_cannot_reset_is_refused() -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        async def refused(code: int, why: str, **fields: object) -> None:
            answer = await reset(client, **fields)
            assert answer.code == code
            assert why in (answer.remark or "")

        await refused(codes.TOPIC_NOT_EXIST, "'none'", topic="none")
        await commit(client, 2)
        await refused(codes.SYSTEM_ERROR, "group g has no offset of T queue 1 yet")
        await commit(client, 2, 1)
        (member,) = node.broker.consumers.groups["g"].members.values()
        member.version = 27
        await refused(codes.SYSTEM_ERROR, "protocol version 27, 28 is needed")
        await client.call(
            RequestCode.UNREGISTER_CLIENT, {"clientID": "client", "consumerGroup": "g"}
        )
        await refused(codes.CONSUMER_NOT_ONLINE, "group g has no member online")
        assert not resets(client)

    scenario_of(scenario, server_side_reset_offset=False)


def test_a_tool_in_c_has_its_consumers_told_in_plain_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_c = command._JSON_CONSTANTS.replace(b"PYTHON", b"CPP")

    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        for queue_id in (0, 1):
            await commit(client, 2, queue_id)
        monkeypatch.setattr(command, "_JSON_CONSTANTS", in_c)
        assert offsets_in(await reset(client, timestamp=times[1])) == {0: 1, 1: 0}
        (told,) = resets(client)
        assert ResetOffsetBodyForC.decode(told.body).offset_table == [
            MessageQueueForC("T", "broker-a", 0, 1),
            MessageQueueForC("T", "broker-a", 1, 0),
        ]

    scenario_of(scenario, server_side_reset_offset=False)


def test_a_commit_that_goes_back_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Running, client: Client, times: list[int]) -> None:
        await commit(client, 4)
        await commit(client, 1)
        assert node.broker.offsets.query("g", "T", 0) == 1

    with caplog.at_level(logging.WARNING, "orbitmq.broker"):
        scenario_of(scenario)
    assert "group g moved back in T queue 0, from offset 4 to 1" in caplog.text
