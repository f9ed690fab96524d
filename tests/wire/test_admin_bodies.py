"""The bodies about consumers, as Apache's own classes of 4.9 and 5.5 write and read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.message import MessageQueue
from orbitmq.wire.admin_bodies import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    GetConsumerStatusBody,
    GroupList,
    MessageQueueForC,
    OffsetWrapper,
    ProducerConnection,
    QuerySubscriptionResponseBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from orbitmq.wire.bodies import (
    Body,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

GOLDEN: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "golden" / "admin_bodies.json").read_text("utf-8")
)

# The same values as in golden/AdminBodies.java.
QUEUE = MessageQueue("flights", "broker-a", 3)
SUBSCRIPTION = SubscriptionData("flights", "*", sub_version=1700000000123)
CONNECTION = Connection("a@1", "127.0.0.1:4711", "PYTHON", 479)

BODIES: dict[str, Body] = {
    "reset_offset": ResetOffsetBody({QUEUE: 42}),
    "reset_offset_for_c": ResetOffsetBodyForC([MessageQueueForC("flights", "broker-a", 3, 42)]),
    "consumer_status_of_one": GetConsumerStatusBody({QUEUE: 42}),
    "consumer_status": GetConsumerStatusBody(consumer_table={"a@1": {QUEUE: 42}}),
    "consumer_connection": ConsumerConnection(
        [CONNECTION],
        {"flights": SUBSCRIPTION},
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ),
    "producer_connection": ProducerConnection([CONNECTION]),
    "consume_stats": ConsumeStats({QUEUE: OffsetWrapper(100, 42, 60, 1700000000123)}),
    "group_list": GroupList(frozenset({"readers"})),
    "subscription": QuerySubscriptionResponseBody("readers", "flights", SUBSCRIPTION),
    "subscription_none": QuerySubscriptionResponseBody("readers", "flights"),
}


@pytest.mark.parametrize("name", BODIES)
def test_written_and_read_as_by_java_5(name: str) -> None:
    data = GOLDEN["5.5.0"][name].encode()
    assert BODIES[name].encode() == data
    assert type(BODIES[name]).decode(data) == BODIES[name]


@pytest.mark.parametrize("name", sorted(GOLDEN["4.9.7"].keys() - {"consume_stats"}))
def test_what_java_4_9_writes_is_the_same(name: str) -> None:
    assert type(BODIES[name]).decode(GOLDEN["4.9.7"][name].encode()) == BODIES[name]


def test_progress_of_4_9_has_no_pull_offset() -> None:
    stats = ConsumeStats.decode(GOLDEN["4.9.7"]["consume_stats"].encode())
    assert stats == ConsumeStats({QUEUE: OffsetWrapper(100, 42, 0, 1700000000123)})


def test_every_captured_body_is_tried() -> None:
    of_5_alone = {"subscription", "subscription_none"}
    assert GOLDEN["5.5.0"].keys() == GOLDEN["4.9.7"].keys() | of_5_alone == BODIES.keys()
