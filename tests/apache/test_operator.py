"""What an operator does with Apache's own tools, on our broker, to Java's consumers and to ours."""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import EmbeddedBroker
from tests.apache.conftest import release_or_skip
from tests.apache.exchanges import send_messages, stored, wait_received
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_clients import JavaPushConsumer, Sent, body_of
from tests.apache.java_program import JavaProgram, options
from tests.apache.python_clients import PythonPushConsumer, new_producer, numbered
from tests.marked_program import ProgramError
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.broker.node import Node
    from tests.apache.exchanges import Consumer
    from tests.apache.jars import ApacheRelease
    from tests.apache.orbit import OrbitCluster

QUEUES = 2
BROKERS = ("broker-a", "broker-b")
COUNT = 12
JAVA_VERSIONS = {NEWEST: 513, OLDEST: 407}  # MQVersion

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]


class Admin(JavaProgram):
    """Apache's DefaultMQAdminExt; see java/Admin.java for its calls."""

    def __init__(self, release: ApacheRelease, name_server: str) -> None:
        super().__init__(release, "Admin", options({"nameServer": name_server}))
        self.release = release
        self._answers = 0

    def ask(self, *words: object) -> Any:
        """What a call returned; for one that was refused a ProgramError with code and text."""
        self.send_line(" ".join(map(str, words)))
        self._answers += 1

        def answers() -> list[Any]:
            return [mark for mark in self.marks if mark.kind in ("answer", "refused")]

        self.wait_until(lambda: len(answers()) == self._answers, f"the answer to {words}")
        kind, value = answers()[-1]
        if kind == "refused":
            raise ProgramError(f"{words[0]} is refused with code {value[0]}: {value[1]}")
        return value


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def admin(request: pytest.FixtureRequest, orbit_cluster: OrbitCluster) -> Iterator[Admin]:
    """The tools of 5.5 and of 4.9 in turn."""
    with Admin(release_or_skip(request.param), orbit_cluster.name_server) as program:
        yield program


def every_queue(topic: str, *values: object) -> list[list[Any]]:
    """A row for each queue, in order."""
    return [[topic, broker, queue, *values] for broker in BROKERS for queue in range(QUEUES)]


def test_what_an_operator_sees_and_does_of_javas_consumer(
    admin: Admin, orbit_cluster: OrbitCluster
) -> None:
    server, topic = orbit_cluster.name_server, orbit_cluster.new_topic("java", QUEUES, brokers=2)
    group = f"{topic}-watched"
    release = admin.release
    with JavaPushConsumer(release, server, topic, group) as consumer:
        client_id = consumer.wait_ready()
        kind = ["JAVA", JAVA_VERSIONS[release.version]]
        assert check_operated(admin, server, topic, group, consumer, kind) == client_id


@pytest.mark.parametrize("admin", [NEWEST], indirect=True)
def test_what_an_operator_sees_and_does_of_our_consumer(
    admin: Admin, orbit_cluster: OrbitCluster
) -> None:
    server, topic = orbit_cluster.name_server, orbit_cluster.new_topic("ours", QUEUES, brokers=2)
    group = f"{topic}-watched"
    with PythonPushConsumer(server, topic, group) as consumer:
        check_operated(admin, server, topic, group, consumer, ["PYTHON", 479])


def check_operated(
    admin: Admin,
    server: str,
    topic: str,
    group: str,
    consumer: Consumer,
    kind: list[object],
) -> str:
    """All that an operator can learn of a consumer and have it do; returns its client id.

    `kind` is the language and the version that it says it has.
    """
    with new_producer(f"{topic}-senders", server) as producer:
        results = [producer.send(numbered(topic, n)) for n in range(COUNT)]
        assert len(admin.ask("producers", f"{topic}-senders", topic)) == 1
    rows = [row for n, result in enumerate(results) for row in stored([f"k{n}"], result)]
    wait_received(rows, consumer)
    client_id = check_connection(admin, topic, group, kind)
    check_progress(admin, topic, group, rows)
    check_state(admin, topic, group, client_id)
    message_id = results[5].offset_message_id
    assert admin.ask("view", topic, message_id) == [topic, "k5", zlib.crc32(body_of("k5"))]
    assert admin.ask("track", topic, message_id) == [[group, "CONSUMED"]]
    # That message once more, while the operator waits.
    assert admin.ask("directly", group, client_id, topic, message_id)[:2] == ["CR_SUCCESS", False]
    eventually(lambda: consumer.count > COUNT, "the message consumed directly")
    assert [row.key for row in consumer.messages[COUNT:]] == ["k5"]
    # All messages once more.
    assert admin.ask("reset", topic, group, 0, "true") == every_queue(topic, 0)
    wait_again(consumer, rows, after=COUNT + 1)
    return client_id


def wait_again(consumer: Consumer, rows: Sequence[Sent], after: int) -> None:
    """Waits until all messages came once more, `after` so many deliveries."""
    eventually(
        lambda: consumer.count >= after + COUNT, "all messages again", lambda: consumer.count
    )
    again = [row.key for row in consumer.messages[after:]]
    assert sorted(again) == sorted(row.key for row in rows)


