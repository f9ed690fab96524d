"""``orbitmq broker --workers N``: several brokers with one command, as a user runs them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from orbitmq import Admin, LitePullConsumer, Message, MessageView, Producer, PushConsumer
from orbitmq.errors import OrbitMQError
from tests.cli.test_broker import Started, exchange, failure, started, stopped
from tests.net.certificates import Certificates
from tests.patience import eventually

FREE_PORTS = ["--port", "0", "--name-server-port", "0"]
FIRST = "CONSUME_FROM_FIRST_OFFSET"
NAMES = {"broker-a-0", "broker-a-1"}
COUNT = 32


def store(tmp_path: Path) -> list[str]:
    return ["--store", str(tmp_path / "store")]


def addresses(broker: Started) -> list[str]:
    return broker.address.split(";")


def worker_pids(broker: Started) -> list[int]:
    """The processes of its workers, in the order they were started."""
    pid = broker.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]


def send_to_all(broker: Started) -> set[bytes]:
    """Messages in all queues of all workers; their bodies."""
    bodies = {b"%d" % number for number in range(COUNT)}
    with Producer("makers", name_server=broker.name_server) as producer:
        sent = [producer.send(Message("shared", body)) for body in sorted(bodies)]
        assert {result.message_queue.broker_name for result in sent} == NAMES
    return bodies


def registered(broker: Started) -> set[str]:
    """The brokers that a client finds now."""
    with Producer("lookers", name_server=broker.name_server) as producer:
        return {queue.broker_name for queue in producer.publish_queues("shared")}


def received(broker: Started, group: str) -> set[bytes]:
    """All that a new group gets once it has as much as was sent."""
    bodies: set[bytes] = set()
    with LitePullConsumer(
        group, name_server=broker.name_server, consume_from_where=FIRST
    ) as consumer:
        consumer.subscribe("shared")

        def poll() -> bool:
            bodies.update(bytes(message.body) for message in consumer.poll(0.05))
            return len(bodies) >= COUNT

        eventually(poll, "what was sent")
    return bodies


def test_clients_balance_over_all_workers(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("defaultTopicQueueNums=2\n")
    with started("--workers", "2", "-c", str(conf), *store(tmp_path)) as broker:
        sent = send_to_all(broker)
        got: dict[bytes, str] = {}

        def take(messages: Sequence[MessageView]) -> None:
            got.update(
                (bytes(message.body), message.message_queue.broker_name) for message in messages
            )

        consumer = PushConsumer(
            "takers", take, name_server=broker.name_server, consume_from_where=FIRST
        )
        consumer.subscribe("shared")
        with consumer, Producer("askers", name_server=broker.name_server) as producer:
            eventually(lambda: len(got) == COUNT, "what was sent")
            queues = producer.publish_queues("shared")
        assert (set(got), set(got.values())) == (sent, NAMES)
        assert sorted(queue.queue_id for queue in queues) == [0, 0, 1, 1]
        assert stopped(broker, signal.SIGTERM) == (0, "", "")
    assert {path.name for path in broker.store.iterdir()} == NAMES


def test_what_was_stored_is_served_by_fewer_workers_too(tmp_path: Path) -> None:
    with started("--workers", "2", *store(tmp_path)) as broker:
        sent = send_to_all(broker)
        assert stopped(broker, signal.SIGINT) == (0, "", "")
    with started("--workers", "1", *store(tmp_path)) as broker:
        assert len(worker_pids(broker)) == 1
        assert len(addresses(broker)) == 2
        assert received(broker, "first") == sent
    with started("--workers", "3", *store(tmp_path)) as broker:
        assert len(worker_pids(broker)) == len(addresses(broker)) == 3
        assert received(broker, "second") == sent


def test_a_worker_that_dies_is_started_again_where_it_was(tmp_path: Path) -> None:
    with started("--workers", "2", *store(tmp_path)) as broker:
        sent = send_to_all(broker)
        before = worker_pids(broker)
        os.kill(before[0], signal.SIGKILL)
        assert exchange(addresses(broker)[1], b"meanwhile") == [b"meanwhile"]

        def serves() -> bool:
            try:
                return exchange(addresses(broker)[0], b"again")[-1] == b"again"
            except (OSError, OrbitMQError):
                return False

        eventually(serves, "the worker to serve again")
        eventually(lambda: registered(broker) == NAMES, "the worker to be in the routes again")
        assert len(set(worker_pids(broker)) - set(before)) == 1
        assert received(broker, "takers") == sent
        code, _, errors = stopped(broker, signal.SIGTERM)
    assert code == 0
    assert re.search(r"worker broker-a-0: its process was killed by signal 9; .*again", errors)
    assert "worker broker-a-0 serves again" in errors


def test_workers_stop_in_order_when_who_started_them_is_killed(tmp_path: Path) -> None:
    with started("--workers", "2", *store(tmp_path)) as broker:
        in_use = [broker.store / name / "abort" for name in NAMES]
        assert all(path.exists() for path in in_use)
        broker.process.kill()
        broker.process.communicate()  # ends when nobody has its stderr any more
        assert not any(path.exists() for path in in_use)


def test_workers_that_take_tls_only(tmp_path: Path, certificates: Certificates) -> None:
    options = ["--tls-cert", certificates.cert, "--tls-key", certificates.key]
    options += ["--tls-mode", "enforcing", "--workers", "2"]
    with (
        started(*options) as broker,
        Producer("g", name_server=broker.name_server, use_tls=True) as producer,
    ):
        names = {queue.broker_name for queue in producer.publish_queues("TBW102")}
        assert names == NAMES


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    assert "workers=0 is not allowed: 1 to 256" in failure("--workers", "0")
    line = failure("--workers", "2", "--port", "9866")
    assert "the name server and broker-a-1 would both listen on 9876" in line
    with started(*store(tmp_path)) as broker:
        exchange(broker.address, b"one")
        line = failure("--workers", "2", *FREE_PORTS, *store(tmp_path))
        assert "is the store of a single broker" in line
        directory = broker.store.rename(tmp_path / "broker-a-0")
    line = failure(*FREE_PORTS, "--store", str(tmp_path))
    assert "the stores of 1 workers are in it (broker-a-0)" in line
    line = failure("--workers", "1", "--broker-name", "b", *FREE_PORTS, "--store", str(tmp_path))
    assert f"{directory} has messages of another broker: give the name 'broker-a'" in line


def test_a_worker_that_cannot_start_stops_all(tmp_path: Path) -> None:
    with started("--workers", "2", *store(tmp_path)) as broker:
        line = failure("--workers", "2", *FREE_PORTS, *store(tmp_path))
        assert re.search(r"worker broker-a-\d does not start: .* is used by another broker", line)
        assert stopped(broker, signal.SIGTERM) == (0, "", "")


def test_operators_reach_all_workers(tmp_path: Path) -> None:
    options = ["--workers", "2", *store(tmp_path)]
    with started(*options) as broker, Admin(name_server=broker.name_server) as admin:
        assert sorted(admin.create_topic("made", 1)) == sorted(addresses(broker))
        admin.update_broker_config({"fileReservedTime": 48}, broker="broker-a-1")
        kept = [broker.store / name / "config" / "orbitmq.properties" for name in sorted(NAMES)]
        assert [path.exists() for path in kept] == [False, True]
        assert stopped(broker, signal.SIGTERM) == (0, "", "")
    with started(*options) as broker, Admin(name_server=broker.name_server) as admin:
        assert admin.broker_config("broker-a-0")["fileReservedTime"] == "72"
        assert admin.broker_config("broker-a-1")["fileReservedTime"] == "48"
        route = admin.topic_route("made")
        assert {data.broker_name for data in route.broker_datas} == NAMES
