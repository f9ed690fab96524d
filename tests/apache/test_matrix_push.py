"""What becomes of messages in listeners: retries, dead letters, order and locks; on each broker."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import ConsumeConcurrentlyContext, LitePullConsumer, PushConsumer
from tests.apache import remoting
from tests.apache.exchanges import (
    check_content,
    check_received,
    offsets_by_queue,
    send_messages,
    side_by_side,
    wait_received,
)
from tests.apache.python_clients import PATIENT, PythonLitePullConsumer, PythonPushConsumer
from tests.consumer_program import FROM_FIRST, Queue, Received, received
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq import MessageView
    from tests.apache.orbit import Cluster

QUEUES = 4  # at each of two brokers
SECOND = 1_000

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def test_what_fails_comes_again_and_dies_at_the_limit(cluster: Cluster) -> None:
    server, topic = cluster.name_server, cluster.new_topic("retried", QUEUES, brokers=2)
    group = f"{topic}-workers"
    seen: list[tuple[str, str, int]] = []

    def work(messages: Sequence[MessageView], context: ConsumeConcurrentlyContext) -> bool:
        """Even numbers succeed; of the odd ones those under 10 do at the second attempt."""
        (message,) = messages
        number, attempt = int((message.keys or "")[1:]), message.reconsume_times
        seen.append((message.topic, message.keys or "", attempt))
        context.delay_level_when_next_consume = 1
        return number % 2 == 0 or (number < 10 and attempt == 1)

    consumer = PushConsumer(
        group,
        work,
        name_server=server,
        consume_from_where=FROM_FIRST,
        max_reconsume_times=1,
        poll_name_server_interval_ms=SECOND,
        **PATIENT,
    )
    consumer.subscribe(topic)
    graveyard = LitePullConsumer(
        f"{topic}-mourners",
        name_server=server,
        consume_from_where=FROM_FIRST,
        poll_name_server_interval_ms=SECOND,
        **PATIENT,
    )
    graveyard.subscribe(f"%DLQ%{group}")
    send_messages(server, topic, range(20))
    with consumer, graveyard:
        dead: list[MessageView] = []

        def all_dead() -> bool:
            dead.extend(graveyard.poll(1))
            return len(dead) >= 5

        eventually(all_dead, "the dead letters", lambda: f"{dead} of {sorted(seen)}")
        eventually(lambda: len(seen) >= 30, "the second attempts", lambda: sorted(seen))
    odd = range(1, 20, 2)
    assert Counter(seen) == Counter(
        [
            *((topic, f"k{number}", 0) for number in range(20)),
            *((topic, f"k{number}", 1) for number in odd),
        ]
    )
    assert sorted(message.keys or "" for message in dead) == [f"k{n}" for n in odd if n >= 10]
    check_content(received(message) for message in dead)


def test_an_orderly_listener_that_fails_keeps_its_queue_waiting(cluster: Cluster) -> None:
    server, topic = cluster.name_server, cluster.new_topic("suspended", QUEUES, brokers=2)
    rows = send_messages(server, topic, range(80))
    with PythonPushConsumer(
        server,
        topic,
        f"{topic}-workers",
        orderly=True,
        fail_first=True,
        suspend_current_queue_time_ms=10,
    ) as consumer:
        consumer.wait_count(160)
        deliveries = list(consumer.messages)
    check_received([row for row in deliveries if row.reconsume_times == 0], rows)
    check_received([row for row in deliveries if row.reconsume_times == 1], rows)
    for offsets in offsets_by_queue(deliveries).values():
        assert offsets == [offset for offset in range(len(offsets) // 2) for _ in range(2)]


def test_a_queue_is_locked_until_its_listener_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, topic = cluster.name_server, cluster.new_topic("locked", QUEUES, brokers=2)
    group = f"{topic}-workers"
    # The second client id is the greater one, so the last queues go to it.
    held: Queue = ("broker-b", QUEUES - 1)
    others = {("broker-b", number) for number in range(QUEUES - 1)}
    entered, release = threading.Event(), threading.Event()

    class Holding(PythonPushConsumer):
        """Stays in its listener with the first message of one queue."""

        def _listen(self, messages: Sequence[MessageView]) -> bool:
            if (messages[0].broker_name, messages[0].queue_id) == held:
                entered.set()
                release.wait(PATIENCE_SECONDS)
            return super()._listen(messages)

    rows = send_messages(server, topic, range(80))
    with Holding(server, topic, group, orderly=True) as first:
        # Else it waits until the lock is due to be renewed, up to 20 s, before it lets go.
        monkeypatch.setattr(first.consumer._core, "_patience_ms", lambda _task: 60_000)
        assert entered.wait(PATIENCE_SECONDS)
        with PythonPushConsumer(server, topic, group, orderly=True) as second:
            eventually(lambda: second.queues == others, "the queues at rest", lambda: second.queues)
            rows += send_messages(server, topic, range(80, 160))
            wait_received([row for row in rows if (row.broker, row.queue) != held], first, second)
            assert others <= offsets_by_queue(second.messages).keys()
            assert held not in offsets_by_queue([*first.messages, *second.messages])
            release.set()
            wait_received(rows, first, second)
            eventually(lambda: held in second.queues, "the last queue", lambda: second.queues)
    deliveries = [*first.messages, *second.messages]  # a queue only ever went from first to second
    check_received(deliveries, rows)
    for offsets in offsets_by_queue(deliveries).values():
        assert offsets == list(range(len(offsets)))


def test_a_broker_stops_and_starts_again(clusters: Sequence[Cluster]) -> None:
    """On all clusters at once: Apache's brokers take their time to stop."""
    side_by_side(partial(stop_and_start_again, cluster) for cluster in clusters)


def stop_and_start_again(cluster: Cluster) -> None:
    server, topic = cluster.name_server, cluster.new_topic("restarted", QUEUES, brokers=2)
    stopping = cluster.brokers[1]
    settings: dict[str, Any] = {
        "poll_name_server_interval_ms": SECOND,
        "persist_offset_interval_ms": SECOND,
    }
    with (
        PythonPushConsumer(server, topic, f"{topic}-push", **settings) as push,
        PythonPushConsumer(server, topic, f"{topic}-orderly", orderly=True, **settings) as orderly,
        PythonLitePullConsumer(server, topic, f"{topic}-lite-pull", **settings) as lite_pull,
    ):
        consumers = (push, orderly, lite_pull)
        rows = send_messages(server, topic, range(80))
        for consumer in consumers:
            wait_received(rows, consumer)
        stopping.stop()
        without = send_messages(server, topic, range(80, 160))
        assert {row.broker for row in without} == {"broker-a"}
        for consumer in consumers:
            wait_received(without, consumer)
        stopping.start()
        remoting.wait_at(server, stopping.address, topic)
        after = send_messages(server, topic, range(160, 240))
        assert {row.broker for row in after} == {"broker-a", "broker-b"}
        for consumer in consumers:
            wait_received(after, consumer)
    for consumer in consumers:
        check_content(consumer.messages)
        check_complete(consumer.messages, len(rows + without + after))


def check_complete(deliveries: Sequence[Received], count: int) -> None:
    """All came; what was consumed after offsets were last saved may have come again."""
    assert {row.key for row in deliveries} == {f"k{number}" for number in range(count)}
