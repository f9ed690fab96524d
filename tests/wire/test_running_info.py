"""ConsumerRunningInfo and its parts, compared with what Apache's classes write and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import Body, SubscriptionData
from orbitmq.wire.running_info import (
    PROP_CONSUME_TYPE,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatusInfo,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    running_info,
)

GOLDEN: dict[str, str] = json.loads(
    (Path(__file__).parent / "golden" / "running_info.json").read_text("utf-8")
)

# The same values as in golden/RunningInfo.java.
QUEUE = MessageQueue("flights", "broker-a", 3)
SUBSCRIPTION = SubscriptionData(
    "flights", "TagA", frozenset({"TagA"}), frozenset({2598919}), 1700000000123
)
HELD = ProcessQueueInfo(
    1, 2, 3, 4, 5, 6, 7, 8, True, 9, 1700000000001, True, 1700000000002, 1700000000003
)
STATUS = ConsumeStatusInfo(1.5, 1000.25, 0.125, 3.0, 0.1, 42)

BODIES: dict[str, Body] = {
    "running_info_empty": ConsumerRunningInfo(),
    "running_info": ConsumerRunningInfo(
        {PROP_CONSUME_TYPE: "CONSUME_PASSIVELY"},
        [SUBSCRIPTION],
        {QUEUE: HELD, QUEUE._replace(queue_id=10): ProcessQueueInfo()},
        {QUEUE: PopProcessQueueInfo(1, True, 1700000000004)},
        {"%RETRY%readers": ConsumeStatusInfo(), "flights": STATUS},
        {"color": "blue"},
        'main\n  at "home"',
    ),
    "consume_directly_empty": ConsumeMessageDirectlyResult(),
    "consume_directly": ConsumeMessageDirectlyResult(
        True, False, CMResult.CR_THROW_EXCEPTION, "no", 12
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_written_as_java_writes_them(name: str) -> None:
    assert BODIES[name].encode().decode() == GOLDEN[name]


@pytest.mark.parametrize("name", BODIES)
def test_what_java_wrote_is_read(name: str) -> None:
    assert type(BODIES[name]).decode(GOLDEN[name].encode()) == BODIES[name]


def test_the_tables_are_sorted_as_javas_trees_are() -> None:
    other = SubscriptionData("%RETRY%readers", "*")
    info = running_info(
        {},
        [SUBSCRIPTION, other],
        {QUEUE._replace(queue_id=10): ProcessQueueInfo(), QUEUE: HELD},
    )
    assert info.subscription_set == [other, SUBSCRIPTION]
    assert [queue.queue_id for queue in info.mq_table] == [3, 10]
