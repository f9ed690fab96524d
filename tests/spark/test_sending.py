"""Every message is acknowledged; a key's messages keep their order; what fails is sent again."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest

from orbitmq import codes
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    ConnectError,
    MessageIllegalError,
    NetworkError,
    RowError,
    SystemBusyError,
)
from orbitmq.net.connection import Connection
from orbitmq.spark.patience import REFUSALS
from orbitmq.spark.sink import lanes, publishing, sending
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.sink.writer import send_batches
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import SendMessageRequestHeaderV2
from orbitmq.wire.ids import java_hash
from orbitmq.wire.record import decode_batch
from tests.spark.fake_cluster import answer, cluster
from tests.spark.topics import stored


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


def send(name_server: str, topic: str, messages: list[Outgoing], wait_ms: int = 120_000) -> None:
    sender = Sender((name_server,), "tests", broker_wait_ms=wait_ms)
    with closing(sender):
        for message in messages:
            sender.add(topic, message)
        sender.finish()


def test_messages_reach_a_topic_that_is_made_for_them(broker: EmbeddedBroker) -> None:
    count = 3 * lanes.BATCH_MESSAGES + 7
    send(broker.name_server, "many", [Outgoing(b"%d" % n, b"") for n in range(count)])
    found = stored(broker, "many")
    assert len(found) == publishing.NEW_TOPIC_QUEUES
    bodies = Counter(int(view.body) for views in found.values() for view in views)
    assert bodies == Counter(range(count))


def test_a_sharding_key_has_one_queue_and_keeps_its_order(broker: EmbeddedBroker) -> None:
    messages = [
        Outgoing(b"%d" % n, b"", None if n % 5 == 0 else f"key{n % 40}") for n in range(6000)
    ]
    send(broker.name_server, "ordered", messages)
    last: dict[str, tuple[int, int]] = {}
    for queue_id, views in stored(broker, "ordered").items():
        for view in views:
            number = int(view.body)
            if number % 5:
                key = f"key{number % 40}"
                assert queue_id == abs(java_hash(key)) % 4
                assert number > last.get(key, (0, 0))[0]
                last[key] = number, queue_id
    assert len(last) == 32


def test_a_message_that_may_not_travel_in_a_batch_goes_alone() -> None:
    requests: list[tuple[int, int]] = []

    def take(command: RemotingCommand, connection: Connection) -> None:
        count = 1
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            count = len(decode_batch(command.body))
        requests.append((command.code, count))
        answer(command, connection)

    with cluster(take, queues=1) as address:
        messages = [Outgoing(b"a", b"", None, batchable=n not in (2, 3)) for n in range(6)]
        send(address, "T", messages)
    batch, single = RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2
    assert requests == [(batch, 2), (single, 1), (single, 1), (batch, 2)]


def test_one_batch_of_a_queue_is_under_way_at_a_time() -> None:
    under_way: Counter[int] = Counter()
    held: list[tuple[RemotingCommand, Connection]] = []
    most = most_of_a_queue = 0

    def take(command: RemotingCommand, connection: Connection) -> None:
        nonlocal most, most_of_a_queue
        queue_id = command.header(SendMessageRequestHeaderV2).queue_id
        under_way[queue_id] += 1
        most_of_a_queue = max(most_of_a_queue, under_way[queue_id])
        held.append((command, connection))
        most = max(most, len(held))
        if len(held) == 2 or len(done) > 4:
            while held:
                waiting, to = held.pop()
                under_way[waiting.header(SendMessageRequestHeaderV2).queue_id] -= 1
                done.append(waiting)
                answer(waiting, to)

    done: list[RemotingCommand] = []
    with cluster(take, queues=2) as address:
        send(address, "T", [Outgoing(b"a", b"")] * (6 * lanes.BATCH_MESSAGES))
    assert (most, most_of_a_queue) == (2, 1)
    assert len(done) == 6


def test_what_a_broker_cannot_take_now_is_sent_again_to_another() -> None:
    seen: list[str | None] = []

    def take(command: RemotingCommand, connection: Connection) -> None:
        seen.append(command.header(SendMessageRequestHeaderV2).bname)
        answer(command, connection, codes.SYSTEM_BUSY if len(seen) == 1 else codes.SUCCESS)

    with cluster(take, brokers=2) as address:
        send(address, "T", [Outgoing(b"a", b"")])
    assert len(set(seen)) == len(seen) == 2


def test_a_keyed_message_is_sent_again_to_its_own_queue() -> None:
    seen: list[tuple[str | None, int]] = []

    def take(command: RemotingCommand, connection: Connection) -> None:
        header = command.header(SendMessageRequestHeaderV2)
        seen.append((header.bname, header.queue_id))
        if len(seen) == 1:
            connection.close()
        elif len(seen) == 2:
            answer(command, connection, codes.SERVICE_NOT_AVAILABLE)
        else:
            answer(command, connection, codes.FLUSH_DISK_TIMEOUT)

    with cluster(take, brokers=2) as address:
        send(address, "T", [Outgoing(b"a", b"", "key")])
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_the_row_a_broker_refuses_is_found_and_those_before_it_are_sent() -> None:
    taken: list[bytes] = []

    def take(command: RemotingCommand, connection: Connection) -> None:
        single = command.code == RequestCode.SEND_MESSAGE_V2
        bodies = [command.body] if single else [item[1] for item in decode_batch(command.body)]
        bad = b"bad" in [bytes(body) for body in bodies]
        if not bad:
            taken.extend(bytes(body) for body in bodies)
        answer(command, connection, codes.MESSAGE_ILLEGAL if bad else codes.SUCCESS)

    bodies = [b"bad" if number == 1234 else b"%d" % number for number in range(1500)]
    rows = pa.RecordBatch.from_pydict({"body": bodies})
    with cluster(take, queues=1) as address:
        options = WriteOptions(name_servers=(address,), topic="T")
        with pytest.raises(RowError, match="row 1234: "):
            send_batches(iter([rows]), options)
    assert set(bodies[:1234]) <= set(taken)


@pytest.mark.parametrize(
    ("code", "error", "attempts"),
    [
        (codes.MESSAGE_ILLEGAL, MessageIllegalError, 1),
        (codes.SYSTEM_BUSY, SystemBusyError, REFUSALS),
    ],
)
def test_what_keeps_failing_is_raised(code: int, error: type[Exception], attempts: int) -> None:
    seen = []

    def refuse(command: RemotingCommand, connection: Connection) -> None:
        seen.append(command)
        answer(command, connection, code)

    with cluster(refuse) as address, pytest.raises(error):
        send(address, "T", [Outgoing(b"a", b"")])
    assert len(seen) == attempts


def test_a_broker_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SEND_TIMEOUT_SECONDS", 0.02)
    with cluster(lambda *_: None) as address, pytest.raises(NetworkError, match="did not answer"):
        send(address, "T", [Outgoing(b"a", b"", "key")], 100)


def test_name_servers_that_do_not_answer_are_all_named() -> None:
    with cluster(lambda *_: None) as one, cluster(lambda *_: None) as other:
        pass
    with pytest.raises(ConnectError, match=f"to {one}: .*to {other}: "):
        Sender((one, other), "tests").add("T", Outgoing(b"a", b""))
