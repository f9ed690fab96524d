"""Lists of messages cut into batches that brokers take."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import EmbeddedBroker, InvalidMessageError, Message, Producer, split_batch
from orbitmq.client.config import make_config
from orbitmq.client.namespace import NO_NAMESPACE
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.outgoing import prepare_batch

CONFIG = make_config(ProducerConfig, {"name_server": "127.0.0.1:9876"})


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.text("kä", max_size=50))),
    st.integers(600, 2000),
)
def test_nothing_is_lost_and_every_batch_fits(
    contents: list[tuple[bytes, str]], max_bytes: int
) -> None:
    messages = [Message("orders", body, keys=keys) for body, keys in contents]
    batches = list(split_batch(messages, max_bytes))
    assert list(itertools.chain(*batches)) == messages
    sizes = [len(prepare_batch(batch, CONFIG, NO_NAMESPACE).body) for batch in batches]
    assert all(size <= max_bytes for size in sizes)
    for (batch, size), following in zip(
        zip(batches, sizes, strict=True), batches[1:], strict=False
    ):
        one_more = prepare_batch([*batch, following[0]], CONFIG, NO_NAMESPACE)
        assert len(one_more.body) > max_bytes, f"{size} bytes leave room for another"


def test_what_does_not_fit_alone_is_named() -> None:
    with pytest.raises(InvalidMessageError, match="over max_bytes=1000: send it by itself"):
        list(split_batch([Message("orders", b"x" * 1000)], 1000))


def test_a_list_may_be_endless() -> None:
    endless = (Message("orders", b"x" * 100) for _ in itertools.count())
    assert len(next(split_batch(endless, 1000))) > 1


def test_a_list_that_is_too_large_is_refused_with_the_remedy(broker: EmbeddedBroker) -> None:
    messages = [Message("orders", b"x" * 100) for _ in range(20)]
    with Producer("makers", name_server=broker.name_server, max_message_size=1000) as producer:
        with pytest.raises(InvalidMessageError, match=r"split_batch\(messages, 1000\)"):
            producer.send(messages)
        results = [producer.send(batch) for batch in split_batch(messages, 1000)]
    assert sum(len(result.message_id.split(",")) for result in results) == 20
