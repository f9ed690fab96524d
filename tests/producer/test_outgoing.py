"""What is made of a message before it leaves: its properties, all of them and nothing else."""

from __future__ import annotations

from concurrent.futures import Future
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import InvalidMessageError, Message
from orbitmq.client.config import make_config
from orbitmq.client.loop import loop_thread
from orbitmq.client.namespace import Namespace
from orbitmq.client.outcomes import OutcomeFuture
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.outgoing import prepare_message
from orbitmq.wire.properties import SYSTEM_PROPERTIES, encode_properties

CONFIG = make_config(ProducerConfig, {"name_server": "127.0.0.1:9876"})
FIXED = {"TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "DELAY", "INSTANCE_ID"}

names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1).filter(
    lambda name: name not in SYSTEM_PROPERTIES | FIXED
)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"))
users = st.dictionaries(names | st.sampled_from(["WAIT", "BUYER_ID"]), values)


def stored(message: Message, namespace: str | None = None) -> bytes:
    """The properties as they leave, without the unique id."""
    outgoing = prepare_message(message, CONFIG, Namespace(namespace))
    text = msgspec.json.decode(outgoing.properties, type=str)
    return text.encode().replace(b"UNIQ_KEY\x01%b\x02" % outgoing.message_id.encode(), b"", 1)


@given(
    tags=st.none() | values,
    keys=st.none() | values,
    sharding_key=st.none() | values,
    delay_level=st.integers(0, 18),
    namespace=st.none() | st.just("ns"),
    properties=st.none() | users,
)
def test_properties_are_those_of_the_general_encoder(
    tags: str | None,
    keys: str | None,
    sharding_key: str | None,
    delay_level: int,
    namespace: str | None,
    properties: dict[str, str] | None,
) -> None:
    message = Message(
        "t", b"x", tags=tags, keys=keys, sharding_key=sharding_key, delay_level=delay_level,
        properties=properties,
    )  # fmt: skip
    named = {"TAGS": tags, "KEYS": keys, "__SHARDINGKEY": sharding_key, "INSTANCE_ID": namespace}
    expected = {
        "WAIT": "true",
        **(properties or {}),
        **{name: value for name, value in named.items() if value},
        **({"DELAY": str(delay_level)} if delay_level else {}),
    }
    pairs = stored(message, namespace).split(b"\x02")
    assert sorted(pairs) == sorted(encode_properties(expected).split(b"\x02"))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"tags": "a\x02b"}, r"separator: \('TAGS', 'a\\x02b'\)"),
        ({"keys": "a\x02b\x01c", "tags": "a"}, r"separator: \('KEYS'"),
        ({"sharding_key": "\x02"}, r"separator: \('__SHARDINGKEY'"),
        ({"properties": {"a\x01b": "c"}}, "separator"),
        ({"tags": "\ud800"}, "not valid Unicode"),
        ({"properties": {"a": "\ud800"}}, "not valid Unicode"),
        ({"keys": "k" * 32768}, "take 328.. bytes, over 32767"),
        ({"keys": "\u00fc" * 16384}, "take 328.. bytes, over 32767"),
    ],
)
def test_properties_that_could_not_be_read_back_are_refused(
    fields: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidMessageError, match=what):
        stored(Message("t", b"x", **fields))


def test_texts_of_an_enumeration_go_by_their_value() -> None:
    class Tag(StrEnum):
        LATE = "late"

    message = Message("t", b"x", tags=Tag.LATE, keys=Tag.LATE, properties={"a": Tag.LATE})
    assert b"TAGS\x01late\x02KEYS\x01late\x02" in stored(message)
    assert b"a\x01late\x02" in stored(message)


def test_a_future_has_all_that_those_of_the_standard_library_have() -> None:
    assert vars(Future()).keys() <= vars(OutcomeFuture(loop_thread())).keys()
