"""The compiled core gives back what it takes: a call that keeps something would fill a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.codes import RequestCode
from orbitmq.compiled import TWINS
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.index_keys import KINDS
from orbitmq.store.index_slots import IndexSlots
from orbitmq.wire.command import decode_command, encode_request
from orbitmq.wire.frames import FRAME_LIMIT
from orbitmq.wire.headers import SendMessageRequestHeaderV2
from orbitmq.wire.plain_sends import SendRules
from orbitmq.wire.record import Draft, encode_batch, encode_record

HOST = bytes(range(1, 9))
PROPERTIES = b"UNIQ_KEY\x01" + b"7F" * 16 + b"\x02KEYS\x01one two\x02TAGS\x01red\x02"
HEADER = SendMessageRequestHeaderV2(
    producer_group="makers", topic="T", default_topic="TBW102", default_topic_queue_nums=4,
    queue_id=1, sys_flag=0, born_timestamp=1_700_000_000_000, flag=0,
    properties=PROPERTIES.decode(),
)  # fmt: skip
FRAMES = b"".join(
    encode_request(code, 100_000 + number, HEADER, b"x" * 500, oneway=number == 2)
    for number, code in enumerate(
        [RequestCode.SEND_MESSAGE_V2] * 3 + [RequestCode.GET_BROKER_CONFIG]
    )
)
RULES = SendRules(
    HOST, "MSG_REGION\x01r\x02", 4096, ("DELAY",), b"", [b"%016X", b"1", b"2", b"3", b"4", b"5"]
)
UNITS = b"".join(UNIT.pack(position, 300, 7) for position in range(1_000, 9_000, 1_000))
RECORD = encode_record(Draft("T", 1, b"x", PROPERTIES, 0, 0, 0, 1, HOST, HOST), 0, 1 << 35, 1 << 40)
VIEW = memoryview(bytes(10_000))


def sends() -> object:
    commands, _ = TWINS["decode_frames"][1](FRAMES, FRAME_LIMIT, decode_command)  # type: ignore[misc]
    noted = [(command, HOST, None) for command in commands]
    encode: Any = TWINS["encode_sends"][1]
    return encode(
        noted, 0, RULES, lambda _: (4, 0), lambda *_: ("q", 70_000), 1 << 40, 1 << 35, 1 << 40
    )


def slots() -> object:
    keys: Any = TWINS["record_keys"][1]
    entries, _, _ = keys(RECORD, 1 << 35, -1, True, KINDS)
    table = IndexSlots(5_000)
    return table.put(entries, 300_000, 1 << 39), table.stored(0, 5_000), table.touched()


CALLS: dict[str, Callable[[], object]] = {
    "decode_frames and encode_sends": sends,
    "encode_body": lambda: TWINS["encode_body"][1](  # type: ignore[misc]
        encode_batch([(1, b"x" * 300, PROPERTIES)] * 4),
        (7, 1, bytes(60), b"\x01T"),
        b"\x02TAGS\x01",
        4096,
        (70_000, 1 << 35, 1 << 40),
    ),
    "neighbours": lambda: TWINS["neighbours"][1](VIEW, 0, 10_000, UNITS, 32, 1 << 20),  # type: ignore[misc]
    "record_keys and IndexSlots": slots,
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_kept(name: str) -> None:
    if TWINS["neighbours"][1] is None:
        pytest.skip("there is no compiled core")
    call = CALLS[name]
    for _ in range(100):
        assert call()
    before = sys.getallocatedblocks()
    for _ in range(1_000):
        call()
    assert sys.getallocatedblocks() - before < 500
