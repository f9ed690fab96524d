"""Giving messages back: to their broker, else to any retry topic; and taking them again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.client.routes import RouteTable
from orbitmq.codes import RequestCode
from orbitmq.consumer.retries import SendBack, unwrap_retries
from orbitmq.errors import ConnectError, RequestTimeoutError, TopicNotFoundError, for_code
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.command import Header, RemotingCommand
from orbitmq.wire.message_view import MessageView, decode_record
from orbitmq.wire.properties import decode_properties
from tests.consumer.records import record

RETRY_QUEUE = MessageQueue("%RETRY%readers", "broker-a", 0)


def message(**options: Any) -> MessageView:
    properties = {"TAGS": "t", "UNIQ_KEY": "U1", "TRAN_MSG": "true", "color": "red"}
    options = {"topic": "orders", "properties": properties, **options}
    return decode_record(record(5, b"hello", **options), 0, "broker-a")


class Brokers(ClientInstance):
    """An instance that notes requests, and answers with an error those to brokers ``broken``."""

    def __init__(self, brokers: Collection[str] = ("broker-a", "broker-b")) -> None:
        self.clock = ManualClock(77)
        self.routes = RouteTable()
        self.requests: list[tuple[str, int, dict[str, str], bytes]] = []
        self.broken: dict[tuple[str, int], Exception] = {}
        self.route = TopicRouteData(
            [QueueData(name, 1, 1, 6) for name in brokers],
            [BrokerData("c", name, {0: f"{name}:1"}) for name in brokers],
        )
        self.routes.put("%RETRY%readers", self.route)

    async def topic_route(self, topic: str) -> TopicRouteData:
        assert topic == "%RETRY%readers"
        return self.route

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        assert header is not None
        assert timeout_ms == 5000
        self.requests.append((address, code, header.ext_fields(), body))
        if (address, code) in self.broken:
            raise self.broken[address, code]
        return RemotingCommand()


def test_a_message_goes_back_to_its_broker() -> None:
    brokers = Brokers()
    asyncio.run(SendBack(brokers, "readers", 16).send(message(), 4))
    (request,) = brokers.requests
    assert request == (
        "broker-a:1",
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {
            "offset": "1005",
            "group": "readers",
            "delayLevel": "4",
            "originMsgId": "U1",
            "originTopic": "orders",
            "maxReconsumeTimes": "16",
            "bname": "broker-a",
        },
        b"",
    )


def test_one_that_its_broker_does_not_take_is_sent_to_the_retry_topic() -> None:
    brokers = Brokers()
    back = ("broker-a:1", RequestCode.CONSUMER_SEND_MSG_BACK)
    brokers.broken = {back: for_code(codes.SYSTEM_ERROR, "the message is gone")}
    asyncio.run(SendBack(brokers, "readers", 16).send(message(reconsume_times=2), 0))
    address, code, fields, body = brokers.requests[1]
    assert (address, code, body) == ("broker-a:1", RequestCode.SEND_MESSAGE_V2, b"hello")
    assert (fields["b"], fields["e"], fields["j"], fields["l"]) == (
        "%RETRY%readers", "0", "3", "16"
    )  # fmt: skip
    assert (fields["a"], fields["g"]) == ("CLIENT_INNER_PRODUCER", "77")
    assert decode_properties(fields["i"].encode()) == {
        "TAGS": "t",
        "UNIQ_KEY": "U1",
        "color": "red",
        "ORIGIN_MESSAGE_ID": "U1",
        "RETRY_TOPIC": "orders",
        "DELAY": "5",
    }


def test_another_broker_takes_it_where_the_first_is_away() -> None:
    brokers = Brokers()
    for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        brokers.broken["broker-a:1", code] = RequestTimeoutError("away", "broker-a:1")
    asyncio.run(SendBack(brokers, "readers", 16).send(message(), 0))
    assert [address for address, *_ in brokers.requests] == ["broker-a:1"] * 2 + ["broker-b:1"]


def test_it_is_kept_when_no_broker_takes_it() -> None:
    brokers = Brokers(["broker-a"])
    for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        brokers.broken["broker-a:1", code] = RequestTimeoutError("away", "broker-a:1")
    with pytest.raises(RequestTimeoutError):
        asyncio.run(SendBack(brokers, "readers", 16).send(message(), 0))
    assert len(brokers.requests) == 4


def test_without_a_master_or_a_retry_topic_there_is_nobody_to_take_it() -> None:
    brokers = Brokers([])
    with pytest.raises(TopicNotFoundError):
        asyncio.run(SendBack(brokers, "readers", 16).send(message(), 0))
    slaves = Brokers(["broker-a"])
    slaves.routes = RouteTable()
    with pytest.raises(ConnectError, match="no master"):
        asyncio.run(SendBack(slaves, "readers", 16).send(message(), 0))


def test_a_message_failed_before_keeps_the_id_it_had_at_first() -> None:
    brokers = Brokers()
    retried = message(properties={"UNIQ_KEY": "U2", "ORIGIN_MESSAGE_ID": "FIRST"})
    asyncio.run(SendBack(brokers, "readers", 16).send_as_new(retried))
    properties = decode_properties(brokers.requests[0][2]["i"].encode())
    assert properties["ORIGIN_MESSAGE_ID"] == "FIRST"


def test_retried_messages_get_their_topic_back() -> None:
    retried = message(topic="%RETRY%readers", properties={"RETRY_TOPIC": "orders"})
    plain = message(properties={"RETRY_TOPIC": "other"})
    unwrap_retries(RETRY_QUEUE, [retried])
    unwrap_retries(MessageQueue("orders", "broker-a", 0), [plain])
    assert (retried.topic, plain.topic) == ("orders", "orders")
    stray = message(topic="%RETRY%readers", properties={})
    unwrap_retries(RETRY_QUEUE, [stray])
    assert stray.topic == "%RETRY%readers"
