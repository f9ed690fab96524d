"""Queries over the wire: messages by key, unique key and tag (12), consume-queue entries (321)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq import codes
from orbitmq.broker.queries import MAX_BODY_BYTES
from orbitmq.codes import RequestCode
from orbitmq.store.config import StoreConfig
from orbitmq.store.key_index import KeyIndex
from orbitmq.wire.admin_bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from orbitmq.wire.ids import tags_code
from tests.broker.remote import Client, Running, bodies, messages, with_broker

FOR_EVER = 2**62


async def query(client: Client, key: str, **fields: Any) -> RemotingCommand:
    defaults: dict[str, Any] = {
        "topic": "T",
        "key": key,
        "max_num": 32,
        "begin_timestamp": 0,
        "end_timestamp": FOR_EVER,
    }
    header = QueryMessageRequestHeader(**defaults | fields)
    return await client.call(RequestCode.QUERY_MESSAGE, header)


async def send(client: Client, body: bytes, keys: str = "", unique: str = "", **more: Any) -> None:
    properties = {"KEYS": keys, "UNIQ_KEY": unique}
    answer = await client.send("T", body, properties=properties, **more)
    assert answer.code == codes.SUCCESS, answer


def test_what_was_acknowledged_is_found_by_its_keys() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await send(client, b"one", "a b", "U1")
        node.clock.advance(10_000)
        await send(client, b"two", "b", "U2", tags="Red")
        assert bodies(await query(client, "a")) == [b"one"]
        answer = await query(client, "b")
        assert bodies(answer) == [b"one", b"two"]
        newest = messages(answer)[-1]
        header = answer.header(QueryMessageResponseHeader)
        assert header.index_last_update_phyoffset == newest.physical_offset
        assert header.index_last_update_timestamp == node.clock.now_ms()
        assert bodies(await query(client, "b", max_num=1)) == [b"two"]
        now = node.clock.now_ms()
        assert bodies(await query(client, "b", end_timestamp=now - 1)) == [b"one"]
        unique = await query(client, "U2", unique_key_query="true", max_num=0)
        assert bodies(unique) == [b"two"]
        assert bodies(await query(client, "Red", index_type="T")) == [b"two"]
        view = ViewMessageRequestHeader(offset=newest.physical_offset)
        assert bodies(await client.call(RequestCode.VIEW_MESSAGE_BY_ID, view)) == [b"two"]

    with_broker(scenario)


def test_an_index_that_is_behind_keeps_no_query_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyIndex, "_work", lambda *_, **__: None)
    monkeypatch.setattr(KeyIndex, "_settle", lambda _: pytest.fail("it is waited for"))

    async def scenario(node: Running, client: Client) -> None:
        await send(client, b"one", "a b", "U1")
        await send(client, b"two", "b", "U2", tags="Red")
        assert bodies(await query(client, "b")) == [b"one", b"two"]
        assert bodies(await query(client, "b", max_num=1)) == [b"two"]
        assert bodies(await query(client, "U1", unique_key_query="true")) == [b"one"]
        assert bodies(await query(client, "Red", index_type="T")) == [b"two"]
        assert (await query(client, "c")).code == codes.QUERY_NOT_FOUND

    with_broker(scenario)


def test_what_is_not_there_is_not_found() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await send(client, b"one", "a")
        now = node.clock.now_ms()
        for answer in (
            await query(client, "b"),
            await query(client, "a", topic="Other"),
            await query(client, "Red", index_type="T"),
            await query(client, "a", begin_timestamp=now + 1_000),
            await query(client, "a", max_num=0),
        ):
            assert answer.code == codes.QUERY_NOT_FOUND
            assert answer.remark
            assert answer.header(QueryMessageResponseHeader).index_last_update_timestamp == 0
        assert (await query(client, "a", max_num=-1)).code == codes.INVALID_PARAMETER

    with_broker(scenario)


def test_without_an_index_the_answer_says_so() -> None:
    async def scenario(_node: Running, client: Client) -> None:
        await send(client, b"one", "a")
        answer = await query(client, "a")
        assert answer.code == codes.QUERY_NOT_FOUND
        assert "messageIndexEnable" in (answer.remark or "")

    with_broker(scenario, store_config=StoreConfig(message_index_enable=False))


def test_an_answer_is_never_longer_than_a_frame_may_be() -> None:
    body = bytes(4 << 20)

    async def scenario(_node: Running, client: Client) -> None:
        for number in range(5):
            await send(client, body, "a", f"U{number}")
        found = messages(await query(client, "a", max_num=2000))
        assert [message.keys for message in found] == ["a"] * 3
        assert [message.queue_offset for message in found] == [2, 3, 4]
        assert sum(len(message.body) for message in found) <= MAX_BODY_BYTES

    with_broker(scenario, store_config=StoreConfig(mapped_file_size=64 << 20))


def test_no_more_are_given_than_the_broker_allows() -> None:
    async def scenario(_node: Running, client: Client) -> None:
        for number in range(12):
            await send(client, b"%d" % number, "a", "same")
        assert bodies(await query(client, "a", max_num=1000)) == [b"8", b"9", b"10", b"11"]
        unique = await query(client, "same", max_num=1000, unique_key_query="true")
        assert bodies(unique) == [b"10", b"11"]

    config = StoreConfig(default_query_max_num=2, max_msgs_num_batch=4)
    with_broker(scenario, store_config=config)


def test_queries_at_once_do_not_hold_each_other() -> None:
    async def scenario(_node: Running, client: Client) -> None:
        for number in range(20):
            await send(client, b"%d" % number, f"k{number}")
        answers = await asyncio.gather(*(query(client, f"k{number}") for number in range(20)))
        assert [bodies(answer) for answer in answers] == [[b"%d" % n] for n in range(20)]

    with_broker(scenario)


def test_entries_of_a_consume_queue_are_shown() -> None:
    async def ask(client: Client, **fields: Any) -> RemotingCommand:
        defaults: dict[str, Any] = {"topic": "T", "queue_id": 0, "index": 0, "count": 10}
        header = QueryConsumeQueueRequestHeader(**defaults | fields)
        return await client.call(RequestCode.QUERY_CONSUME_QUEUE, header)

    async def scenario(_node: Running, client: Client) -> None:
        for body in (b"one", b"two", b"three"):
            await send(client, body, tags="Red")
        answer = await ask(client, index=1, count=1)
        found = QueryConsumeQueueResponseBody.decode(answer.body)
        assert (found.min_queue_index, found.max_queue_index) == (0, 3)
        (unit,) = found.queue_data
        view = ViewMessageRequestHeader(offset=unit.physic_offset)
        record = await client.call(RequestCode.VIEW_MESSAGE_BY_ID, view)
        assert bodies(record) == [b"two"]
        assert unit == ConsumeQueueData(unit.physic_offset, len(record.body), tags_code("Red"))
        assert found.subscription_data is None
        assert found.filter_data is None
        absent = QueryConsumeQueueResponseBody.decode(
            (await ask(client, consumer_group="readers")).body
        )
        assert absent.filter_data == "readers@T is not online!"
        await client.heartbeat("readers", "T", tags="Red")
        online = QueryConsumeQueueResponseBody.decode(
            (await ask(client, consumer_group="readers")).body
        )
        assert online.filter_data == "null"
        assert online.subscription_data is not None
        assert online.subscription_data.sub_string == "Red"
        assert len(online.queue_data) == 3
        beyond = await ask(client, index=3)
        assert (beyond.code, bytes(beyond.body)) == (codes.SUCCESS, b"")
        assert beyond.remark == "Index 3 of 0@T is not exist!"
        for missing in (await ask(client, queue_id=7), await ask(client, topic="../x")):
            assert missing.code == codes.SYSTEM_ERROR
            assert "is not exist" in (missing.remark or "")

    with_broker(scenario)
