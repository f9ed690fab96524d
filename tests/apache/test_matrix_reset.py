"""Offsets that an operator resets while our push consumers run, on each broker."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.apache import remoting
from tests.apache.exchanges import check_content, send_messages, wait_received
from tests.apache.python_clients import PythonPushConsumer
from tests.patience import eventually

if TYPE_CHECKING:
    from tests.apache.exchanges import Consumer
    from tests.apache.orbit import Cluster

QUEUES = 4  # at each of two brokers
RESET_OFFSET = 222
COUNT = 80

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def test_a_running_group_is_sent_back_to_the_beginning(cluster: Cluster) -> None:
    server, topic = cluster.name_server, cluster.new_topic("reset", QUEUES, brokers=2)
    groups = {f"{topic}-concurrent": False, f"{topic}-orderly": True}
    rows = send_messages(server, topic, range(COUNT))
    concurrent, orderly = (
        PythonPushConsumer(
            server,
            topic,
            group,
            orderly=in_order,
            persist_offset_delay_ms=500,
            persist_offset_interval_ms=500,
            # A broker of 5.5 resets at the next pull, not while it holds one.
            broker_suspend_max_time_ms=1_000,
        )
        for group, in_order in groups.items()
    )
    with concurrent, orderly:
        for consumer in (concurrent, orderly):
            wait_received(rows, consumer)
        for group in groups:
            for broker in cluster.brokers:
                eventually(partial(reset, broker.address, topic, group), f"{group} to be reset")
        for consumer in (concurrent, orderly):
            consumer.wait_count(2 * COUNT)
            check_twice(consumer)
        # And on from there.
        more = send_messages(server, topic, range(COUNT, 2 * COUNT))
        for consumer in (concurrent, orderly):
            wait_received(more, consumer)
            check_content(consumer.messages)


def reset(address: str, topic: str, group: str) -> bool:
    """Whether the broker resets the group; 4.9 refuses one that has not committed yet."""
    fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
    try:
        remoting.call(address, RESET_OFFSET, fields)
    except remoting.RemotingCallError:
        return False
    return True


def check_twice(consumer: Consumer) -> None:
    """Each message came twice."""
    times = Counter(row.key for row in consumer.messages)
    assert times == {f"k{number}": 2 for number in range(COUNT)}
