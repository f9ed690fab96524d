"""The pull consumer and its schedule service, on our brokers and Apache's 4.9.7 and 5.5.0 alike."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import (
    Message,
    MessageQueue,
    MessageSelector,
    PullConsumer,
    PullConsumerScheduleService,
    PullResult,
    PullStatus,
    PullTaskContext,
    RequestTimeoutError,
)
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_clients import JavaConsumer
from tests.apache.java_program import options
from tests.apache.python_clients import PATIENT, new_producer
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.apache.jars import ApacheRelease
    from tests.apache.orbit import Cluster, OrbitCluster

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def send(cluster: Cluster, queue: MessageQueue, numbers: range) -> None:
    with new_producer(f"{queue.topic}-senders", cluster.name_server) as producer:
        for number in numbers:
            tag = "even" if number % 2 == 0 else "odd"
            message = Message(queue.topic, b"%d" % number, tags=tag)
            message.properties = {"number": str(number)}
            producer.send(message, queue=queue)


def bodies(result: PullResult) -> list[int]:
    return [int(message.body) for message in result.messages]


def pull_held(consumer: PullConsumer, queue: MessageQueue, offset: int) -> PullResult:
    """A pull that the broker may hold; once more where it forgot it, as 5.5.0 does at times."""
    try:
        return consumer.pull_block_if_not_found(queue, "*", offset, 32)
    except RequestTimeoutError:
        return consumer.pull_block_if_not_found(queue, "*", offset, 32)


def test_every_kind_of_pull_and_its_offsets(cluster: Cluster) -> None:
    topic = cluster.new_topic("pulled", 2, brokers=2)
    group = f"{topic}-readers"
    queue, empty = (MessageQueue(topic, "broker-b", number) for number in range(2))
    send(cluster, queue, range(10))
    settings: dict[str, Any] = {"topics": topic, "name_server": cluster.name_server, **PATIENT}
    settings["consumer_pull_timeout_ms"] = 60_000
    with PullConsumer(group, broker_suspend_max_time_ms=1_000, **settings) as consumer:
        queues = consumer.fetch_subscribe_message_queues(topic)
        assert len(queues) == 4
        eventually(
            lambda: consumer.fetch_message_queues_in_balance(topic) == queues, f"all of {queues}"
        )

        # Apache's brokers build the consume queue a moment after they stored a message.
        eventually(lambda: consumer.max_offset(queue) == 10, "ten messages")
        assert consumer.min_offset(queue) == 0
        assert consumer.search_offset(queue, 0) == 0
        assert consumer.earliest_message_store_time(queue) > 0

        found = consumer.pull(queue, "*", 2, 5)
        assert (found[:4], bodies(found)) == ((PullStatus.FOUND, 7, 0, 10), [2, 3, 4, 5, 6])
        assert found.messages[0].message_queue == queue
        assert bodies(consumer.pull(queue, "odd", 0, 32)) == [1, 3, 5, 7, 9]
        by_sql = MessageSelector.by_sql("number BETWEEN 3 AND 5")
        assert bodies(consumer.pull(queue, by_sql, 0, 32)) == [3, 4, 5]
        assert bodies(consumer.pull_async(queue, "*", 8, 32).result(PATIENCE_SECONDS)) == [8, 9]

        assert consumer.pull(queue, "*", 10, 32)[:2] == (PullStatus.NO_NEW_MESSAGE, 10)
        assert consumer.pull(queue, "none", 0, 32)[:2] == (PullStatus.NO_MATCHED_MESSAGE, 10)
        assert consumer.pull(queue, "*", 20, 32)[:2] == (PullStatus.OFFSET_ILLEGAL, 10)
        assert pull_held(consumer, queue, 10).status is PullStatus.NO_NEW_MESSAGE

        waiting = consumer.pull_async(queue, "*", 10, 32, block_if_not_found=True)
        send(cluster, queue, range(10, 11))
        with suppress(RequestTimeoutError):
            told = waiting.result(PATIENCE_SECONDS)
            assert told.status in {PullStatus.FOUND, PullStatus.NO_NEW_MESSAGE}
        eventually(lambda: bodies(consumer.pull(queue, "*", 10, 32)) == [10], "one message more")

        (first, *_) = found.messages
        consumer.send_message_back(first, 1)
        consumer.update_consume_offset(queue, 7)
        consumer.persist(queue)
        assert consumer.fetch_consume_offset(queue, from_store=True) == 7
        consumer.update_consume_offset(empty, 0)
        consumer.update_consume_offset(queue, 9)

        (retries, *_) = consumer.fetch_subscribe_message_queues(f"%RETRY%{group}")
        retries = retries._replace(broker_name="broker-b")
        eventually(lambda: consumer.max_offset(retries) == 1, "the message that was sent back")
        (again,) = consumer.pull(retries, "*", 0, 32).messages
        assert (again.body, again.reconsume_times) == (b"2", 1)
    with PullConsumer(group, **settings) as consumer:
        assert consumer.fetch_consume_offset(queue) == 9


def test_scheduled_pulls_consume_everything_once_and_hand_over(cluster: Cluster) -> None:
    topic = cluster.new_topic("scheduled", 4)
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    seen: list[int] = []
    lock = threading.Lock()

    def work(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        consumer = context.pull_consumer
        offset = max(0, consumer.fetch_consume_offset(queue))
        result = consumer.pull(queue, "*", offset, 8)
        with lock:
            seen.extend(bodies(result))
        consumer.update_consume_offset(queue, result.next_begin_offset)
        context.pull_next_delay_ms = 20

    def service() -> PullConsumerScheduleService:
        made = PullConsumerScheduleService(
            f"{topic}-readers",
            name_server=cluster.name_server,
            # On a busy machine the one who gives a queue up takes its time.
            handover_delay_ms=5_000,
            **PATIENT,
        )
        made.register_pull_task_callback(topic, work)
        return made

    def count(member: PullConsumerScheduleService) -> int:
        return len(member.pull_consumer.fetch_message_queues_in_balance(topic))

    for queue in queues:
        send(cluster, queue, range(queue.queue_id * 100, queue.queue_id * 100 + 20))
    with service() as first:
        eventually(lambda: len(seen) == 80, "80 messages", lambda: sorted(seen))
        with service() as second:
            eventually(lambda: count(first) == count(second) == 2, "two queues each")
            for queue in queues:
                send(cluster, queue, range(queue.queue_id * 100 + 20, queue.queue_id * 100 + 40))
            eventually(lambda: len(seen) == 160, "160 messages", lambda: sorted(seen))
        eventually(lambda: count(first) == 4, "all queues again")
        send(cluster, queues[3], range(340, 350))
        eventually(lambda: len(seen) == 170, "170 messages", lambda: sorted(seen))
    numbers = [range(number * 100, number * 100 + 40) for number in range(4)]
    assert sorted(seen) == [*(n for numbers_ in numbers for n in numbers_), *range(340, 350)]


class JavaPullSchedule(JavaConsumer):
    """Apache's MQPullConsumerScheduleService."""

    def __init__(self, release: ApacheRelease, name_server: str, topic: str, group: str) -> None:
        values = {"nameServer": name_server, "topic": topic, "group": group}
        super().__init__(release, "PullSchedule", options(values))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_java_s_service_and_ours_share_a_group_on_our_broker(
    orbit_cluster: OrbitCluster, version: str
) -> None:
    server, topic = orbit_cluster.name_server, orbit_cluster.new_topic("shared", 4)
    group = f"{topic}-readers"
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    called: set[MessageQueue] = set()
    ours: list[tuple[int, int]] = []

    def numbers(rows: Sequence[tuple[int, int]], first: int) -> list[tuple[int, int]]:
        return sorted(row for row in rows if row[1] >= first)

    def work(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        called.add(queue)
        consumer = context.pull_consumer
        result = consumer.pull(queue, "*", max(0, consumer.fetch_consume_offset(queue)), 8)
        ours.extend((message.queue_id, message.queue_offset) for message in result.messages)
        consumer.update_consume_offset(queue, result.next_begin_offset)
        context.pull_next_delay_ms = 20

    def send_ten() -> None:
        for queue in queues:
            send(orbit_cluster, queue, range(10))

    # Java's client of 5.x balances once a second at most, and gives a queue up only then. On a busy
    # machine even later, and then what it had consumed of it comes again.
    service = PullConsumerScheduleService(
        group, name_server=server, handover_delay_ms=2_000, **PATIENT
    )
    service.register_pull_task_callback(topic, work)
    send_ten()
    with JavaPullSchedule(release_or_skip(version), server, topic, group) as java:
        assert java.wait_for("statuses") == [
            "NO_NEW_MSG 0",
            "NO_MATCHED_MSG 0",
            "OFFSET_ILLEGAL 0",
        ]
        java.wait_count(40)
        with service:
            in_balance = service.pull_consumer.fetch_message_queues_in_balance
            eventually(
                lambda: len(called) == len(java.queues) == 2,
                "two queues each",
                lambda: f"{called} and {java.queues}",
            )
            send_ten()
            eventually(lambda: len(numbers(ours, 10)) == 20, "20 messages", lambda: sorted(ours))
            java.wait_count(60)
            java.stop()
            eventually(lambda: in_balance(topic) == queues, "all queues", lambda: in_balance(topic))
            send_ten()
            eventually(lambda: len(numbers(ours, 20)) == 40, "40 messages", lambda: sorted(ours))
    both = [*((message.queue, message.offset) for message in java.messages), *ours]
    assert set(both) == {(queue, offset) for queue in range(4) for offset in range(30)}
    assert numbers(both, 10) == sorted({row for row in both if row[1] >= 10})
