"""A few requests to a name server or broker, in twenty lines that know nothing of OrbitMQ.

The judge must not lean on the judged: what the harness itself asks (is the broker registered,
create a topic) goes over this blocking caller of the JSON form of the remoting protocol.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

QUERY_OFFSET = 14
CREATE_TOPIC = 17
CONSUMER_IDS = 38
LOCK_QUEUES = 41
UNLOCK_QUEUES = 42
ROUTE = 105
CLUSTER_INFO = 106
RUNNING_INFO = 307
VERSION_5_5_0 = 513


class RemotingCallError(AssertionError):
    """The other side answered a request with an error code."""


class Answer(NamedTuple):
    """What came back: the fields of its header, and its body."""

    fields: dict[str, str]
    body: bytes


def call(
    address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
) -> Answer:
    """The answer to one request, over a connection of its own.

    Raises:
        OSError: nobody listens at the address, it hung up, or all patience is spent.
        RemotingCallError: the answer's code is not 0.
    """
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": VERSION_5_5_0}
    encoded = json.dumps(header | {"extFields": dict(fields or {})}).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        size = 4 + len(encoded) + len(body)
        connection.sendall(struct.pack(">II", size, len(encoded)) + encoded + body)
        with connection.makefile("rb") as answers:
            head = answers.read(8)
            if len(head) < 8:
                raise ConnectionError(f"{address} closed the connection on request {code}")
            length, header_length = struct.unpack(">II", head)
            frame = answers.read(length - 4)
    answer = json.loads(frame[:header_length])
    if answer["code"] != 0:
        raise RemotingCallError(f"{address} answered request {code}: {answer}")
    return Answer(answer.get("extFields", {}), frame[header_length:])


def knows_broker(name_server: str, broker: str) -> bool:
    """Whether the name server lists the broker's address."""
    return f'"{broker}"'.encode() in call(name_server, CLUSTER_INFO).body


def create_topic(name_server: str, broker: str, topic: str, queues: int = 8) -> None:
    """Creates a topic at a broker and waits until the name server knows its route there."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    call(broker, CREATE_TOPIC, fields)
    wait_at(name_server, broker, topic)


def wait_at(name_server: str, broker: str, topic: str) -> None:
    """Waits until the name server gives the broker's address in the topic's route."""
    eventually(lambda: is_at(name_server, broker, topic), f"the route of {topic} to {broker}")


def is_at(name_server: str, broker: str, topic: str) -> bool:
    """Whether the name server gives the broker's address in the topic's route."""
    try:
        return f'"{broker}"'.encode() in call(name_server, ROUTE, {"topic": topic}).body
    except RemotingCallError:
        return False


def committed(broker: str, group: str, topic: str, queue: int) -> int:
    """The offset that a broker has of a group; an error when it has none."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
    return int(call(broker, QUERY_OFFSET, fields).fields["offset"])


def consumer_ids(broker: str, group: str) -> list[str]:
    """The clients that a broker has in a group, in its order."""
    try:
        body = call(broker, CONSUMER_IDS, {"consumerGroup": group}).body
    except RemotingCallError:  # none is what it refuses to say
        return []
    return [str(client_id) for client_id in json.loads(body)["consumerIdList"]]


def lock_holders(
    broker: str, name: str, group: str, topic: str, queues: int, client_ids: Collection[str]
) -> dict[int, str]:
    """Who has the locks of a topic's queues at the broker called `name`, "nobody" included.

    No request tells, so each lock is asked for in the name of each client, and of a stranger
    first. This renews the locks that are held: look after what is tested is over.
    """
    holders: dict[int, str] = {}
    for client_id, holder in [("stranger", "nobody"), *((one, one) for one in client_ids)]:
        left = [number for number in range(queues) if number not in holders]
        rows = [{"topic": topic, "brokerName": name, "queueId": number} for number in left]
        wanted = {"consumerGroup": group, "clientId": client_id}
        body = call(broker, LOCK_QUEUES, body=encode(wanted | {"mqSet": rows})).body
        locked = json.loads(body)["lockOKMQSet"]
        if holder == "nobody" and locked:
            call(broker, UNLOCK_QUEUES, body=encode(wanted | {"mqSet": locked}))
        holders |= {row["queueId"]: holder for row in locked}
    return {number: holders.get(number, "somebody else") for number in range(queues)}


def held_queues(broker: str, group: str, client_id: str, topic: str) -> list[str]:
    """What a client itself says of its queues, asked through a broker: locked, dropped and so on.

    The table is no proper JSON: its keys are objects.
    """
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
    body = call(broker, RUNNING_INFO, fields).body.decode()
    rows = []
    for key, value in re.findall(r"(\{[^{}]*\}):(\{[^{}]*\})", body):
        queue, state = json.loads(key), json.loads(value)
        if queue.get("topic") == topic:
            lock = "locked" if state["locked"] else "not locked"
            dropped = ", dropped" if state["droped"] else ""
            cached = f", {state['cachedMsgCount']} cached" if state["cachedMsgCount"] else ""
            rows.append(f"{queue['brokerName']}/{queue['queueId']} {lock}{dropped}{cached}")
    return sorted(rows)


def encode(value: object) -> bytes:
    """A body in JSON."""
    return json.dumps(value).encode()
