"""An exchange to replay: what clients send, byte by byte, and when; the same for a seed each time.

Producers of every kind, with headers as clients write them, as they could, and as nobody should;
consumers that pull, hold pulls, commit and query. Reads end anywhere in a frame, and several
connections are read in one turn of the loop.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orbitmq.codes import RequestCode
from orbitmq.names import RETRY_PREFIX
from orbitmq.wire.command import BINARY, JSON, Header, encode_request
from orbitmq.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryMessageRequestHeader,
    SendMessageRequestHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import encode_batch
from tests.broker.remote import SUBSCRIPTION, SUSPEND, heartbeat, pull_header, send_header

CLIENTS = 4
TOPICS = ("orders", "flights", "%RETRY%readers", "long-" * 20, "täglich")
TAGS = (None, "TagA", "TagB", "京")
FOR_EVER = 2**62
ONE_WAY_EVERY = 11
UNKNOWN_FLAG = 1 << 20
HOSTILE = (
    struct.pack(">II", 0xFFFFFFFF, 0),
    struct.pack(">II", 3, 0),
    struct.pack(">II", 20, 0x00FFFFFF) + bytes(16),
    struct.pack(">II", 12, 8) + b"nonsense",
)
"""What each client ends with: frames that cannot be, and a header that cannot be read."""


@dataclass
class Step:
    """One turn of the broker's loop: time passes, then each client's bytes are read.

    ``waits`` says that something beside the loop answers, so that the next step waits for it.
    """

    advance_ms: int = 0
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    waits: bool = False


def exchange(seed: int, turns: int = 150) -> Iterator[Step]:
    """The steps, which end with pulls and queries of everything."""
    return Script(seed).steps(turns)


class Script:
    """Writes requests by chance; the opaque of each says which it is."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.opaque = 0
        self.pending: list[bytes] = [b""] * CLIENTS  # of a frame whose rest comes in a later turn

    def steps(self, turns: int) -> Iterator[Step]:
        for client in range(CLIENTS):
            group = heartbeat("readers", *TOPICS[:2], client_id=f"c{client}", producers=("makers",))
            yield Step(reads=[(client, self.frame(RequestCode.HEART_BEAT, None, group))])
        for _ in range(turns):
            yield self.turn()
            if self.chance.random() < 0.1:
                yield Step(reads=self.rest())
                yield Step(reads=[(0, self.query())], waits=True)
        yield Step(reads=self.rest())
        yield Step(advance_ms=20_000)  # held pulls come to their end
        for topic in TOPICS:
            for queue_id in range(4):
                yield Step(reads=[(1, self.pull(topic, queue_id, 0, most=1000))])
                yield Step(reads=[(2, self.units(topic, queue_id))], waits=True)
        for _ in range(20):
            yield Step(reads=[(3, self.query())], waits=True)
        yield Step(reads=list(enumerate(map(self.hostile, HOSTILE))))

    def turn(self) -> Step:
        """What some of the clients send, each some requests, the last perhaps not whole."""
        reads = []
        clients = self.chance.sample(range(CLIENTS), self.chance.randint(1, CLIENTS))
        for client in clients:
            count = self.chance.choice([1, 1, 2, 8, 32])
            data = self.pending[client] + b"".join(self.request() for _ in range(count))
            cut = self.chance.choice([len(data), len(data), self.chance.randrange(len(data))])
            reads.append((client, data[:cut]))
            self.pending[client] = data[cut:]
        return Step(self.chance.choice([0, 0, 1, 15, 1000]), reads)

    def rest(self) -> list[tuple[int, bytes]]:
        """What clients have not sent of their frames yet."""
        reads = [(client, data) for client, data in enumerate(self.pending) if data]
        self.pending = [b""] * CLIENTS
        return reads

    def request(self) -> bytes:
        kinds = {
            self.send: 40, self.batch: 12, self.old_send: 6, self.odd_send: 12,
            self.any_pull: 12, self.held_pull: 3, self.commit: 6, self.ask: 5, self.back: 4,
        }  # fmt: skip
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        return kind()

    def hostile(self, end: bytes) -> bytes:
        """Good requests, and in the same read what ends the connection."""
        return self.send() + self.batch() + end + self.send()

    # Requests

    def frame(
        self, code: int, header: Header | Mapping[str, str] | None, body: bytes = b"", **more: Any
    ) -> bytes:
        self.opaque += 1
        form = more.pop("serialize_type", self.chance.choice([JSON, JSON, BINARY]))
        return encode_request(code, self.opaque, header, body, serialize_type=form, **more)

    def fields(self) -> dict[str, Any]:
        """What the header of a send has."""
        chance = self.chance
        properties = {
            "KEYS": chance.choice(["", "k1", f"k{chance.randrange(50)} k2", "schlüssel", "k" * 300])
        }
        if chance.random() < 0.8:
            properties["UNIQ_KEY"] = f"{chance.getrandbits(128):032X}"
        if chance.random() < 0.1:
            properties["DELAY"] = chance.choice(["1", "3", "99", "-1", "x"])
        if chance.random() < 0.1:
            properties["WAIT"] = chance.choice(["true", "false", ""])
        if chance.random() < 0.05:
            properties["big"] = "ü" * chance.choice([20_000, 40_000])
        return {
            "topic": chance.choice(TOPICS[:2] * 5 + TOPICS),
            "queue_id": chance.choice([0, 0, 1, 2, 3, 4, -1, 99]),
            "tags": chance.choice(TAGS),
            "properties": {name: value for name, value in properties.items() if value},
            "sys_flag": chance.choice([0, 0, 0, 1, 0x100, UNKNOWN_FLAG]),
            "flag": chance.choice([0, 7, -(2**31)]),
            "born_timestamp": chance.choice([1, 1_704_067_199_999, 2**63 - 1]),
        }

    def body(self) -> bytes:
        size = self.chance.choice([0, 1, 100, 100, 1000, 5000])
        return self.chance.randbytes(size)

    def send(self) -> bytes:
        header = send_header(**self.fields())
        oneway = self.opaque % ONE_WAY_EVERY == 0
        return self.frame(RequestCode.SEND_MESSAGE_V2, header, self.body(), oneway=oneway)

    def old_send(self) -> bytes:
        fields = self.fields()
        tags, properties = fields.pop("tags"), fields.pop("properties")
        properties |= {"TAGS": tags} if tags else {}
        header = SendMessageRequestHeader(
            producer_group="makers", default_topic="TBW102", default_topic_queue_nums=4,
            properties=encode_properties(properties).decode(), **fields,
        )  # fmt: skip
        return self.frame(RequestCode.SEND_MESSAGE, header, self.body())

    def batch(self) -> bytes:
        fields = self.fields()
        entries = [
            (self.body(), encode_properties({"UNIQ_KEY": f"{self.opaque}-{n}", "KEYS": f"b{n}"}))
            for n in range(self.chance.choice([1, 2, 32]))
        ]
        body = encode_batch((0, content, properties) for content, properties in entries)
        if self.chance.random() < 0.2:  # damaged somewhere
            at = self.chance.randrange(len(body))
            body = body[:at] + self.chance.randbytes(1) + body[at + 1 :]
        header = send_header(**fields, batch=True)
        return self.frame(RequestCode.SEND_BATCH_MESSAGE, header, body)

    def odd_send(self) -> bytes:
        """JSON as no client of ours writes it: order, spaces, escapes, types, gaps, doubles."""
        chance = self.chance
        fields = {
            "a": "makers", "b": chance.choice(TOPICS), "c": "TBW102", "d": "4",
            "e": chance.choice(["0", "1", "x", "", "2147483648", " 1", "+1", "1e0"]),
            "f": chance.choice(["0", "-1", "0x1"]), "g": chance.choice(["1", "9" * 20]), "h": "0",
            "i": chance.choice(["KEYS\x01k1\x02", "KEYS\x01", "\x02\x01\x02", "no", ""]),
            "j": chance.choice(["0", "3"]), "k": chance.choice(["false", "true", "TRUE", "1"]),
            "l": "16", "m": "false", "n": "broker-a", "unknown": "field",
        }  # fmt: skip
        items = list(fields.items())
        if chance.random() < 0.5:
            chance.shuffle(items)
        for _ in range(chance.choice([0, 0, 1, 3])):
            items.pop(chance.randrange(len(items)))
        if chance.random() < 0.2:
            items.append(chance.choice(items))  # a name twice
        self.opaque += 1
        text = json.dumps(
            {
                "code": RequestCode.SEND_MESSAGE_V2,
                "extFields": "@",
                "flag": 0,
                "language": chance.choice(["JAVA", "GO", "KLINGON"]),
                "opaque": self.opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": chance.choice([0, 453, 2**31 - 1]),
            },
            indent=chance.choice([None, None, 1]),
        )
        pairs = [
            f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=chance.random() < 0.5)}"
            for name, value in items
        ]
        head = text.replace('"@"', "{" + ",".join(pairs) + "}").encode()
        body = self.body()
        return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body

    def pull(self, topic: str, queue_id: int, offset: int, most: int = 32, **more: Any) -> bytes:
        header = pull_header(topic, queue_id=queue_id, offset=offset, max_msg_nums=most, **more)
        return self.frame(RequestCode.PULL_MESSAGE, header)

    def any_pull(self) -> bytes:
        chance = self.chance
        return self.pull(
            chance.choice([*TOPICS, "nobody's"]),
            chance.choice([0, 0, 1, 3, 17]),
            chance.choice([0, 0, 3, 20, 10_000, -1]),
            chance.choice([1, 32, 32, 1000]),
            tags=chance.choice(["*", "*", "TagA", "TagA || 京", "never"]),
            commit_offset=chance.choice([0, 5]),
            sys_flag=SUBSCRIPTION | chance.choice([0, 1]),
        )

    def held_pull(self) -> bytes:
        offset = self.chance.choice([0, 100, 400])
        return self.pull(self.chance.choice(TOPICS[:2]), 0, offset, sys_flag=SUSPEND | SUBSCRIPTION)

    def commit(self) -> bytes:
        chance = self.chance
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="readers", topic=chance.choice(TOPICS), queue_id=chance.randrange(4),
            commit_offset=chance.choice([0, 1, 50, 2**40]),
        )  # fmt: skip
        return self.frame(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def ask(self) -> bytes:
        """Where a queue ends, or where a group is in it."""
        topic, queue_id = self.chance.choice(TOPICS), self.chance.randrange(5)
        if self.chance.random() < 0.5:
            code, header = RequestCode.GET_MAX_OFFSET, TopicQueueRequestHeader(topic, queue_id)
            return self.frame(code, header)
        asked = QueryConsumerOffsetRequestHeader("readers", topic, queue_id)
        return self.frame(RequestCode.QUERY_CONSUMER_OFFSET, asked)

    def back(self) -> bytes:
        """A message that a consumer could not consume; mostly there is none at that place."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=self.chance.choice([0, 0, 7]), group="readers",
            delay_level=self.chance.choice([-1, 0, 1]), max_reconsume_times=3,
        )  # fmt: skip
        return self.frame(RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def query(self) -> bytes:
        header = QueryMessageRequestHeader(
            topic=self.chance.choice(TOPICS),
            key=self.chance.choice([f"k{self.chance.randrange(50)}", "k1", "schlüssel", "b3"]),
            max_num=32, begin_timestamp=0, end_timestamp=FOR_EVER,
        )  # fmt: skip
        return self.frame(RequestCode.QUERY_MESSAGE, header)

    def units(self, topic: str, queue_id: int) -> bytes:
        header = QueryConsumeQueueRequestHeader(topic, queue_id, 0, 100, RETRY_PREFIX + "readers")
        return self.frame(RequestCode.QUERY_CONSUME_QUEUE, header)
