"""Bodies that a producer compressed come out of every consumer as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, MessageView, Producer, PushConsumer
from orbitmq.testing.wait import wait_until
from orbitmq.wire.compress import COMPRESSED, CompressionType, compression_type

PACKAGES = {CompressionType.LZ4: "lz4.frame", CompressionType.ZSTD: "zstandard"}
TEXT = b"".join(random.Random(7).choices([b"late ", b"early ", b"on time "], k=4000))
FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.parametrize("kind", CompressionType)
def test_a_compressed_body_comes_out_as_it_was(
    broker: EmbeddedBroker, kind: CompressionType
) -> None:
    if kind in PACKAGES:
        pytest.importorskip(PACKAGES[kind])
    topic = f"reports-{kind.name}"
    with Producer("reporters", name_server=broker.name_server, compress_type=kind) as producer:
        producer.send(Message(topic, TEXT))
    with LitePullConsumer(
        f"readers-{kind.name}", name_server=broker.name_server, consume_from_where=FROM_FIRST
    ) as consumer:
        consumer.subscribe(topic)
        (polled,) = consumer.poll(timeout=10)
    pushed: list[MessageView] = []
    listener = PushConsumer(
        f"listeners-{kind.name}",
        pushed.extend,
        name_server=broker.name_server,
        consume_from_where=FROM_FIRST,
    )
    listener.subscribe(topic)
    with listener:
        wait_until(lambda: bool(pushed))
    for message in (polled, pushed[0]):
        assert message.sys_flag & COMPRESSED
        assert compression_type(message.sys_flag) is kind
        assert message.store_size < len(TEXT) // 2
        assert message.body == TEXT
