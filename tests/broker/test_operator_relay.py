"""What an operator asks consumers through the broker: these here speak the protocol raw."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq import codes
from orbitmq.broker.handlers import relay
from orbitmq.codes import RequestCode
from orbitmq.errors import ConnectionLostError
from orbitmq.message import MessageQueue
from orbitmq.wire.admin_bodies import GetConsumerStatusBody
from orbitmq.wire.bodies import Body, SubscriptionGroupConfig
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from orbitmq.wire.message_view import decode_records
from tests.broker.remote import Client, Running, with_broker
from tests.waiting import until

RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


async def asked(consumer: Client, code: int) -> RemotingCommand:
    """What the broker asks a consumer next."""

    def of_code() -> list[RemotingCommand]:
        return [notice for notice in consumer.notices if notice.code == code]

    await until(of_code, f"a request {code}")
    (request,) = of_code()
    consumer.notices.clear()
    assert not request.is_oneway
    return request


def answer(
    consumer: Client,
    request: RemotingCommand,
    body: bytes = b"",
    code: int = codes.SUCCESS,
    **fields: str,
) -> None:
    head = encode_response(
        request, code, fields, remark="as the consumer says", body_length=len(body)
    )
    consumer.connection.send(head, body)


def ask(operator: Client, code: int, **header: object) -> asyncio.Future[RemotingCommand]:
    fields = {name: str(value) for name, value in header.items()}
    return asyncio.ensure_future(operator.call(code, fields))


def test_what_a_consumer_says_of_itself_reaches_the_operator() -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumer, other = await node.connect(), await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        await other.heartbeat("g", "T", client_id="two")
        answered = ask(
            operator, RUNNING_INFO, consumerGroup="g", clientId="one", jstackEnable="true"
        )
        request = await asked(consumer, RUNNING_INFO)
        header = request.header(GetConsumerRunningInfoRequestHeader)
        assert (header.consumer_group, header.client_id) == ("g", "one")
        assert header.jstack_enable
        await operator.settle()  # the broker serves others meanwhile
        assert not answered.done()
        answer(consumer, request, b"all is well", field="value")
        told = await answered
        assert (told.code, bytes(told.body)) == (codes.SUCCESS, b"all is well")
        assert (told.remark, told.ext_fields) == ("as the consumer says", {"field": "value"})
        assert not [notice for notice in other.notices if notice.code == RUNNING_INFO]

    with_broker(scenario)


def test_a_consumers_refusal_reaches_the_operator() -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumer = await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        answered = ask(operator, RUNNING_INFO, consumerGroup="g", clientId="one")
        answer(consumer, await asked(consumer, RUNNING_INFO), code=codes.SYSTEM_ERROR)
        told = await answered
        assert (told.code, told.remark) == (codes.SYSTEM_ERROR, "as the consumer says")

    with_broker(scenario)


def test_a_consumer_gets_the_message_it_is_to_consume() -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumer = await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        node.broker.groups.put(SubscriptionGroupConfig("g", group_sys_flag=4))
        await operator.send("T", b"before")
        sent = await operator.send("T", b"the one")
        message_id = sent.ext_fields["msgId"]
        answered = ask(
            operator, DIRECTLY, consumerGroup="g", clientId="one", msgId=message_id, topic="T"
        )
        request = await asked(consumer, DIRECTLY)
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        assert header == ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="g",
            client_id="one",
            msg_id=message_id,
            broker_name="broker-a",
            topic="T",
            topic_sys_flag=0,
            group_sys_flag=4,
        )
        (message,) = decode_records(bytes(request.body))
        assert (message.topic, message.body) == ("T", b"the one")
        answer(consumer, request, b'{"consumeResult":"CR_SUCCESS"}')
        assert bytes((await answered).body) == b'{"consumeResult":"CR_SUCCESS"}'

    with_broker(scenario)


@pytest.mark.parametrize(
    ("message_id", "remark"),
    [
        ("no-id", "'no-id' is not an offset message id"),
        ("7F00000100002A9F0000000000100000", "no message begins at commit-log offset 1048576"),
    ],
)
def test_a_message_that_is_not_there_cannot_be_consumed(message_id: str, remark: str) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("g", "T", client_id="one")
        told = await ask(client, DIRECTLY, consumerGroup="g", clientId="one", msgId=message_id)
        assert told.code == codes.SYSTEM_ERROR
        assert remark in (told.remark or "")

    with_broker(scenario)


@pytest.mark.parametrize(("group", "client_id"), [("g", "two"), ("h", "one")])
def test_a_consumer_that_is_not_there_cannot_be_asked(group: str, client_id: str) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("g", "T", client_id="one")
        told = await ask(client, RUNNING_INFO, consumerGroup=group, clientId=client_id)
        assert told.code == codes.SYSTEM_ERROR
        assert told.remark == f"consumer {client_id} of group {group} is not online"

    with_broker(scenario)


def test_a_consumer_that_is_too_old_cannot_be_asked() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("g", "T", client_id="one")
        (member,) = node.broker.consumers.groups["g"].members.values()
        member.version = 61
        told = await ask(client, RUNNING_INFO, consumerGroup="g", clientId="one")
        assert told.code == codes.SYSTEM_ERROR
        assert "protocol version 61, 62 is needed" in (told.remark or "")
        member.version = 27
        told = await ask(client, STATUS, topic="T", group="g")
        assert told.code == codes.SYSTEM_ERROR
        assert "protocol version 27, 28 is needed" in (told.remark or "")

    with_broker(scenario)


def test_a_consumer_that_is_silent_costs_the_operator_its_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumer = await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        monkeypatch.setattr(relay, "CALL_TIMEOUT_MS", 50)
        told = await ask(operator, RUNNING_INFO, consumerGroup="g", clientId="one")
        assert told.code == codes.CONSUME_MSG_TIMEOUT
        assert "did not answer GET_CONSUMER_RUNNING_INFO (307) within 50 ms" in (told.remark or "")

    with_broker(scenario)


def test_a_consumer_that_leaves_instead_of_answering() -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumer = await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        answered = ask(operator, RUNNING_INFO, consumerGroup="g", clientId="one")
        await asked(consumer, RUNNING_INFO)
        consumer.close()
        told = await answered
        assert told.code == codes.SYSTEM_ERROR
        assert "was lost" in (told.remark or "")

    with_broker(scenario)


def test_an_operator_that_leaves_before_the_answer_harms_nobody() -> None:
    async def scenario(node: Running, consumer: Client) -> None:
        operator = await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        answered = ask(operator, RUNNING_INFO, consumerGroup="g", clientId="one")
        request = await asked(consumer, RUNNING_INFO)
        operator.close()
        with pytest.raises(ConnectionLostError, match="was lost"):
            await answered
        answer(consumer, request)
        await consumer.settle()

    with_broker(scenario)


# 223: what the consumers of a group have consumed


def status(**offsets: int) -> Body:
    return GetConsumerStatusBody(
        {MessageQueue(topic, "broker-a", 0): offset for topic, offset in offsets.items()}
    )


def test_what_all_consumers_have_consumed() -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumers = [await node.connect() for _ in range(3)]
        for number, consumer in enumerate(consumers):
            await consumer.heartbeat("g", "T", client_id=str(number))
        answered = ask(operator, STATUS, topic="T", group="g")
        for number, consumer in reversed(list(enumerate(consumers))):
            request = await asked(consumer, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
            header = request.header(GetConsumerStatusRequestHeader)
            assert (header.topic, header.group) == ("T", "g")
            assert not answered.done()
            answer(consumer, request, status(T=number).encode())
        told = GetConsumerStatusBody.decode((await answered).body)
        assert told == GetConsumerStatusBody(
            {}, {str(n): {MessageQueue("T", "broker-a", 0): n} for n in range(3)}
        )

    with_broker(scenario)


def test_what_one_consumer_has_consumed() -> None:
    async def scenario(node: Running, operator: Client) -> None:
        consumer, other = await node.connect(), await node.connect()
        await consumer.heartbeat("g", "T", client_id="one")
        await other.heartbeat("g", "T", client_id="two")
        answered = ask(operator, STATUS, topic="T", group="g", clientAddr="one")
        request = await asked(consumer, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
        answer(consumer, request, status(T=7).encode())
        told = GetConsumerStatusBody.decode((await answered).body)
        assert told.consumer_table.keys() == {"one"}
        told = GetConsumerStatusBody.decode(
            (await ask(operator, STATUS, topic="T", group="g", clientAddr="none")).body
        )
        assert told == GetConsumerStatusBody()

    with_broker(scenario)


def test_consumers_that_do_not_say_it_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Running, operator: Client) -> None:
        names = ("says", "refuses", "babbles", "leaves", "is silent")
        consumers = {name: await node.connect() for name in names}
        for name, consumer in consumers.items():
            await consumer.heartbeat("g", "T", client_id=name)
        monkeypatch.setattr(relay, "STATUS_TIMEOUT_MS", 300)
        answered = ask(operator, STATUS, topic="T", group="g")
        requests = {
            name: await asked(consumer, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
            for name, consumer in consumers.items()
        }
        answer(consumers["says"], requests["says"], status(T=7).encode())
        answer(consumers["refuses"], requests["refuses"], code=codes.SYSTEM_ERROR)
        answer(consumers["babbles"], requests["babbles"], b"{")
        consumers["leaves"].close()
        told = GetConsumerStatusBody.decode((await answered).body)
        assert told.consumer_table.keys() == {"says"}

    with caplog.at_level(logging.WARNING, "orbitmq.broker"):
        with_broker(scenario)
    for name in ("babbles", "leaves", "is silent"):
        assert f"consumer {name} did not say what it consumed" in caplog.text


def test_a_group_that_is_not_online_says_nothing() -> None:
    async def scenario(node: Running, client: Client) -> None:
        told = await ask(client, STATUS, topic="T", group="g")
        assert (told.code, told.remark) == (
            codes.SYSTEM_ERROR, "consumer group g has no member online",
        )  # fmt: skip

    with_broker(scenario)