def check_connection(admin: Admin, topic: str, group: str, kind: list[object]) -> str:
    found = admin.ask("connections", group)
    client_id = str(found["clients"][0][0])
    assert found == {
        "type": "CONSUME_PASSIVELY",
        "model": "CLUSTERING",
        "from": "CONSUME_FROM_FIRST_OFFSET",
        "topics": sorted([topic, f"%RETRY%{group}"]),
        "clients": [[client_id, *kind]],
    }
    assert admin.ask("groups", topic) == [group]
    return client_id


def check_progress(admin: Admin, topic: str, group: str, rows: Sequence[Sent]) -> None:
    """The tool shows the end of each queue, and in time that all is consumed."""
    ends = Counter((row.broker, row.queue) for row in rows)

    stats: list[list[Any]] = []

    def consumed() -> bool:
        stats[:] = admin.ask("stats", group, topic)
        assert [row[:4] for row in stats] == [
            [topic, broker, queue, ends[broker, queue]] for _, broker, queue in every_queue(topic)
        ]
        assert all(bool(stored_ms) == bool(done) for *_, done, stored_ms in stats)
        return all(end == done for *_, end, done, _ in stats)

    eventually(consumed, "all messages to be consumed", lambda: stats)


def check_state(admin: Admin, topic: str, group: str, client_id: str) -> None:
    """What the consumer itself says, asked through the broker."""
    info = admin.ask("info", group, client_id, "false")
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info["topics"] == sorted([topic, f"%RETRY%{group}"])
    queues = sorted(row[:3] for row in info["queues"] if row[0] == topic)
    assert queues == every_queue(topic)
    assert topic in info["statuses"]
    assert info["stacks"] is None
    assert "#Consumer Subscription#" in info["formatted"]
    assert admin.ask("info", group, client_id, "true")["stacks"]
    status = admin.ask("status", topic, group)
    assert [row[0] for row in status[client_id]] == [topic] * len(every_queue(topic))


def test_a_group_that_is_away_is_moved_and_goes_on_there(
    admin: Admin, orbit_cluster: OrbitCluster
) -> None:
    server, topic = orbit_cluster.name_server, orbit_cluster.new_topic("away", QUEUES, brokers=2)
    group = f"{topic}-away"
    rows = send_messages(server, topic, range(COUNT))
    with PythonPushConsumer(server, topic, group) as consumer:
        wait_received(rows, consumer)
    ends = Counter((row.broker, row.queue) for row in rows)
    at_end = [[*row, ends[row[1], row[2]]] for row in every_queue(topic)]
    with pytest.raises(ProgramError, match="code 206"):
        admin.ask("connections", group)
    with pytest.raises(ProgramError, match="consumer nobody of group .* is not online"):
        admin.ask("info", group, "nobody", "false")
    assert admin.ask("clone", group, f"{group}-copy", topic)
    assert admin.ask("reset", topic, group, 0, "true") == every_queue(topic, 0)
    with PythonPushConsumer(server, topic, group) as consumer:
        wait_received(rows, consumer)
    assert admin.ask("reset", topic, group, -1, "true") == at_end
    with (
        PythonPushConsumer(server, topic, group) as consumer,
        PythonPushConsumer(server, topic, f"{group}-copy") as copy,
    ):
        more = send_messages(server, topic, range(COUNT, 2 * COUNT))
        for one in (consumer, copy):
            wait_received(more, one)
            assert one.count == COUNT
    # By offsets that the tool itself finds and commits, as before 3.0.7.
    old = admin.ask("resetOld", group, topic, 0, "true")
    assert sorted(row[-1] for row in old) == [0] * len(at_end)
    with PythonPushConsumer(server, topic, group) as consumer:
        wait_received([*rows, *more], consumer)


def test_consumers_reset_themselves_where_the_broker_does_not(apache: ApacheRelease) -> None:
    """As brokers of 4.9 have it done (220)."""
    with EmbeddedBroker(server_side_reset_offset=False) as broker, ExitStack() as opened:
        server, topic = broker.name_server, "told"
        rows = send_messages(server, topic, range(COUNT))
        admin = opened.enter_context(Admin(apache, server))
        java = opened.enter_context(JavaPushConsumer(apache, server, topic, "java"))
        ours = opened.enter_context(PythonPushConsumer(server, topic, "ours"))
        consumers: dict[str, Consumer] = {"java": java, "ours": ours}
        for group, consumer in consumers.items():
            wait_received(rows, consumer)
            broker.call(partial(commit_all, group=group, rows=rows))
            queues = admin.ask("reset", topic, group, 0, "true")
            assert [row[1:] for row in queues] == [["broker-a", n, 0] for n in range(len(queues))]
        for consumer in consumers.values():
            wait_again(consumer, rows, after=COUNT)
        with pytest.raises(ProgramError, match=r"code 1: consumer group nobody has no offset"):
            admin.ask("reset", topic, "nobody", 0, "true")


def commit_all(node: Node, group: str, rows: Sequence[Sent]) -> None:
    """What the consumer commits in some seconds: without it there is nothing to reset."""
    ends = Counter(row.queue for row in rows)
    for queue_id in range(node.broker.topics.topics["told"].write_queue_nums):
        node.broker.offsets.commit(group, "told", queue_id, ends[queue_id])
