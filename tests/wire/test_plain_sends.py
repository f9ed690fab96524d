"""One pass from send requests to records and answers: as one by one, and on both cores the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.codes import RequestCode
from orbitmq.compiled import TWINS
from orbitmq.wire.command import RemotingCommand, decode_command, encode_request
from orbitmq.wire.frames import FRAME_LIMIT, FrameDecoder
from orbitmq.wire.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from orbitmq.wire.ids import tags_code
from orbitmq.wire.plain_sends import QueueRun, SendRules
from orbitmq.wire.properties import decode_properties
from orbitmq.wire.record import MULTI_TAGS, Draft, encode_record
from orbitmq.wire.response_template import ResponseTemplate

V4, V6 = bytes([127, 0, 0, 1, 0, 0, 42, 159]), bytes(range(20))
NOW = 1_700_000_000_000
TEMPLATE = ResponseTemplate(
    {"rate": "100%%", "msgId": "7F%016X", "queueId": "%d", "queueOffset": "%d", "key": "%b"}
)
SPECIAL = ("DELAY", "TRAN_MSG")
TOPICS = {"T": (4, 0), "Tags": (2, MULTI_TAGS), "话题" * 30: (1, 0)}

Encoded = tuple[bytes, list[bytes | None], list[QueueRun[str]]]

keys = st.sampled_from(["7F00000100002A9F", "k", "a-b", "", "é"])
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=9)
pairs = st.one_of(
    st.tuples(st.just("UNIQ_KEY"), keys),
    st.tuples(st.just("TAGS"), values),
    st.tuples(st.sampled_from(["KEYS", "W", "XUNIQ_KEY", "TAGS2", "Ä"]), values),
)
rare_pairs = st.tuples(st.sampled_from([*SPECIAL, "D", "DELA"]), values)
properties = st.tuples(
    st.lists(pairs, max_size=4),
    st.lists(st.tuples(st.just("UNIQ_KEY"), st.just("K1")), min_size=0, max_size=1),
    st.lists(rare_pairs, max_size=1),
    st.sampled_from(["\x02", "\x02", ""]),
).map(
    lambda parts: (
        "\x02".join(f"{name}\x01{value}" for some in parts[:3] for name, value in some) + parts[3]
    )
)
headers = st.builds(
    lambda **fields: SendMessageRequestHeaderV2(
        producer_group="g", default_topic="TBW102", default_topic_queue_nums=4, **fields
    ),
    topic=st.sampled_from([*TOPICS, "T", "T", "unknown"]),
    queue_id=st.sampled_from([0, 0, 1, 1, 2, 3, 4, -1]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 0x30, 4, 12]),
    born_timestamp=st.integers(-(1 << 63), (1 << 63) - 1)
    | st.sampled_from([-(1 << 63), 10**18, (1 << 63) - 1]),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    properties=st.none() | properties,
    reconsume_times=st.none() | st.integers(0, 99),
    batch=st.sampled_from([None, None, None, False, True]),
)
hosts = st.sampled_from([V4, V4, V6])
requests = st.tuples(headers, st.binary(max_size=70), hosts, st.booleans())


def frames(sends: Sequence[tuple[SendMessageRequestHeaderV2, bytes, bytes, bool]]) -> bytes:
    return b"".join(
        encode_request(RequestCode.SEND_MESSAGE_V2, number, header, body, oneway=oneway)
        for number, (header, body, _, oneway) in enumerate(sends)
    )


def rules_of(store_host: bytes = V4) -> SendRules:
    return SendRules(store_host, "MSG_REGION\x01Ä\x02", 64, SPECIAL, TEMPLATE.text, TEMPLATE.parts)


def encoded_by(core: int, sends: Any, store_host: bytes, limit: int, first: int = 0) -> Encoded:
    """What a core's own functions make of what came; 0 is Python's."""
    (decode, _), (encode, _) = (
        (TWINS[name][core] or pytest.skip("there is no compiled core"), None)
        for name in ("decode_frames", "encode_sends")
    )
    commands, _ = decode(frames(sends), FRAME_LIMIT, decode_command)
    noted = [
        (command, host, None) for command, (_, _, host, _) in zip(commands, sends, strict=True)
    ]
    rules = rules_of(store_host)
    result: Encoded = encode(
        noted,
        first,
        rules,
        TOPICS.get,
        lambda topic, queue: (f"{topic}-{queue}", 7),
        NOW,
        1000,
        limit,
    )
    return result


@given(st.lists(requests, max_size=12), hosts, st.sampled_from([1_000, 1_300, 2_500, 1 << 30]))
def test_the_cores_agree(sends: Any, store_host: bytes, limit: int) -> None:
    assert encoded_by(1, sends, store_host, limit) == encoded_by(0, sends, store_host, limit)
    if sends:
        assert encoded_by(1, sends, store_host, limit, 1) == encoded_by(
            0, sends, store_host, limit, 1
        )


@given(st.lists(requests, min_size=1, max_size=12), hosts)
@example([(SendMessageRequestHeaderV2(
    producer_group="g", topic="T", default_topic="", default_topic_queue_nums=4, queue_id=1,
    sys_flag=0, born_timestamp=1, flag=0, properties="UNIQ_KEY\x01K\x02TAGS\x01a\x02"),
    b"body", V4, False)], V6)  # fmt: skip
def test_each_record_is_what_the_message_alone_would_be(sends: Any, store_host: bytes) -> None:
    records, answers, runs = encoded_by(0, sends, store_host, 1 << 30)
    rules = rules_of(store_host)
    expected, position, offsets = b"", 1000, dict[tuple[str, int], int]()
    for number, (header, body, born_host, oneway) in enumerate(sends[: len(answers)]):
        text = (
            header.properties if header.properties.endswith("\x02") else header.properties + "\x02"
        )
        pairs = decode_properties(text.encode())
        queue = header.topic, header.queue_id
        offsets[queue] = offsets.get(queue, 6) + 1
        draft = Draft(
            header.topic, header.queue_id, body, (text + rules.suffix).encode(), 0, header.flag,
            header.sys_flag | TOPICS[header.topic][1], header.born_timestamp, born_host, store_host,
            header.reconsume_times or 0,
        )  # fmt: skip
        record = encode_record(draft, offsets[queue], position, NOW)
        (run,) = [run for run in runs if run[0] == f"{header.topic}-{header.queue_id}"]
        unit = run[4][20 * (offsets[queue] - 7) :][:20]
        code = tags_code(pairs.get("TAGS")) & (1 << 64) - 1
        assert unit == position.to_bytes(8) + len(record).to_bytes(4) + code.to_bytes(8)
        if oneway:
            assert answers[number] is None
        else:
            (answer,) = FrameDecoder().feed(answers[number] or b"")
            assert answer.opaque == number
            assert answer.ext_fields == {
                "rate": "100%", "msgId": f"7F{position:016X}", "queueId": str(header.queue_id),
                "queueOffset": str(offsets[queue]), "key": pairs["UNIQ_KEY"],
            }  # fmt: skip
        expected += record
        position += len(record)
    assert records == expected
    assert sum(run[3] for run in runs) == len(records)
    if runs:
        assert max(run[4][-20:] for run in runs) == runs[-1][4][-20:]


@pytest.mark.parametrize("core", [0, 1])
@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({"topic": "unknown"}, b""),
        ({"queue_id": 4}, b""),
        ({"queue_id": -1}, b""),
        ({"batch": True}, b""),
        ({"sys_flag": 4}, b""),
        ({"properties": None}, b""),
        ({"properties": "TAGS\x01a\x02"}, b""),
        ({"properties": "UNIQ_KEY\x01a b\x02"}, b""),
        ({"properties": "UNIQ_KEY\x01K\x02DELAY\x013\x02"}, b""),
        ({"properties": f"UNIQ_KEY\x01K\x02A\x01{'x' * 32_767}"}, b""),
        ({}, bytes(65)),
    ],
)
def test_what_is_not_plain_ends_the_pass(core: int, change: dict[str, Any], body: bytes) -> None:
    plain: dict[str, Any] = {
        "producer_group": "g", "topic": "T", "default_topic": "", "default_topic_queue_nums": 4,
        "queue_id": 1, "sys_flag": 0, "born_timestamp": 1, "flag": 0,
        "properties": "UNIQ_KEY\x01K\x02",
    }  # fmt: skip
    sends = [
        (SendMessageRequestHeaderV2(**fields), some, V4, False)
        for fields, some in [(plain, b"1"), (plain | change, body), (plain, b"3")]
    ]
    assert len(encoded_by(core, sends, V4, 1 << 30)[1]) == 1
    assert len(encoded_by(core, sends, V4, 1 << 30, 2)[1]) == 1


def test_old_headers_are_plain_too_in_python() -> None:
    header = SendMessageRequestHeader(
        producer_group="g", topic="T", default_topic="", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=1, flag=0, properties="UNIQ_KEY\x01K\x02",
    )  # fmt: skip
    frame = encode_request(RequestCode.SEND_MESSAGE, 1, header, b"x")
    command: RemotingCommand = decode_command(0, frame[8:-1], b"x")
    encode = TWINS["encode_sends"][0]
    records, answers, _ = encode(
        [(command, V4, None)], 0, rules_of(), TOPICS.get, lambda *_: ("q", 0), NOW, 0, 1 << 30
    )
    assert len(answers) == 1
    assert records
