"""A raw load generator: prebuilt frames over plain sockets, responses only counted.

It runs as a process of its own and costs a fraction of a microsecond a message, so that what is
measured is the broker:

    python -m benchmarks.generator '{"mode": "send", "address": "127.0.0.1:10911", ...}'

prints one JSON object, ``{"messages": N, "seconds": S}``.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import time
from itertools import accumulate

import msgspec

from orbitmq.codes import RequestCode
from orbitmq.wire.command import encode_request
from orbitmq.wire.headers import (
    CreateTopicRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import encode_batch

QUEUES = 8
RECEIVE_BUFFER = 8 << 20
LENGTH = struct.Struct(">I")
OK = b'"code":0,'


class Client:
    """One connection with a window of requests in flight."""

    def __init__(self, address: str, window: int) -> None:
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.window = window
        self.pending = 0
        self._address = address
        self._buffer = bytearray(RECEIVE_BUFFER)
        self._view = memoryview(self._buffer)
        self._held = 0

    def receive(self) -> int:
        """Read once and count the whole responses; a response that is an error ends the run."""
        received = self.sock.recv_into(self._view[self._held :])
        if not received:
            raise ConnectionError(f"{self._address} closed the connection")
        buffer, size = self._buffer, self._held + received
        position = count = 0
        while size - position >= 4:
            end = position + 4 + LENGTH.unpack_from(buffer, position)[0]
            if end > size:
                break
            position = end
            count += 1
        if buffer.count(OK, 0, position) < count:
            answer = bytes(buffer[: min(position, 2000)])
            raise RuntimeError(f"{self._address} answered with an error, among others: {answer!r}")
        self._held = size - position
        buffer[: self._held] = buffer[position:size]
        self.pending -= count
        return count


class Frames:
    """Requests to be sent again and again, in turn, as slices of one buffer."""

    def __init__(self, frames: list[bytes], window: int) -> None:
        turns = frames * (1 + -(-window // len(frames)))
        self._bytes = memoryview(b"".join(turns))
        self._starts = list(accumulate(map(len, turns), initial=0))
        self._count = len(frames)
        self._next = 0

    def take(self, count: int) -> memoryview:
        """The next ``count`` requests, a window of them at most."""
        first = self._next
        self._next = (first + count) % self._count
        return self._bytes[self._starts[first] : self._starts[first + count]]


def call(address: str, frame: bytes) -> bytes:
    """One request, one response: the response's bytes after its length."""
    client = Client(address, 1)
    client.sock.sendall(frame)
    with client.sock.makefile("rb") as stream:
        response = stream.read(int.from_bytes(stream.read(4), "big"))
    client.sock.close()
    return response


def create_topic(address: str, topic: str, queues: int = QUEUES) -> None:
    """A topic with so many queues."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
    response = call(address, encode_request(RequestCode.UPDATE_AND_CREATE_TOPIC, 1, header))
    if OK not in response:
        raise RuntimeError(f"{address} does not create {topic}: {response!r}")


def send_frames(topic: str, batch: int, body: bytes) -> list[bytes]:
    """A send request for each queue: one message, or a batch of them."""
    return [send_frame(topic, queue, batch, body) for queue in range(QUEUES)]


def send_frame(topic: str, queue: int, batch: int = 0, body: bytes = b"x" * 100) -> bytes:
    """One send request."""
    properties = encode_properties(
        {"KEYS": "key-000001", "UNIQ_KEY": "7F0000010B7763947C65000A7D0C0000", "WAIT": "true"}
    )
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=properties.decode(),
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=0,
        batch=bool(batch),
    )
    if not batch:
        return encode_request(RequestCode.SEND_MESSAGE_V2, queue, header, body)
    bodies = encode_batch([(0, body, properties)] * batch)
    return encode_request(RequestCode.SEND_BATCH_MESSAGE, queue, header, bodies)


def pull_frames(topic: str, pull: int, messages: int) -> list[bytes]:
    """Pull requests that walk over all queues, ``pull`` messages each."""
    frames = []
    for offset in range(0, messages // QUEUES - pull, pull):
        for queue in range(QUEUES):
            header = PullMessageRequestHeader(
                consumer_group="bench-pull",
                topic=topic,
                queue_id=queue,
                queue_offset=offset,
                max_msg_nums=pull,
                max_msg_bytes=16 << 20,
                sys_flag=4,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
                sub_version=1,
                expression_type="TAG",
            )
            frames.append(encode_request(RequestCode.PULL_MESSAGE, queue, header))
    return frames


def drive(plan: Plan, frames: list[bytes], seconds: float) -> int:
    """Keep the plan's window of requests in flight for some seconds; the number of responses."""
    clients = [Client(plan.address, plan.window) for _ in range(plan.connections)]
    requests = Frames(frames, plan.window)
    done = 0

    def refill(client: Client) -> None:
        missing = client.window - client.pending
        client.pending += missing
        client.sock.sendall(requests.take(missing))

    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.sock, selectors.EVENT_READ, client)
            refill(client)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for key, _ in selector.select(60):
                done += key.data.receive()
                refill(key.data)
    for client in clients:
        while client.pending:
            done += client.receive()
        client.sock.close()
    return done


def fill(address: str, topic: str, messages: int, body: bytes) -> None:
    """Put ``messages`` messages into the topic, evenly over its queues."""
    frames = send_frames(topic, 32, body)
    requests = -(-messages // 32)
    done = 0
    client = Client(address, 1)
    while done < requests:
        client.sock.sendall(frames[done % QUEUES])
        done += client.receive() or client.receive()
    client.sock.close()


def pace(plan: Plan) -> None:
    """Send one message after the other, evenly in time; each body begins with the time in ns."""
    client = Client(plan.address, 1)
    began = time.perf_counter()
    for number in range(plan.size):
        wait = began + number * plan.seconds / plan.size - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        body = time.time_ns().to_bytes(8).ljust(plan.body)
        client.sock.sendall(send_frame(plan.topic, number % QUEUES, body=body))
        client.receive()
    client.sock.close()


class Plan(msgspec.Struct):
    """What to do: ``fill`` a topic, or ``send`` or ``pull`` for some seconds after a warm-up.

    Or ``pace``: send as many messages as ``size`` says in ``seconds``. Otherwise ``size`` is the
    number of messages to fill with, of a batch (0: none), or of a pull. ``body`` is the size of
    the bodies.
    """

    mode: str
    address: str
    topic: str
    size: int = 0
    connections: int = 1
    window: int = 1
    seconds: float = 1.0
    filled: int = 0
    body: int = 100


class Outcome(msgspec.Struct):
    """How many messages went through in how many seconds."""

    messages: int
    seconds: float


def carry_out(plan: Plan) -> Outcome:
    """Carry out one plan."""
    if plan.mode == "fill":
        create_topic(plan.address, plan.topic)
        fill(plan.address, plan.topic, plan.size, b"x" * plan.body)
        return Outcome(plan.size, 0.0)
    if plan.mode == "pace":
        pace(plan)
        return Outcome(plan.size, plan.seconds)
    if plan.mode == "pull":
        frames, each = pull_frames(plan.topic, plan.size, plan.filled), plan.size
    else:
        frames, each = send_frames(plan.topic, plan.size, b"x" * plan.body), plan.size or 1
    drive(plan, frames, plan.seconds / 2)
    began = time.perf_counter()
    responses = drive(plan, frames, plan.seconds)
    return Outcome(responses * each, time.perf_counter() - began)


if __name__ == "__main__":
    outcome = carry_out(msgspec.json.decode(sys.argv[1], type=Plan))
    print(msgspec.json.encode(outcome).decode())
