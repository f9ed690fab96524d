"""A load generator of transactions: half messages over a plain socket, each ended when it is there.

    python -m benchmarks.transactions ADDRESS TOPIC SECONDS            commits all, for some seconds
    python -m benchmarks.transactions ADDRESS TOPIC 0 COUNT            leaves so many open

prints ``@@ transactions seconds``.
"""

from __future__ import annotations

import re
import sys
import time
from itertools import count
from typing import Final

from benchmarks.load import Client
from orbitmq.codes import RequestCode
from orbitmq.wire.command import encode_request
from orbitmq.wire.headers import EndTransactionRequestHeader, SendMessageRequestHeaderV2
from orbitmq.wire.properties import encode_properties

WINDOW: Final = 64
_GROUP: Final = "bench-transactions"
_COMMIT: Final = 8
_PREPARED: Final = 4
_MESSAGE_ID: Final = re.compile(rb'"msgId":"[0-9A-F]*?([0-9A-F]{16})"')
_QUEUE_OFFSET: Final = re.compile(rb'"queueOffset":"?(\d+)')


def half_frame(topic: str) -> bytes:
    """A half message of 100 bytes, born now."""
    properties = {"UNIQ_KEY": "7F0000010B7763947C65000A7D0C0000", "WAIT": "true"}
    properties |= {"TRAN_MSG": "true", "PGROUP": _GROUP}
    header = SendMessageRequestHeaderV2(
        producer_group=_GROUP,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=8,
        queue_id=0,
        sys_flag=_PREPARED,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=encode_properties(properties).decode(),
    )
    return encode_request(RequestCode.SEND_MESSAGE_V2, 1, header, b"x" * 100)


def end_frame(queue_offset: int, physical_offset: int) -> bytes:
    """The one-way commit of a half message."""
    header = EndTransactionRequestHeader(
        producer_group=_GROUP,
        tran_state_table_offset=queue_offset,
        commit_log_offset=physical_offset,
        commit_or_rollback=_COMMIT,
        msg_id="7F0000010B7763947C65000A7D0C0000",
    )
    return encode_request(RequestCode.END_TRANSACTION, 1, header, oneway=True)


class Ender(Client):
    """A connection that commits what it is told is stored."""

    def ends(self, answers: list[bytes]) -> list[bytes]:
        """The commits of the half messages that these answers tell of."""
        frames = []
        for answer in answers:
            place, offset = _MESSAGE_ID.search(answer), _QUEUE_OFFSET.search(answer)
            if place is None or offset is None:
                raise RuntimeError(f"a half message is refused: {answer!r}")
            frames.append(end_frame(int(offset[1]), int(place[1], 16)))
        return frames


def run(address: str, topic: str, seconds: float, leave_open: int = 0) -> tuple[int, float]:
    """Keep the window full for so long, or until so many are open."""
    client = Ender(address)
    half = half_frame(topic)
    client.sock.sendall(half * WINDOW)
    began = time.perf_counter()
    done = 0
    for turn in count():
        answers = client.answers()
        done += len(answers)
        if done >= leave_open if leave_open else time.perf_counter() - began > seconds:
            break
        if leave_open and turn % 100 == 0:
            half = half_frame(topic)  # as young as it says
        ends = [] if leave_open else client.ends(answers)
        client.sock.sendall(b"".join([*ends, half * len(answers)]))
    client.sock.close()
    return done, time.perf_counter() - began


if __name__ == "__main__":
    transactions, took = run(sys.argv[1], sys.argv[2], float(sys.argv[3]), *map(int, sys.argv[4:5]))
    print("@@", transactions, took)
