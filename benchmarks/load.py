"""Connections that keep a broker busy: prebuilt frames over plain sockets, answers only counted."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import closing

from benchmarks.frames import Frames, create_topic_frame, send_frame
from benchmarks.plan import QUEUES, Outcome, Plan
from benchmarks.processes import cpu_seconds

LENGTH = struct.Struct(">I")
OK = b'"code":0,'
_PATIENCE_SECONDS = 300
_FIRST_BUFFER, _LARGEST_BUFFER = 1 << 14, 1 << 26


class Client:
    """One connection with a window of requests in flight."""

    def __init__(self, address: str, window: int = 1) -> None:
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.window = window
        self.pending = 0
        self._address = address
        self._buffer = bytearray(_FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._held = 0

    def receive(self) -> int:
        """Read once and count the whole responses; a response that is an error ends the run."""
        ends = self._read()
        count, position = len(ends), ends[-1] if ends else 0
        if self._buffer.count(OK, 0, position) < count:
            answer = bytes(self._buffer[: min(position, 2000)])
            raise RuntimeError(f"{self._address} answered with an error, among others: {answer!r}")
        self._keep_from(position)
        self.pending -= count
        return count

    def answers(self) -> list[bytes]:
        """What one read completes, each without its length."""
        ends = self._read()
        found = [
            bytes(self._view[begin + 4 : end]) for begin, end in zip([0, *ends], ends, strict=False)
        ]
        self._keep_from(ends[-1] if ends else 0)
        self.pending -= len(found)
        return found

    def _read(self) -> list[int]:
        """Where in the buffer each response ends that is whole after one read."""
        received = self.sock.recv_into(self._view[self._held :])
        if not received:
            raise ConnectionError(f"{self._address} closed the connection")
        self._held += received
        ends, position, size = [], 0, self._held
        while size - position >= 4:
            position += 4 + LENGTH.unpack_from(self._buffer, position)[0]
            if position > size:
                break
            ends.append(position)
        return ends

    def _keep_from(self, position: int) -> None:
        """Keep what is left; a read that filled the buffer is followed by a larger one."""
        was_full = self._held == len(self._buffer)
        left = self._buffer[position : self._held]
        if was_full and self._held < _LARGEST_BUFFER:
            self._buffer = bytearray(2 * self._held)
            self._view = memoryview(self._buffer)
        self._held = len(left)
        self._buffer[: self._held] = left


class Load:
    """The connections of a plan, each with its window full of these requests."""

    def __init__(self, plan: Plan, frames: list[bytes]) -> None:
        self._requests = Frames(frames, plan.window)
        self._selector = selectors.DefaultSelector()
        self._clients = [Client(plan.address, plan.window) for _ in range(plan.connections)]
        for client in self._clients:
            self._selector.register(client.sock, selectors.EVENT_READ, client)
            self._refill(client)

    def run(self, seconds: float, most: int = 0) -> int:
        """Go on for so long, or until there were ``most`` responses; how many there were."""
        done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end and not 0 < most <= done:
            for key, _ in self._selector.select(60):
                done += key.data.receive()
                self._refill(key.data)
        return done

    def finish(self) -> None:
        """Wait for what is in flight."""
        for client in self._clients:
            while client.pending:
                client.receive()

    def close(self) -> None:
        """Hang up."""
        for client in self._clients:
            client.sock.close()
        self._selector.close()

    def _refill(self, client: Client) -> None:
        missing = client.window - client.pending
        if missing:
            client.pending += missing
            client.sock.sendall(self._requests.take(missing))


class Stopwatch:
    """Measures the time that passes, and what processes spend of the processors' meanwhile."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._cpu, self._began = cpu_seconds(self._pids), time.perf_counter()

    def outcome(self, messages: int, figures: Sequence[float] = ()) -> Outcome:
        """So many messages since the watch was started."""
        took = time.perf_counter() - self._began
        return Outcome(messages, took, cpu_seconds(self._pids) - self._cpu, list(figures))


def drive(plan: Plan, frames: list[bytes], each: int) -> Outcome:
    """Keep requests of ``each`` messages in flight, first to warm up, then to be measured.

    The figure is the number of messages of the warm-up.
    """
    with closing(Load(plan, frames)) as load:
        before = load.run(plan.seconds / 2, plan.most // 2) * each
        watch = Stopwatch(plan.pids)
        outcome = watch.outcome(load.run(plan.seconds, plan.most) * each, [before])
        load.finish()
    return outcome


def call(address: str, frame: bytes) -> bytes:
    """One request, one response: the response's bytes after its length."""
    client = Client(address)
    client.sock.sendall(frame)
    while not (answers := client.answers()):
        pass
    client.sock.close()
    return answers[0]


def create_topic(address: str, topic: str, queues: int = QUEUES) -> None:
    """A topic with so many queues."""
    response = call(address, create_topic_frame(topic, queues))
    if OK not in response:
        raise RuntimeError(f"{address} does not create {topic}: {response!r}")


def fill(plan: Plan) -> None:
    """Make the plan's topics, and put ``size`` messages into their queues, evenly."""
    for topic in plan.names():
        create_topic(plan.address, topic, plan.queues)
    requests = -(-plan.size // 32)
    targets = plan.targets()[:requests]
    frames = [send_frame(topic, queue, 32, b"x" * plan.body) for topic, queue in targets]
    done = 0
    client = Client(plan.address)
    while done < requests:
        client.sock.sendall(frames[done % len(frames)])
        client.pending += 1
        while client.pending:
            done += client.receive()
    client.sock.close()
