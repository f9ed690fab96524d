"""A filled-in response has the same bytes as one encoded from its fields."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.codes import SUCCESS
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.response_template import ResponseTemplate

TEMPLATE = ResponseTemplate(
    {"REGION": "100%% sure", "msgId": "AB%04X", "queueId": "%d", "key": "%b", "last": "x"}
)


@given(
    st.integers(0, 1 << 20),
    st.integers(0, 99),
    st.from_regex(r"[0-9A-Za-z]*", fullmatch=True),
    st.integers(0, 9),
)
def test_filling_in_gives_what_encoding_gives(
    number: int, queue_id: int, key: str, opaque: int
) -> None:
    fields = {
        "REGION": "100% sure",
        "msgId": f"AB{number:04X}",
        "queueId": str(queue_id),
        "key": key,
        "last": "x",
    }
    expected = encode_response(RemotingCommand(opaque=opaque), SUCCESS, fields)
    assert TEMPLATE.fill((number, queue_id, key.encode(), opaque)) == expected


def test_the_length_counts_the_body_to_come_and_a_remark_is_kept() -> None:
    template = ResponseTemplate({"offset": "%d"}, "FOUND")
    request = RemotingCommand(opaque=7)
    expected = encode_response(request, SUCCESS, {"offset": "5"}, remark="FOUND", body_length=300)
    assert template.fill((5, 7), 300) == expected
