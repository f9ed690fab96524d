"""The send request template writes what the general encoder writes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from orbitmq.codes import RequestCode
from orbitmq.errors import HeaderError
from orbitmq.wire.command import RemotingCommand, encode_request
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.headers import SendMessageRequestHeaderV2
from orbitmq.wire.send_request import SendRequestTemplate, json_text

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.integers(0, 2**31 - 1)


def decoded(frame: bytes) -> RemotingCommand:
    (command,) = FrameDecoder().feed(frame)
    return command


@given(
    names=st.tuples(NAMES, NAMES, NAMES, NAMES),
    properties=NAMES,
    numbers=st.tuples(INTS, INTS, INTS, INTS, st.integers(0, 2**62), st.integers(-(2**31), 0)),
    body=st.binary(max_size=50),
    switches=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_the_template_decodes_to_the_same_command(
    names: tuple[str, str, str, str],
    properties: str,
    numbers: tuple[int, int, int, int, int, int],
    body: bytes,
    switches: tuple[bool, bool, bool],
) -> None:
    group, topic, broker, default_topic = names
    queues, opaque, queue_id, sys_flag, born, flag = numbers
    batch, oneway, unit_mode = switches
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    template = SendRequestTemplate(
        group,
        topic,
        broker,
        default_topic=default_topic,
        default_topic_queue_nums=queues,
        unit_mode=unit_mode,
        code=code,
    )
    head = template.head(
        opaque, queue_id, sys_flag, born, flag, json_text(properties), body, oneway=oneway
    )
    header = SendMessageRequestHeaderV2(
        producer_group=group,
        topic=topic,
        default_topic=default_topic,
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=born,
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=unit_mode,
        batch=batch,
        bname=broker,
    )
    general = decoded(encode_request(code, opaque, header, body, oneway=oneway))
    special = decoded(head + body)
    assert special.ext_fields == general.ext_fields
    assert special.header(SendMessageRequestHeaderV2) == header
    for name in ("code", "opaque", "flag", "language", "version", "serialize_type", "body"):
        assert getattr(special, name) == getattr(general, name), name


def test_a_header_over_the_limit_is_refused() -> None:
    template = SendRequestTemplate("g", "t", "b", default_topic="d", default_topic_queue_nums=4)
    with pytest.raises(HeaderError, match="over 16777215"):
        template.head(1, 0, 0, 0, 0, json_text("x" * 0x1000000), b"")
