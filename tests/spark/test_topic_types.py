"""Topics that take messages of one type alone: exactly_once knows before it decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    AuthenticationError,
    BrokerError,
    InvalidMessageError,
    NoPermissionError,
    RequestNotSupportedError,
    RowError,
)
from orbitmq.names import HALF_TOPIC
from orbitmq.net.blocking import OPEN, BlockingConnection
from orbitmq.producer.local_transactions import LocalTransactionState
from orbitmq.spark.sink.check_backs import CheckBacks
from orbitmq.spark.sink.frames import BESIDE, Frames
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.topic_types import check_rows, required_type
from orbitmq.wire.headers import CreateTopicRequestHeader
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import REAL_TOPIC, encode_properties
from orbitmq.wire.record import encode_batch
from tests.spark.spark_tasks import Asked, Killed, Query, killed_while_delivering, rows
from tests.spark.topics import Topic, stored

pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture
def topic() -> Iterator[Topic]:
    with EmbeddedBroker(enable_mixed_message_type=True) as running:
        yield Topic(running)


@pytest.fixture
def guarantee() -> str:
    return "exactly_once"


def make(topic: Topic, message_type: str) -> None:
    """Have ``topic`` take messages of this type alone."""
    header = CreateTopicRequestHeader(
        topic=topic.name, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6,
        topic_filter_type="SINGLE_TAG", attributes=f"+message.type={message_type}",
    )  # fmt: skip
    topic.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


@pytest.mark.parametrize(
    ("message_type", "key", "found"),
    [
        ("TRANSACTION", None, "NORMAL"),
        ("TRANSACTION", "k", "FIFO"),
        ("NORMAL", "k", "FIFO"),
        ("FIFO", None, "NORMAL"),
        ("DELAY", None, "NORMAL"),
    ],
)
def test_rows_of_another_type_are_refused_before_anything_is_decided(
    query: Query, topic: Topic, message_type: str, key: str | None, found: str
) -> None:
    make(topic, message_type)
    plan = query.plan(0)
    with pytest.raises(RowError) as refused:
        query.task(plan, 0, [rows(["a", "b"], key)])
    assert str(refused.value) == (
        f"partition 0, row 0: topic {topic.name} takes {message_type} messages, this is a {found} "
        "one: send it to another topic, or change the attribute message.type"
    )
    query.abort([None], 0)
    assert stored(topic.broker, HALF_TOPIC) == {}
    # Nothing was decided: with another type the batch goes its way.
    make(topic, "UNSPECIFIED")
    query.commit([query.task(query.plan(0), 0, [rows(["a", "b"], key)])], 0)
    assert topic.bodies() == ["a", "b"]


@pytest.mark.parametrize(("message_type", "key"), [("NORMAL", None), ("FIFO", "k"), ("MIXED", "k")])
def test_rows_of_the_type_of_their_topic_are_delivered(
    query: Query, topic: Topic, message_type: str, key: str | None
) -> None:
    make(topic, message_type)
    sent = [query.task(query.plan(0), 0, [rows(["a", "b", "c"], key)])]
    query.commit(sent, 0)
    assert topic.bodies() == ["a", "b", "c"]


def test_what_stands_for_rows_of_one_type_is_asked_about_too(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(topic, "NORMAL")
    sent = [query.task(query.plan(0), 0, [rows(["a", "b"])])]
    with monkeypatch.context() as patch:
        killed_while_delivering(patch, 0)
        with pytest.raises(Killed):
            query.commit(sent, 0)
    (half,) = [view for views in stored(topic.broker, HALF_TOPIC).values() for view in views]
    options = WriteOptions(name_servers=(topic.broker.name_server,), namespace="other")
    asked = cast(MessageView, Asked(half, half.properties[REAL_TOPIC]))
    assert CheckBacks(options, take_over_ms=0)(asked) is LocalTransactionState.ROLLBACK
    assert topic.bodies() == ["a", "b"]


def test_types_count_where_brokers_go_by_them(topic: Topic) -> None:
    address = topic.broker.address
    assert required_type(address, topic.name, OPEN) is None
    assert required_type(address, "not-there-yet", OPEN) is None
    make(topic, "FIFO")
    assert required_type(address, topic.name, OPEN) == "FIFO"
    with EmbeddedBroker(topic_message_type_check=False) as broker:
        other = Topic(broker)
        make(other, "FIFO")
        assert required_type(broker.address, other.name, OPEN) is None


@pytest.mark.parametrize(
    ("refused", "error", "expected"),
    [
        (RequestCode.GET_TOPIC_CONFIG, RequestNotSupportedError, None),  # as of 4.9
        (RequestCode.GET_TOPIC_CONFIG, NoPermissionError, None),
        (RequestCode.GET_BROKER_CONFIG, NoPermissionError, "FIFO"),
        (RequestCode.GET_BROKER_CONFIG, AuthenticationError, "FIFO"),
    ],
)
def test_what_an_account_may_not_ask(
    topic: Topic,
    refused: RequestCode,
    error: type[BrokerError],
    expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(topic, "FIFO")
    request = BlockingConnection.request

    def answer(self: BlockingConnection, code: int, *arguments: Any, **named: Any) -> Any:
        if code == refused:
            raise error(0, "not for you", "127.0.0.1")
        return request(self, code, *arguments, **named)

    monkeypatch.setattr(BlockingConnection, "request", answer)
    assert required_type(topic.broker.address, topic.name, OPEN) == expected


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([b"x", b"__SHARDINGKEY"])), max_size=6),
    st.sampled_from(["NORMAL", "FIFO", "TRANSACTION"]),
)
def test_the_first_row_of_another_type_is_named(
    given_rows: list[tuple[bool, bytes]], expected: str
) -> None:
    pairs = [(body, encode_properties({"__SHARDINGKEY": "k"} if keyed else {"TAGS": "t"}))
             for keyed, body in given_rows]  # fmt: skip
    ends = np.cumsum([0, *(BESIDE + len(body) + len(properties) for body, properties in pairs)])
    frames = Frames(
        memoryview(encode_batch([(0, body, properties) for body, properties in pairs])),
        ends,
        np.zeros(len(pairs), np.int64),
        np.arange(100, 100 + len(pairs)),
        np.zeros((len(pairs), 0), np.uint8),
    )
    others = [
        n for n, (keyed, _) in enumerate(given_rows) if expected != ("FIFO" if keyed else "NORMAL")
    ]
    if others:
        with pytest.raises(InvalidMessageError, match=f"^row {100 + others[0]}: topic T takes"):
            check_rows("T", expected, frames)
    else:
        check_rows("T", expected, frames)
