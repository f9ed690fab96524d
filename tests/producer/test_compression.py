"""Bodies that a producer compressed come out of every consumer as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq import (
    ConfigError,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageView,
    Producer,
    PushConsumer,
)
from orbitmq.client.config import make_config
from orbitmq.client.namespace import NO_NAMESPACE
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.outgoing import prepare_message
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


@pytest.mark.parametrize("name", ["ZLIB", "LZ4", "ZSTD"])
def test_a_type_may_be_given_by_its_name(name: str) -> None:
    if CompressionType[name] in PACKAGES:
        pytest.importorskip(PACKAGES[CompressionType[name]])
    settings: Any = {"compress_type": name, "name_server": "127.0.0.1:9876"}
    assert make_config(ProducerConfig, settings).compression is CompressionType[name]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"compress_type": "GZIP"}, "compress_type='GZIP'"),
        ({"compress_type": 7}, "compress_type=7"),
        ({"compress_level": 10}, "compress_level=10 is not allowed: 0 to 9 for .*ZLIB"),
        ({"compress_level": -1}, "compress_level=-1"),
        ({"compress_level": 0, "compress_type": "ZSTD"}, "1 to 22 for compress_type=ZSTD"),
    ],
)
def test_wrong_settings_are_named(settings: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Producer("reporters", name_server="127.0.0.1:9876", **settings)


@pytest.mark.parametrize(("name", "extra"), [("LZ4", "lz4"), ("ZSTD", "zstd")])
def test_a_missing_package_is_named_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, name: Any, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[CompressionType[name]], None)
    with pytest.raises(ConfigError, match=rf"compress_type='{name}'.*orbitmq\[{extra}\]"):
        Producer("reporters", name_server="127.0.0.1:9876", compress_type=name)


def test_a_level_goes_into_the_bytes(broker: EmbeddedBroker) -> None:
    sizes = {}
    for level in (0, 9):
        config = make_config(
            ProducerConfig, {"compress_level": level, "name_server": broker.name_server}
        )
        sizes[level] = len(prepare_message(Message("reports", TEXT), config, NO_NAMESPACE).body)
    assert sizes[9] < sizes[0] == len(TEXT), "what would grow goes as it is"
