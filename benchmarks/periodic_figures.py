"""What a broker and its name server spend on what clients send every few seconds.

1,000 consumers in groups of two share 10,000 topics of four queues, so that each queue is consumed.
As Java's clients do, each sends a heartbeat every 30 s and the offset of each of its 40 queues
every 5 s, one-way. And for each of its 21 topics (its retry topic is one), one after the other, it
asks the broker for its group's members every 20 s, and the name server for the route every 30 s.
Each request's cost is measured alone, then all of them at their pace. Costs are of the processor,
the kernel's part included.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.brokers import orbitmq_broker
from benchmarks.load import create_topic
from benchmarks.results import Result
from benchmarks.topics import write_topics
from orbitmq.codes import RequestCode
from orbitmq.names import retry_topic
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from orbitmq.wire.command import encode_request
from orbitmq.wire.headers import (
    ConsumerGroupRequestHeader,
    GetRouteInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

CLIENTS = 1_000
MEMBERS = 2
TOPICS = 10_000
QUEUES = 4
TOPICS_OF_A_GROUP = TOPICS * MEMBERS // CLIENTS
SETTLE_SECONDS = 3.0
NEW_TOPICS = 100
RECEIVE = 1 << 16


class Consumer:
    """One simulated client: a connection to the broker, one to the name server, and its frames."""

    def __init__(self, number: int, broker: str, name_server: str) -> None:
        group_number, member = divmod(number, MEMBERS)
        self._group = f"group-{group_number:03}"
        first = group_number * TOPICS_OF_A_GROUP
        own = [f"topic-{first + index}" for index in range(TOPICS_OF_A_GROUP)]
        self._own = own
        self._member = member
        self.topics = [*own, retry_topic(self._group)]
        self.broker, self.name_server = _connected(broker), _connected(name_server)
        self.heartbeat = encode_request(RequestCode.HEART_BEAT, 1, None, self._heartbeat(number))
        members = ConsumerGroupRequestHeader(consumer_group=self._group)
        self.members = encode_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 2, members)
        self.routes = [
            encode_request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, 3, GetRouteInfoRequestHeader(topic=topic)
            )
            for topic in self.topics
        ]

    def _heartbeat(self, number: int) -> bytes:
        subscriptions = [
            SubscriptionData(topic, "*", sub_version=1_700_000_000_000) for topic in self.topics
        ]
        return HeartbeatData(
            f"127.0.0.1@{number}",
            [ProducerData("CLIENT_INNER_PRODUCER")],
            [ConsumerData(self._group, subscription_data_set=subscriptions)],
        ).encode()

    def queues(self) -> Iterator[tuple[str, int]]:
        """Its share of the group's queues."""
        for topic in self._own:
            for queue_id in range(self._member, QUEUES, MEMBERS):
                yield topic, queue_id

    def commits(self, offset: int) -> bytes:
        """One-way requests that commit all its queues."""
        return b"".join(
            encode_request(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                4,
                UpdateConsumerOffsetRequestHeader(
                    consumer_group=self._group,
                    topic=topic,
                    queue_id=queue_id,
                    commit_offset=offset,
                ),
                oneway=True,
            )
            for topic, queue_id in self.queues()
        )

    def query(self) -> bytes:
        """A request for the offset of one of its queues."""
        topic, queue_id = next(self.queues())
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=topic, queue_id=queue_id
        )
        return encode_request(RequestCode.QUERY_CONSUMER_OFFSET, 5, header)


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of request: every so many seconds a client sends ``of_each``, in one round."""

    name: str
    seconds: float
    of_each: int
    round: Callable[[Consumer, int], None]


def _commit_all(consumer: Consumer, turn: int) -> None:
    consumer.broker.sendall(consumer.commits(turn))


def _beat(consumer: Consumer, _turn: int) -> None:
    _ask(consumer.broker, consumer.heartbeat)


def _list_members(consumer: Consumer, _turn: int) -> None:
    for _ in consumer.topics:
        _ask(consumer.broker, consumer.members)


def _fetch_routes(consumer: Consumer, _turn: int) -> None:
    for route in consumer.routes:
        _ask(consumer.name_server, route)


def _query_offset(consumer: Consumer, _turn: int) -> None:
    _ask(consumer.broker, consumer.query())


EACH = TOPICS_OF_A_GROUP + 1
OFFSETS = Kind("committed offset", 5, TOPICS_OF_A_GROUP * QUEUES // MEMBERS, _commit_all)
HEARTBEATS = Kind("heartbeat", 30, 1, _beat)
LISTS = Kind("list of members", 20, EACH, _list_members)
ROUTES = Kind("route", 30, EACH, _fetch_routes)
QUERIES = Kind("asked offset", 0, 1, _query_offset)
PERIODIC = (HEARTBEATS, OFFSETS, LISTS, ROUTES)


def periodic_figures(seconds: float) -> Iterator[Result]:
    """Microseconds a request, then the share of a processor that all of them take."""
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-bench-")))
        write_topics(store, TOPICS)
        name_server = stack.enter_context(orbitmq_broker("async"))
        broker, pid = stack.enter_context(_broker_under(name_server.name_server, store))
        consumers = [Consumer(number, broker, name_server.name_server) for number in range(CLIENTS)]
        (name_server_pid,) = name_server.pids
        for _ in range(2):  # the groups are complete, and their retry topics known
            for consumer in consumers:
                _beat(consumer, 0)
        time.sleep(SETTLE_SECONDS)
        _drain(consumers)
        for kind in (*PERIODIC, QUERIES):
            spender = name_server_pid if kind is ROUTES else pid
            cost = min(_cost(spender, kind, consumers) for _ in range(3))
            yield Result(f"{kind.name}, {CLIENTS:,} clients", "us", cost * 1e6)
        yield from _cost_of_new_topics(broker, pid, name_server_pid)
        before = _spent(pid), _spent(name_server_pid)
        _run(consumers, seconds)
        for name, process, spent in (
            ("broker", pid, before[0]),
            ("name server", name_server_pid, before[1]),
        ):
            share = (_spent(process) - spent) / seconds
            yield Result(
                f"{name}, {CLIENTS:,} clients, {TOPICS:,} topics", "% of core", share * 100, aim=5
            )


@contextmanager
def _broker_under(name_server: str, store: Path) -> Iterator[tuple[str, int]]:
    """The address and process of a second broker, which has no name server beside it."""
    command = [sys.executable, "-m", "orbitmq.cli", "broker", "--port", "0", "--store", str(store)]
    process = subprocess.Popen(
        [*command, "--name-server", name_server, "--broker-name", "broker-b"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        yield words["broker"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def _cost(pid: int, kind: Kind, consumers: list[Consumer]) -> float:
    """Seconds of the processor a request, each client sending its round in turn."""
    before = _spent(pid)
    for turn, consumer in enumerate(consumers, _increasing()):
        kind.round(consumer, turn)
    if kind is OFFSETS:  # one-way: when they are done an answer behind them tells
        _ask(consumers[-1].broker, consumers[-1].members)
    return (_spent(pid) - before) / (len(consumers) * kind.of_each)


def _cost_of_new_topics(broker: str, pid: int, name_server_pid: int) -> Iterator[Result]:
    before = _spent(pid), _spent(name_server_pid)
    for number in range(NEW_TOPICS):
        create_topic(broker, f"new-{number}", QUEUES)
    time.sleep(0.5)
    for name, spent in (
        ("broker", _spent(pid) - before[0]),
        ("name server", _spent(name_server_pid) - before[1]),
    ):
        cost = spent / NEW_TOPICS * 1e6
        yield Result(f"one more of {TOPICS:,} topics, {name}", "us", cost)


def _run(consumers: list[Consumer], seconds: float) -> None:
    """Send what all clients send, at its pace."""
    done = dict.fromkeys(PERIODIC, 0)
    offset = _increasing()
    began = time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        for kind in PERIODIC:
            while done[kind] < passed * CLIENTS / kind.seconds:
                number = done[kind]
                kind.round(consumers[number % CLIENTS], offset + number)
                done[kind] = number + 1
        time.sleep(0.001)


def _increasing() -> int:
    """An offset beyond all before."""
    return time.monotonic_ns() // 1000


def _ask(sock: socket.socket, frame: bytes) -> None:
    """Send one request, and wait for the answer."""
    sock.sendall(frame)
    _receive(sock)


def _drain(consumers: list[Consumer]) -> None:
    """Read the notices of groups that changed."""
    for consumer in consumers:
        consumer.broker.setblocking(False)
        with suppress(BlockingIOError):
            _receive(consumer.broker)
        consumer.broker.setblocking(True)


def _receive(sock: socket.socket) -> None:
    if not sock.recv(RECEIVE):
        raise ConnectionError("a server closed a connection")


def _connected(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _spent(pid: int) -> float:
    """Seconds of the processor that all threads of a process have taken."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
