"""The ACL signature: as Java's clients sign, in every way a request is encoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.codes import RequestCode
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.headers import GetRouteInfoRequestHeader
from orbitmq.wire.send_request import SendRequestTemplate, json_text
from orbitmq.wire.signing import REQUEST_TYPE, SIGNATURE, STREAM, Credentials, RpcHook

GOLDEN = Path(__file__).with_name("golden") / "signatures.json"
SIGNATURES = json.loads(GOLDEN.read_text(encoding="utf-8"))["signatures"]
CREDENTIALS = Credentials("account", "top secret", "token")


def hook_of(golden: dict[str, Any]) -> RpcHook:
    return RpcHook(
        credentials=Credentials(golden["accessKey"], golden["secretKey"], golden["securityToken"])
    )


@pytest.mark.parametrize("golden", SIGNATURES, ids=lambda golden: golden["name"])
def test_requests_are_signed_as_javas_client_signs_them(golden: dict[str, Any]) -> None:
    signed = hook_of(golden).apply(golden["fields"], bytes.fromhex(golden["body"]))
    assert signed == golden["signed"]


@pytest.mark.parametrize(
    "golden", [golden for golden in SIGNATURES if "send" in golden["name"]], ids=lambda g: g["name"]
)
def test_a_send_from_a_template_is_signed_alike(golden: dict[str, Any]) -> None:
    fields, body = golden["fields"], bytes.fromhex(golden["body"])
    batch = fields["m"] == "true"
    template = SendRequestTemplate(
        fields["a"],
        fields["b"],
        fields["n"],
        default_topic=fields["c"],
        default_topic_queue_nums=int(fields["d"]),
        unit_mode=fields["k"] == "true",
        code=RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2,
        hook=hook_of(golden),
    )
    head = template.head(
        *(1, int(fields["e"]), int(fields["f"]), int(fields["g"]), int(fields["h"])),
        json_text(fields["i"]),
        body,
    )
    (command,) = FrameDecoder().feed(head + body)
    assert command.ext_fields == golden["signed"]
    assert command.body == body


NAMES = st.text(max_size=12)
NUMBERS = st.integers(-(2**31), 2**31 - 1)


@given(NAMES, NAMES, NAMES, NUMBERS, NUMBERS, NAMES, st.binary(max_size=40))
def test_a_template_and_a_plain_request_agree(
    group: str, topic: str, broker: str, number: int, flag: int, properties: str, body: bytes
) -> None:
    hook = RpcHook({REQUEST_TYPE: STREAM, "ns": "100%"}, CREDENTIALS)
    template = SendRequestTemplate(
        group, topic, broker, default_topic="%d", default_topic_queue_nums=4, hook=hook
    )
    head = template.head(1, number, number, number, flag, json_text(properties), body)
    (command,) = FrameDecoder().feed(head + body)
    fields = command.ext_fields
    assert fields == hook.apply({name: fields[name] for name in "abcdefghijkmn"}, body)


def test_without_credentials_only_fields_are_added() -> None:
    hook = RpcHook({REQUEST_TYPE: STREAM})
    header = GetRouteInfoRequestHeader(topic="t")
    assert hook.apply(header, b"") == {"topic": "t", "ReqT": "0"}
    assert hook.apply(None, b"") == {"ReqT": "0"}
    assert not hook.signs


def test_the_headers_of_the_caller_stay_as_they_are() -> None:
    fields = {"topic": "t"}
    assert SIGNATURE in RpcHook(credentials=CREDENTIALS).apply(fields, b"")
    assert fields == {"topic": "t"}


def test_secrets_are_shown_nowhere() -> None:
    assert repr(CREDENTIALS) == "Credentials(access_key='account')"
    assert "secret" not in str(CREDENTIALS)
