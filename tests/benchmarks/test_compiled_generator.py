"""The compiled load generator does what the one in Python does."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.compiled import Driver, find_driver
from benchmarks.frames import send_frame
from benchmarks.generator import carry_out
from benchmarks.plan import Plan
from orbitmq import EmbeddedBroker
from orbitmq.wire.command import encode_response
from orbitmq.wire.frames import FrameDecoder


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def program() -> str:
    driver = find_driver()
    if not driver.program:
        pytest.skip(f"no compiled load generator: {driver.why_not}")
    return driver.program


def on_both(plan: Plan, program: str) -> list[Plan]:
    return [plan, msgspec.structs.replace(plan, driver=program)]


def stored(broker: EmbeddedBroker, topic: str) -> list[int]:
    return broker.call(
        lambda node: [node.broker.store.max_offset(topic, queue) for queue in range(8)]
    )


@pytest.mark.parametrize(("size", "connections", "window"), [(0, 1, 1), (0, 3, 4), (32, 1, 16)])
def test_both_send_what_they_count(
    broker: EmbeddedBroker, program: str, size: int, connections: int, window: int
) -> None:
    for plan in on_both(
        Plan("send", broker.address, "", size, connections, window, 60.0, most=40), program
    ):
        plan.topic = f"both-{size}-{window}-{bool(plan.driver)}"
        carry_out(Plan("fill", broker.address, plan.topic, 0))
        outcome = carry_out(plan)
        before, measured = outcome.figures[0], outcome.messages
        each = size or 1
        assert before >= 20 * each
        assert measured >= 40 * each
        # What was in flight at the end is there, too, and goes over the queues in turn.
        counts = stored(broker, plan.topic)
        assert sum(counts) == before + measured + connections * window * each
        assert max(counts) - min(counts) <= each * max(1, connections)


@pytest.mark.parametrize(("body", "window", "size"), [(100, 1, 32), (1 << 16, 2, 32), (9, 8, 1)])
def test_both_pull_what_there_is(
    broker: EmbeddedBroker, program: str, body: int, window: int, size: int
) -> None:
    topic = f"pulled-{body}"
    carry_out(Plan("fill", broker.address, topic, 512, body=body))
    plan = Plan("pull", broker.address, topic, size, 2, window, 60.0, 512, body, most=20)
    for each in on_both(plan, program):
        each.pids = [os.getpid()]
        outcome = carry_out(each)
        assert outcome.messages >= 20 * size
        assert outcome.messages % size == 0
        assert outcome.rate > 0
        assert outcome.cpu >= 0


def test_a_refused_request_ends_both(broker: EmbeddedBroker, program: str) -> None:
    plan = Plan("pull", broker.address, "no-such-topic", 32, filled=2048, most=1)
    for each in on_both(plan, program):
        with pytest.raises(RuntimeError, match=f"{broker.address} answered with an error"):
            carry_out(each)


def test_nobody_there_is_told(program: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(RuntimeError, match="refused"):
        carry_out(Plan("send", address, "t", driver=program))


class Peer:
    """Takes one connection, and has ``answer`` make what each request gets; cuts it in pieces."""

    def __init__(self, answer: bytes, piece: int) -> None:
        self._answer, self._piece = answer, piece
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        decoder = FrameDecoder()
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    count = len(list(decoder.feed(data)))
                    self.requests += count
                    answers = self._answer * count
                    for at in range(0, len(answers), self._piece):
                        connection.sendall(answers[at : at + self._piece])
            except ConnectionError:
                pass  # it has what it wanted

    def close(self) -> None:
        self._listener.close()
        self._thread.join(60)


def answer_of(body: bytes, code: int = 0) -> bytes:
    (request,) = FrameDecoder().feed(send_frame("t", 0))
    return encode_response(request, code, {"queueId": "0"}, body_length=len(body)) + body


@pytest.mark.parametrize("piece", [1, 7, 8, 100, 1 << 20])
@pytest.mark.parametrize("body", [0, 1, 1000])
def test_answers_may_come_in_any_pieces(program: str, piece: int, body: int) -> None:
    peer = Peer(answer_of(b"y" * body), piece)
    plan = Plan("send", peer.address, "t", window=4, seconds=60.0, most=6, driver=program)
    outcome = carry_out(plan)
    peer.close()
    assert outcome.messages >= 6
    assert peer.requests == outcome.figures[0] + outcome.messages + 4


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (answer_of(b'"code":0,', code=2), '"code":2'),  # what a body says is nothing
        (b"\0\0\0\x04\0\0\0\xff", "a frame of 8 bytes has a header of 263"),
        (answer_of(b"") * 2, "more answers than requests"),
    ],
)
def test_an_odd_answer_is_an_error(program: str, answer: bytes, error: str) -> None:
    peer = Peer(answer, 1 << 20)
    with pytest.raises(RuntimeError, match=error):
        carry_out(Plan("send", peer.address, "t", seconds=60.0, most=6, driver=program))
    peer.close()


def test_without_a_compiler_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    driver = find_driver.__wrapped__()
    assert driver == Driver("", "no Rust compiler")
    assert str(driver) == "Python (no Rust compiler)"


def test_a_build_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text("#!/bin/sh\necho 'error: no toolchain' >&2; exit 1\n")
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", str(cargo.parent))
    assert str(find_driver.__wrapped__()) == "Python (its build failed: error: no toolchain)"
