"""Heartbeats, groups and their change notices, silence, queue locks."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.broker.clients import ClientInfo, ConsumerTable, ProducerTable
from orbitmq.broker.locks import LOCK_LIFETIME_MS, QueueLocks
from orbitmq.broker.shares import MAX_GROUPS, MAX_LENGTH
from orbitmq.codes import RequestCode
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import (
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    MessageQueues,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from orbitmq.wire.command import RemotingCommand, encode_request
from tests.broker.remote import Client, Running, heartbeat, with_broker
from tests.waiting import until


def noticed(client: Client) -> list[str]:
    """The groups the client was told of, since the last call."""
    told = list(client.notices)
    client.notices.clear()
    assert all(n.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and n.is_oneway for n in told)
    return [notice.ext_fields["consumerGroup"] for notice in told]


async def ids(client: Client, group: str) -> list[str]:
    answer = await client.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    assert answer.code == codes.SUCCESS
    return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list


def test_members_are_told_of_every_change_among_them() -> None:
    async def scenario(node: Running, first: Client) -> None:
        second, third = await node.connect(), await node.connect()
        await first.heartbeat("g", "T", client_id="one")
        assert noticed(first) == ["g"]
        await first.heartbeat("g", "T", client_id="one")
        assert noticed(first) == []
        await second.heartbeat("g", "T", client_id="two")
        await first.settle()
        assert (noticed(first), noticed(second)) == (["g"], ["g"])
        await third.heartbeat("other", "T", client_id="three")
        assert (noticed(third), noticed(first)) == (["other"], [])
        assert await ids(third, "g") == ["one", "two"]
        await second.heartbeat("g", "T", "Another", client_id="two")  # its topics changed
        await first.settle()
        assert (noticed(first), noticed(second)) == (["g"], ["g"])
        await second.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", "consumerGroup": "g"})
        await first.settle()
        assert (noticed(first), noticed(second)) == (["g"], [])
        assert await ids(third, "g") == ["one"]

    with_broker(scenario)


def test_a_lost_connection_leaves_its_groups() -> None:
    async def scenario(node: Running, first: Client) -> None:
        second = await node.connect()
        await first.heartbeat("g", "T", client_id="one")
        await second.heartbeat("g", "T", client_id="two", producers=("p",))
        assert list(node.broker.producers.groups) == ["p"]
        noticed(first)
        second.close()
        await until(lambda: first.notices, "the notice")
        assert await ids(first, "g") == ["one"]
        assert not node.broker.producers.groups

    with_broker(scenario)


def test_a_silent_client_is_hung_up_on() -> None:
    async def scenario(node: Running, first: Client) -> None:
        second = await node.connect()
        await first.heartbeat("g", "T", client_id="one")
        await second.heartbeat("", client_id="two", producers=("p",))
        node.advance(70_000)
        await first.heartbeat("g", "T", client_id="one")
        node.advance(60_000)
        await until(lambda: second.connection.closed, "the end of the silent client")
        assert await ids(first, "g") == ["one"]
        node.advance(130_000)
        await until(lambda: first.connection.closed, "the end of the other")
        assert not node.broker.consumers.groups

    with_broker(scenario)


def test_a_silent_client_that_does_not_read_leaves_its_group_at_once() -> None:
    async def scenario(node: Running, first: Client) -> None:
        await first.heartbeat("g", "T", client_id="one")
        deaf = await node.connect()
        await deaf.heartbeat("g", "T", client_id="deaf", producers=("p",))
        await first.settle()
        noticed(first)
        (broker_side,) = (
            connection
            for connection, client in node.broker.consumers.groups["g"].members.items()
            if client.client_id == "deaf" and isinstance(connection, Connection)
        )
        transport = deaf.connection._transport
        transport.pause_reading()
        broker_side.send(bytes(64 << 20))
        await until(lambda: broker_side._congested, "the client's slowness")
        node.advance(70_000)
        await first.heartbeat("g", "T", client_id="one")
        node.advance(60_000)
        assert not node.broker.producers.groups
        assert await ids(first, "g") == ["one"]
        assert noticed(first) == ["g"]
        servers = node.node.server._server.connections
        await until(lambda: broker_side not in servers, "the end of its connection")
        transport.abort()

    with_broker(scenario)


def test_a_connection_without_traffic_ends_though_a_pull_is_held() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        silent = await node.connect()
        held = silent.hold("T", offset=1, suspend_timeout_millis=900_000)
        await until(lambda: len(node.broker.pulling.held) == 1, "the held pull")
        for _ in range(13):
            node.advance(10_000)
            await client.settle()
        await until(lambda: silent.connection.closed, "the end of the silent one")
        await asyncio.gather(held, return_exceptions=True)
        assert len(node.broker.pulling.held) == 0
        assert not client.connection.closed

    with_broker(scenario)


def test_members_are_told_once_of_those_lost_together() -> None:
    async def scenario(node: Running, first: Client) -> None:
        others = [await node.connect() for _ in range(20)]
        for number, client in enumerate([first, *others]):
            await client.heartbeat("g", "T", client_id=str(number))
        await first.settle()
        noticed(first)
        members = node.broker.consumers.groups["g"].members
        for connection in list(members)[1:]:
            assert isinstance(connection, Connection)
            connection.abort()
        await until(lambda: len(members) == 1, "the end of the others")
        await first.settle()
        assert noticed(first) == ["g"]

    with_broker(scenario)


def test_a_lost_connection_costs_the_groups_it_was_in() -> None:
    looks = 0

    class Connected:
        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return id(self)

    consumers: ConsumerTable[Connected] = ConsumerTable()
    producers: ProducerTable[Connected] = ProducerTable()
    connections = [Connected() for _ in range(200)]
    for number, connection in enumerate(connections):
        client = ClientInfo(str(number), "PYTHON", 0)
        for name in ("all", f"g{number}"):
            consumers.register(ConsumerData(name), connection, client)
            producers.register(name, connection, client)
    looks = 0
    for connection in connections[1:]:
        assert consumers.disconnect(connection) == ["all"]
        producers.disconnect(connection)
    assert looks < 200 * 20
    assert (list(consumers.groups), list(producers.groups)) == (["all", "g0"], ["all", "g0"])


def test_those_who_broadcast_are_told_nothing() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("g", "T", model=MessageModel.BROADCASTING)
        assert noticed(client) == []
        assert await ids(client, "g") == ["client"]

    with_broker(scenario)


def test_a_group_may_be_spared_notices() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.groups.put(
            SubscriptionGroupConfig("g", notify_consumer_ids_changed_enable=False)
        )
        other = await node.connect()
        await client.heartbeat("g", "T")
        await other.heartbeat("g", "T", client_id="other")
        await client.settle()
        assert (noticed(client), noticed(other)) == ([], [])
        other.close()  # of this, members are told even so, as by Java
        await until(lambda: client.notices, "the notice")
        assert noticed(client) == ["g"]

    with_broker(scenario)


def test_the_others_are_told_of_a_member_that_fell_silent() -> None:
    async def scenario(node: Running, client: Client) -> None:
        other = await node.connect()
        await other.heartbeat("g", "T", client_id="other")
        node.advance(70_000)
        await client.heartbeat("g", "T")
        noticed(client)
        node.advance(60_000)
        await until(lambda: client.notices, "the notice")
        assert noticed(client) == ["g"]
        assert await ids(client, "g") == ["client"]

    with_broker(scenario)


def test_a_heartbeat_makes_the_retry_topic_and_is_answered_as_by_java() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.heartbeat("g", "T")
        assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        topic = node.broker.topics.topics["%RETRY%g"]
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        answer = await client.heartbeat("bad group", "T")
        assert answer.code == codes.SUCCESS
        assert "bad group" not in node.broker.consumers.groups

    with_broker(scenario)


def test_a_heartbeat_with_a_fingerprint_may_leave_the_subscriptions_out() -> None:
    async def scenario(node: Running, client: Client) -> None:
        changes = []
        for fingerprint, without_sub in ((7, False), (7, True), (8, False)):
            answer = await client.heartbeat(
                "g", "T", heartbeat_fingerprint=fingerprint, without_sub=without_sub
            )
            changes.append(answer.ext_fields["IS_SUB_CHANGE"])
        assert changes == ["false", "false", "true"]
        assert list(node.broker.consumers.groups["g"].subscriptions) == ["T"]

    with_broker(scenario)


def test_of_two_subscriptions_the_newer_holds() -> None:
    table: ConsumerTable[str] = ConsumerTable()

    def beat(member: str, version: int, *topics: str) -> bool:
        data = ConsumerData(
            "g",
            subscription_data_set=[SubscriptionData(t, "*", sub_version=version) for t in topics],
        )
        return table.register(data, member, ClientInfo(member, "JAVA", 1))

    assert beat("one", 5, "T")
    assert beat("two", 3, "T")
    assert table.groups["g"].subscriptions["T"].sub_version == 5
    assert not beat("two", 9, "T")
    assert table.groups["g"].subscriptions["T"].sub_version == 9
    assert beat("one", 5, "U")
    assert list(table.groups["g"].subscriptions) == ["U"]
    assert table.subscribers("U") == ["g"]


def test_an_empty_group_is_answered_with_an_error() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.call(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "nobody"}
        )
        assert answer.code == codes.SYSTEM_ERROR
        assert "'nobody' has no members" in (answer.remark or "")

    with_broker(scenario)


def test_bodies_that_are_not_understood_are_refused() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for body in (b"", b"[]", b'{"clientID":5,"consumerDataSet":3}', bytes(100)):
            answer = await client.call(RequestCode.HEART_BEAT, None, body)
            assert answer.code == codes.SYSTEM_ERROR
            assert "HeartbeatData" in (answer.remark or "")
        assert (await client.heartbeat("g", "T")).code == codes.SUCCESS

    with_broker(scenario)


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def test_a_locked_queue_is_its_clients_until_it_is_given_back_or_forgotten() -> None:
    async def lock(client: Client, client_id: str, numbers: Iterable[int]) -> set[int]:
        queues = MessageQueues(map(queue, numbers))
        answer = await client.call(
            RequestCode.LOCK_BATCH_MQ, None, LockBatchRequestBody("g", client_id, queues).encode()
        )
        granted = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        return {queue.queue_id for queue in granted}

    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await client.heartbeat("g", "T")
        assert await lock(client, "one", [0, 1]) == {0, 1}
        assert await lock(client, "two", [0, 1, 2]) == {2}
        unlock = LockBatchRequestBody("g", "one", MessageQueues([queue(0)])).encode()
        await client.call(RequestCode.UNLOCK_BATCH_MQ, None, unlock)
        assert await lock(client, "two", [0, 1]) == {0}
        node.advance(LOCK_LIFETIME_MS + 1)
        assert await lock(client, "two", [0, 1]) == {0, 1}

    with_broker(scenario)


def test_only_queues_of_this_broker_are_locked_and_for_groups_there_are() -> None:
    async def ask(
        client: Client, group: str, client_id: str, *queues: MessageQueue
    ) -> RemotingCommand:
        body = LockBatchRequestBody(group, client_id, MessageQueues(queues))
        return await client.call(RequestCode.LOCK_BATCH_MQ, None, body.encode())

    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await client.heartbeat("g", "T")
        others = [
            queue(4), queue(-1), MessageQueue("U", "broker-a", 0), MessageQueue("T", "broker-b", 0),
        ]  # fmt: skip
        answer = await ask(client, "g", "one", queue(3), *others)
        granted = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        assert list(granted) == [queue(3)]
        answer = await ask(client, "unknown", "one", queue(3))
        assert answer.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
        answer = await ask(client, "g", "x" * 1_025, queue(3))
        assert answer.code == codes.INVALID_PARAMETER
        assert list(node.broker.locks._groups) == ["g"]
        assert set(node.broker.locks._groups["g"]) == {queue(3)}

    with_broker(scenario)


def test_heartbeats_of_illegal_groups_leave_nothing_behind() -> None:
    names = [f"illegal group {number:05}" for number in range(2_000)]
    body = HeartbeatData(
        "client",
        producer_data_set=[ProducerData(name) for name in names],
        consumer_data_set=[ConsumerData(name) for name in names],
        heartbeat_fingerprint=7,
    ).encode()

    async def scenario(node: Running, client: Client) -> None:
        async def kept_by(times: int) -> int:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(times):
                other = body.replace(b"illegal", b"illegal%d" % number)
                assert (await client.call(RequestCode.HEART_BEAT, None, other)).code == 0
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before

        tracemalloc.start()
        try:
            await kept_by(1)  # what is made once
            assert await kept_by(6) < 2 * len(body)  # the last is in the buffers still
        finally:
            tracemalloc.stop()
        assert not node.broker.producers.groups
        assert not node.broker.consumers.groups

    with_broker(scenario)


def test_a_connection_takes_no_more_than_its_share() -> None:
    async def beat(client: Client, **fields: Any) -> RemotingCommand:
        return await client.call(
            RequestCode.HEART_BEAT, None, HeartbeatData("c", **fields).encode()
        )

    def consumer(name: str, length: int) -> ConsumerData:
        return ConsumerData(name, subscription_data_set=[SubscriptionData("T", "x" * length)])

    async def scenario(node: Running, client: Client) -> None:
        producers = node.broker.producers.groups
        groups = [ProducerData(f"P{number}") for number in range(MAX_GROUPS)]
        for part in (groups[:600], groups[600:], groups):
            assert (await beat(client, producer_data_set=part)).code == codes.SUCCESS
        answer = await beat(client, producer_data_set=[ProducerData("one-more")])
        assert answer.code == codes.INVALID_PARAMETER
        assert f"{MAX_GROUPS} at most" in (answer.remark or "")
        assert "one-more" not in producers
        await client.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "P0"})
        assert (await beat(client, producer_data_set=[ProducerData("one-more")])).code == 0
        other = await node.connect()  # has a share of its own
        half = MAX_LENGTH // 2 - 1_000
        for name in ("A", "B", "B"):
            answer = await beat(other, consumer_data_set=[consumer(name, half)])
            assert answer.code == codes.SUCCESS
        answer = await beat(other, consumer_data_set=[consumer("C", half)])
        assert answer.code == codes.INVALID_PARAMETER
        assert "C" not in node.broker.consumers.groups
        answer = await beat(other, consumer_data_set=[consumer("A", 1), consumer("C", half)])
        assert answer.code == codes.SUCCESS
        client.close()
        await until(lambda: not producers, "the groups gone")
        assert len(node.node.server._clients._shares._groups) == 1

    with_broker(scenario)


def test_a_client_id_and_a_language_are_kept_only_if_they_are_sensible() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.heartbeat("g", "T", client_id="x" * 1_025)
        assert answer.code == codes.INVALID_PARAMETER
        assert "client id has 1025 characters" in (answer.remark or "")
        frame = encode_request(RequestCode.HEART_BEAT, 1, None, heartbeat("g", "T"))
        body = frame[8 + int.from_bytes(frame[5:8], "big") :]
        head = b'{"code":34,"language":"%b","opaque":7}' % (b"long" * 999)
        size = 4 + len(head) + len(body)
        raw = size.to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body
        client.connection._transport.write(raw)
        await client.settle()
        (member,) = node.broker.consumers.groups["g"].members.values()
        assert member.language == "OTHER"

    with_broker(scenario)


LOCK_STEPS: st.SearchStrategy[tuple[str, str, set[int], int]] = st.one_of(
    st.tuples(st.just("lock"), st.sampled_from("xy"), st.sets(st.integers(0, 3)), st.just(0)),
    st.tuples(st.just("unlock"), st.sampled_from("xy"), st.sets(st.integers(0, 3)), st.just(0)),
    st.tuples(st.just("wait"), st.just(""), st.just(set()), st.integers(1, 40)),
    st.tuples(st.just("forget"), st.just(""), st.just(set()), st.just(0)),
)


@given(st.lists(LOCK_STEPS, max_size=40))
def test_locks_follow_the_model(steps: list[tuple[str, str, set[int], int]]) -> None:
    locks = QueueLocks(lifetime_ms=50)
    held: dict[int, tuple[str, int]] = {}
    now = 0
    for kind, client, numbers, wait in steps:
        now += wait
        if kind == "lock":
            expected = {
                n for n in numbers if n not in held or held[n][0] == client or now - held[n][1] > 50
            }
            granted = locks.lock("g", map(queue, numbers), client, now)
            assert {queue.queue_id for queue in granted} == expected
            held.update((n, (client, now)) for n in expected)
        elif kind == "unlock":
            locks.unlock("g", map(queue, numbers), client)
            held = {n: h for n, h in held.items() if n not in numbers or h[0] != client}
        elif kind == "forget":
            locks.forget_expired(now)
            held = {n: h for n, h in held.items() if now - h[1] <= 50}
        assert locks.any_held("g", now) == any(now - since <= 50 for _, since in held.values())
        assert not locks.any_held("another", now)


def test_heartbeats_are_plain_json() -> None:
    assert heartbeat("g", "T").startswith(b'{"clientID":"client","consumerDataSet":[{')
