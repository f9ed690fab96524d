"""Callbacks and the end of a producer: nothing is forgotten, and what is left is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.errors import RequestTimeoutError
from orbitmq.message import SendResult
from orbitmq.producer.in_flight import InFlight
from orbitmq.producer.sends import SendFuture
from orbitmq.testing.wait import wait_until
from tests.client.stub_cluster import StubCluster
from tests.producer.test_producer_broker import pull_all
from tests.program import run_python


@pytest.fixture
def cluster() -> Iterator[StubCluster]:
    with StubCluster(t=1) as cluster:
        yield cluster


# Callbacks


class Slow:
    """A callback that returns when it is let go."""

    def __init__(self) -> None:
        self.called = 0
        self.go_on = threading.Event()

    def __call__(self, *outcome: object) -> None:
        self.go_on.wait(20)
        self.called += 1


def test_callbacks_not_called_yet_are_in_flight(cluster: StubCluster) -> None:
    slow = Slow()
    with Producer("writers", name_server=cluster.address, max_in_flight=3) as producer:
        for _ in range(2):
            producer.send_async(Message("t", b"x"), slow)
        producer.send_async(Message("t", b"x")).add_done_callback(slow)
        wait_until(lambda: producer._core.in_flight.callbacks == 3, "the outcomes")
        with pytest.raises(
            RequestTimeoutError, match="0 messages .* 3 callbacks not called.*30 ms"
        ):
            producer.send_async(Message("t", b"x"), timeout=0.03)
        producer.send(Message("t", b"a send that waits for its outcome needs no room"))
        slow.go_on.set()
        producer.send_async(Message("t", b"x")).result(10)
    assert slow.called == 3


def test_a_callback_sends_although_callbacks_take_all_room(cluster: StubCluster) -> None:
    futures: list[SendFuture] = []

    def send_more(result: SendResult | None, error: BaseException | None) -> None:
        wait_until(lambda: producer._core.in_flight.callbacks == 2, "a second outcome")
        futures.extend(producer.send_async(Message("t", b"more")) for _ in range(5))

    with Producer("writers", name_server=cluster.address, max_in_flight=2) as producer:
        producer.send_async(Message("t", b"x"), send_more)
        producer.send_async(Message("t", b"x"), lambda *_: None)
        wait_until(lambda: len(futures) == 5, "sends of the callback")
        for future in futures:
            future.result(10)


def test_shutdown_waits_for_callbacks_as_long_as_they_end(cluster: StubCluster) -> None:
    called = []
    producer = Producer("writers", name_server=cluster.address, send_timeout_ms=2000)
    producer.start()
    for number in range(300):
        producer.send_async(Message("t", b"x"), lambda *_, n=number: called.append(n))
        if number % 30 == 0:
            producer.send_async(Message("t", b"x"), lambda *_: time.sleep(0.25))
    producer.shutdown()
    assert called == list(range(300)), "in 2.5 s, which is more than send_timeout_ms"


def test_shutdown_tells_how_many_callbacks_it_left(
    cluster: StubCluster, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow()
    producer = Producer("writers", name_server=cluster.address, send_timeout_ms=2000)
    producer.start()
    futures = []
    for _ in range(7):
        futures.append(producer.send_async(Message("t", b"x")))
        futures[-1].add_done_callback(slow)
    for future in futures:
        future.result(10)
    producer._core._under_way._patience = 0.05
    producer.shutdown()
    assert "producer writers: 7 callbacks have not returned" in caplog.text
    slow.go_on.set()
    wait_until(lambda: slow.called == 7, "the callbacks, which are called all the same")


# Shutdown


def test_shutdown_waits_for_sends_that_wait_for_room(cluster: StubCluster) -> None:
    broker = cluster.brokers[0]
    held = []
    broker.default, store = (lambda *sent: held.append(sent)), broker.answer
    producer = Producer("writers", name_server=cluster.address, max_in_flight=1)
    producer.start()
    producer.send_async(Message("t", b"0"))
    senders = [
        threading.Thread(target=producer.send_async, args=(Message("t", b"%d" % n),))
        for n in range(1, 4)
    ]
    for sender in senders:
        sender.start()
    in_flight = producer._core.in_flight
    wait_until(lambda: in_flight.waiting == 3 and held, "the line")
    stopping = threading.Thread(target=producer.shutdown)
    stopping.start()
    wait_until(lambda: not producer._core.lifecycle.running, "the shutdown")
    broker.default = store

    async def answer() -> None:
        for sent in held:
            store(*sent)

    cluster.run(answer())
    stopping.join(10)
    assert sorted(broker.bodies()) == [b"0", b"1", b"2", b"3"]


def test_ctrl_c_on_the_way_to_the_loop_leaves_no_room_taken(
    cluster: StubCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(room: InFlight, *message: Any) -> bool:
        assert try_enter(room, *message)
        raise KeyboardInterrupt

    try_enter = InFlight.try_enter
    with Producer("writers", name_server=cluster.address, max_in_flight=1) as producer:
        producer.publish_queues("t")
        with monkeypatch.context() as patched:
            patched.setattr(InFlight, "try_enter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send_async(Message("t", b"x"))
        assert producer._core.in_flight.messages == 0
        producer.send_async(Message("t", b"x")).result(10)


# The end of the process

PROGRAM = """
import asyncio, contextlib, logging, sys, threading, time
from orbitmq import AsyncProducer, ClientStateError, Message, Producer
logging.basicConfig(format="%(message)s")
address = {address!r}
settings = dict(name_server=address, send_timeout_ms={timeout_ms})
"""


def run(address: str, program: str, timeout_ms: int = 20_000) -> tuple[str, str]:
    """What it prints, and what it logs."""
    lines = PROGRAM.format(address=address, timeout_ms=timeout_ms)
    done = run_python("import warnings; warnings.simplefilter('ignore')\n" + lines + program)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_what_is_on_its_way_at_the_end_of_the_process_arrives() -> None:
    with EmbeddedBroker() as broker:
        told = run(
            broker.name_server,
            """
