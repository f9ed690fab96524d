"""Java's consumers and ours in one group, on each broker: they share, leave, die and take over."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.conftest import release_or_skip
from tests.apache.exchanges import (
    check_content,
    check_received,
    offsets_by_queue,
    send_all,
    wait_received,
    wait_shared,
)
from tests.apache.group_state import describe_group
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_clients import JavaConsumer, JavaLitePullConsumer, JavaPushConsumer, Sent
from tests.apache.python_clients import new_producer
from tests.consumer_program import ConsumerMarks, ConsumerProgram

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from tests.apache.orbit import Cluster

QUEUES = 8  # four at each of two brokers
PHASE = 200

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


class Group:
    """A group's members, past ones too, and what was sent to it."""

    def __init__(self, cluster: Cluster, mode: str, opened: ExitStack) -> None:
        self.cluster = cluster
        self.mode = mode
        self.topic = cluster.new_topic(f"mixed-{mode}", QUEUES // 2, brokers=2)
        self.name = f"{self.topic}-group"
        self.rows: list[Sent] = []
        self.everyone: list[ConsumerMarks] = []
        self.members: list[ConsumerMarks] = []
        self._opened = opened
        self._numbers = itertools.count()
        self._producer = opened.enter_context(
            new_producer(f"{self.topic}-senders", cluster.name_server)
        )

    def join_java(self, version: str) -> JavaConsumer:
        """Starts one of Apache's consumers."""
        release, server = release_or_skip(version), self.cluster.name_server
        consumer: JavaConsumer
        if self.mode == "lite-pull":
            consumer = JavaLitePullConsumer(release, server, self.topic, self.name, report="each")
        else:
            orderly = self.mode == "orderly"
            consumer = JavaPushConsumer(
                release, server, self.topic, self.name, orderly=orderly, report="each"
            )
        self._join(consumer)
        return consumer

    def join_python(self) -> ConsumerProgram:
        """Starts one of ours."""
        program = ConsumerProgram(self.cluster.name_server, self.topic, self.name, self.mode)
        self._join(program)
        return program

    def _join(self, member: ConsumerMarks) -> None:
        self.members.append(self._opened.enter_context(member))
        self.everyone.append(member)

    def leave(self, member: ConsumerMarks) -> None:
        """Has a member leave in order, with messages on their way to it."""
        with self._under_way(member):
            member.stop()

    def die(self, *members: ConsumerMarks) -> None:
        """Kills members, with messages on their way to them."""
        for member in members:
            with self._under_way(member):
                member.kill()

    @contextmanager
    def _under_way(self, member: ConsumerMarks) -> Iterator[None]:
        self.members.remove(member)
        seen = member.count
        self.rows += self.send()
        member.wait_count(seen + 1)
        yield
        self.rows += self.send()

    def send(self) -> list[Sent]:
        """Sends to all queues."""
        return send_all(self._producer, self.topic, itertools.islice(self._numbers, PHASE))

    def describe(self) -> str:
        """What the members and the brokers say of the group."""
        return describe_group(self.cluster, self.topic, self.name, QUEUES // 2, self.everyone)

    def check_shared(self) -> None:
        """Waits until the members share the queues; nothing is lost by then or comes twice after.

        What was consumed just before queues changed hands may come again.
        """
        wait_shared(QUEUES, *self.members, saw=self.describe)
        wait_received(self.rows, *self.everyone)
        rows = self.send()
        wait_received(rows, *self.members)
        keys = {row.key for row in rows}
        deliveries = []
        for member in self.members:
            new = [row for row in member.messages if row.key in keys]
            assert offsets_by_queue(new).keys() == member.queues
            deliveries += new
        check_received(deliveries, rows)
        check_content(deliveries)
        if self.mode == "orderly":
            for offsets in offsets_by_queue(deliveries).values():
                assert offsets == sorted(offsets)
        self.rows += rows


def newest_for(cluster: Cluster, mode: str) -> str:
    """The Java version to set beside 4.9.7: Java's own 5.x lite pull is lost with an old broker."""
    old = isinstance(cluster, ApacheCluster) and cluster.release.version == OLDEST
    return OLDEST if mode == "lite-pull" and old else NEWEST


@pytest.fixture(scope="module")
def hand_overs(
    orbit_cluster: Cluster, old_apache_cluster: Cluster, apache_cluster: Cluster
) -> Iterator[list[Future[None]]]:
    """What waits most: brokers keep the locks of the dead for 60 s. It goes on beside the tests."""
    with ThreadPoolExecutor(6) as threads:
        yield [
            threads.submit(scenario, cluster)
            for scenario in (orderly_members_die, orderly_members_leave)
            for cluster in (orbit_cluster, old_apache_cluster, apache_cluster)
        ]


@pytest.mark.usefixtures("hand_overs")
@pytest.mark.parametrize("mode", ["concurrent", "lite-pull"])
def test_who_leaves_or_dies_is_replaced(cluster: Cluster, mode: str) -> None:
    with ExitStack() as opened:
        group = Group(cluster, mode, opened)
        old_java = group.join_java(OLDEST)
        new_java = group.join_java(newest_for(cluster, mode))
        first, second = group.join_python(), group.join_python()
        group.check_shared()
        group.leave(first)
        group.check_shared()
        group.die(new_java)
        group.check_shared()
        group.die(second)
        group.check_shared()
        group.join_python()
        group.check_shared()
        group.leave(old_java)
        group.check_shared()


@pytest.mark.slow
def test_orderly_groups_hand_over(hand_overs: list[Future[None]]) -> None:
    """On all clusters at the same time."""
    for ended in hand_overs:
        ended.result()


def orderly_members_die(cluster: Cluster) -> None:
    with ExitStack() as opened:
        group = Group(cluster, "orderly", opened)
        group.join_java(OLDEST)
        group.join_python()
        dying = group.join_java(NEWEST), group.join_python()
        group.check_shared()
        group.die(*dying)
        group.check_shared()


def orderly_members_leave(cluster: Cluster) -> None:
    with ExitStack() as opened:
        group = Group(cluster, "orderly", opened)
        old_java, new_java = group.join_java(OLDEST), group.join_java(NEWEST)
        first = group.join_python()
        group.check_shared()
        group.leave(first)
        group.check_shared()
        group.join_python()
        group.check_shared()
        group.leave(old_java)
        group.leave(new_java)
        group.check_shared()
