"""Replies at the broker: pushed to who asked, stored or not, refused in Apache's words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq import codes
from orbitmq.broker.clients import ClientInfo, ProducerTable
from orbitmq.codes import RequestCode
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.properties import decode_properties
from orbitmq.wire.reply import ReplyMessageRequestHeader, reply_message
from tests.broker.remote import Client, Running, bodies, send_header, with_broker
from tests.waiting import until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
TO_ASKER = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "9"}


async def reply(
    client: Client, properties: Mapping[str, str], code: int = RequestCode.SEND_REPLY_MESSAGE_V2
) -> RemotingCommand:
    return await client.call(code, send_header(REPLY_TOPIC, properties=properties), b"answer")


async def asker_of(node: Running) -> Client:
    asker = await node.connect()
    await asker.heartbeat("", client_id="asker", producers=("askers",))
    return asker


async def take(asker: Client, code: int = codes.SUCCESS) -> ReplyMessageRequestHeader:
    """What was pushed to the asker, which answers it."""
    await until(lambda: asker.notices, "a reply pushed")
    (pushed,) = asker.notices
    assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert bytes(pushed.body) == b"answer"
    asker.connection.send(encode_response(pushed, code, remark="no"))
    return pushed.header(ReplyMessageRequestHeader)


def test_a_reply_is_pushed_to_who_asked_and_stored() -> None:
    async def scenario(node: Running, replier: Client) -> None:
        asker = await asker_of(node)
        answering = asyncio.ensure_future(reply(replier, TO_ASKER))
        header = await take(asker)
        properties = decode_properties((header.properties or "").encode())
        assert properties.pop("PUSH_REPLY_TIME") == str(node.clock.now_ms())
        assert properties == TO_ASKER
        assert header.topic == REPLY_TOPIC
        assert header.store_host == node.node.address
        assert reply_message(header, b"answer", 5).property("ARRIVE_TIME") == "5"
        answer = await answering
        assert answer.code == codes.SUCCESS
        assert len(answer.ext_fields["msgId"]) == 32
        assert bodies(await replier.pull(REPLY_TOPIC)) == [b"answer"]

    with_broker(scenario)


def test_it_need_not_be_stored() -> None:
    async def scenario(node: Running, replier: Client) -> None:
        asker = await asker_of(node)
        answering = asyncio.ensure_future(reply(replier, TO_ASKER))
        await take(asker)
        answer = await answering
        assert (answer.ext_fields["msgId"], answer.ext_fields["queueOffset"]) == ("0", "0")
        assert (await replier.pull(REPLY_TOPIC)).code == codes.PULL_NOT_FOUND

    with_broker(scenario, store_reply_messages=False)


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        (
            TO_ASKER | {"REPLY_TO_CLIENT": "gone"},
            "push reply message fail, channel of <gone> not found.",
        ),
        ({"MSG_TYPE": "reply"}, "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
def test_a_reply_that_reaches_nobody_is_stored_and_refused(
    properties: Mapping[str, str], remark: str
) -> None:
    async def scenario(node: Running, replier: Client) -> None:
        answer = await reply(replier, properties)
        assert (answer.code, answer.remark) == (codes.SYSTEM_ERROR, remark)
        assert bodies(await replier.pull(REPLY_TOPIC)) == [b"answer"]

    with_broker(scenario)


def test_a_requester_that_cannot_take_it() -> None:
    async def scenario(node: Running, replier: Client) -> None:
        asker = await asker_of(node)
        answering = asyncio.ensure_future(reply(replier, TO_ASKER))
        await take(asker, codes.SYSTEM_ERROR)
        answer = await answering
        assert (answer.code, answer.remark) == (
            codes.SYSTEM_ERROR,
            "push reply message to askerfail.",
        )

    with_broker(scenario)


def test_a_requester_that_hangs_up() -> None:
    async def scenario(node: Running, replier: Client) -> None:
        asker = await asker_of(node)
        answering = asyncio.ensure_future(reply(replier, TO_ASKER))
        await until(lambda: asker.notices, "a reply pushed")
        asker.close()
        assert (await answering).code == codes.SYSTEM_ERROR
        await until(lambda: node.broker.producers.find("asker") is None, "the asker forgotten")

    with_broker(scenario)


def test_it_may_come_by_the_old_code() -> None:
    async def scenario(node: Running, replier: Client) -> None:
        asker = await asker_of(node)
        v2 = send_header(REPLY_TOPIC, properties=TO_ASKER)
        fields = {
            "producerGroup": "senders",
            "topic": REPLY_TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": v2.properties or "",
        }
        answering = asyncio.ensure_future(
            replier.call(RequestCode.SEND_REPLY_MESSAGE, fields, b"answer")
        )
        await take(asker)
        assert (await answering).code == codes.SUCCESS

    with_broker(scenario)


def test_a_reply_to_a_topic_that_is_not_there() -> None:
    async def scenario(node: Running, replier: Client) -> None:
        header = send_header("elsewhere", properties=TO_ASKER, default_topic="none")
        answer = await replier.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"answer")
        assert answer.code == codes.TOPIC_NOT_EXIST

    with_broker(scenario)


GROUPS = st.sampled_from(["g1", "g2", "g3"])
CONNECTIONS = st.sampled_from(["c1", "c2", "c3"])
CLIENTS = st.sampled_from(["a", "b"])


class ProducersById(RuleBasedStateMachine):
    """Who is found by a client id is a member that goes by it; who has left is not found."""

    def __init__(self) -> None:
        super().__init__()
        self.table: ProducerTable[str] = ProducerTable()

    @rule(group=GROUPS, connection=CONNECTIONS, client=CLIENTS)
    def register(self, group: str, connection: str, client: str) -> None:
        self.table.register(group, connection, ClientInfo(client, "PYTHON", 1, 0))
        assert self.table.find(client) == connection

    @rule(group=GROUPS, connection=CONNECTIONS)
    def unregister(self, group: str, connection: str) -> None:
        self.table.unregister(group, connection)

    @rule(connection=CONNECTIONS)
    def disconnect(self, connection: str) -> None:
        self.table.disconnect(connection)

    @invariant()
    def found_are_members(self) -> None:
        members = {
            (client.client_id, connection)
            for group in self.table.groups.values()
            for connection, client in group.items()
        }
        for client in ("a", "b", "nobody"):
            found = self.table.find(client)
            assert found is None or (client, found) in members


TestProducersById = ProducersById.TestCase