producer = Producer("writers", **settings)
producer.start()
for number in range(1000):
    producer.send_async(Message("t", b"x"))
""",
        )
        assert told == ("", "")
        assert sum(map(len, pull_all(broker, "t").values())) == 1000


def test_what_waits_for_room_at_the_end_of_the_process_arrives() -> None:
    with EmbeddedBroker() as broker:
        told = run(
            broker.name_server,
            """
producer = Producer("writers", max_in_flight=2, **settings)
producer.start()
def send():
    with contextlib.suppress(ClientStateError):  # the process has ended all clients
        for number in range(50):
            producer.send_async(Message("t", b"x"))
sending = [threading.Thread(target=send, daemon=True) for _ in range(4)]
for thread in sending:
    thread.start()
while not producer._core.in_flight.waiting:
    time.sleep(0.001)

aio = AsyncProducer("others", max_in_flight=2, **settings)
loop = asyncio.new_event_loop()
loop.run_until_complete(aio.start())
tasks = [loop.create_task(aio.send(Message("u", b"x"))) for _ in range(200)]
loop.run_until_complete(asyncio.sleep(0.01))
loop.close()
logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # tasks were pending
""",
        )
        assert told == ("", "")
        # The threads end with the process, wherever they are; the line is empty then.
        assert sum(map(len, pull_all(broker, "t").values())) > 2
        assert sum(map(len, pull_all(broker, "u").values())) == 200


def test_callbacks_at_the_end_of_the_process_are_called() -> None:
    with EmbeddedBroker() as broker:
        out, err = run(
            broker.name_server,
            """
producer = Producer("writers", **settings)
producer.start()
def called(result, error):
    time.sleep(0.005)
    sys.stdout.write("." if error is None else str(error))
for number in range(100):
    producer.send_async(Message("t", b"x"), called)
""",
        )
        assert (out, err) == ("." * 100, "")


def test_what_does_not_arrive_by_the_end_of_the_process_is_counted_in_the_log() -> None:
    with EmbeddedBroker() as broker:
        address = broker.name_server
    out, err = run(
        address,
        """
logging.getLogger("orbitmq.client").setLevel(logging.ERROR)
producer = Producer("writers", **settings)
producer.start()
for number in range(30):
    producer.send_async(Message("t", b"x"))
for number in range(7):
    producer.send_async(Message("t", b"x"), lambda *_: time.sleep(60))
""",
        timeout_ms=700,
    )
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("producer writers: 37 messages that were on their way or waited")
    assert second.startswith("producer writers: 7 callbacks have not returned, waited for 0.7 s")
