"""The options of a write with ``format("rocketmq")``: read from Spark's strings, checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from orbitmq.client.namespace import with_namespace
from orbitmq.errors import ConfigError
from orbitmq.net.blocking import OPEN, Access
from orbitmq.spark.option_values import (
    ACCESS_OPTIONS,
    Given,
    group_name,
    namespace_name,
    number,
    one_of,
    size_bytes,
    topic_name,
)
from orbitmq.spark.patience import BROKER_WAIT_MS
from orbitmq.wire.compress import CompressionType, check_compression

PRODUCER_GROUP: Final = "orbitmq_spark"

AT_LEAST_ONCE: Final = "at_least_once"
IDEMPOTENT: Final = "idempotent"
EXACTLY_ONCE: Final = "exactly_once"

COMPRESS_OVER: Final = 4096

WRITE_NAMES: Final = (
    "nameServer",
    "profile",
    "namespace",
    "topic",
    "group",
    "tags",
    "keys",
    "shardingKey",
    "properties",
    "delayTimeLevel",
    "delayMs",
    "deliverTime",
    "queueSelector",
    "deliveryGuarantee",
    "writeId",
    "compression",
    "compressionLevel",
    "compressOver",
    "brokerWaitMs",
    *ACCESS_OPTIONS,
)

_LEVELS: Final = {"zlib": 5, "zstd": 3, "lz4": 0}


class Compression(msgspec.Struct, frozen=True):
    """How bodies of ``over`` bytes or more are compressed."""

    kind: CompressionType
    level: int
    over: int = COMPRESS_OVER


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to write; each field is the option of that name."""

    name_servers: tuple[str, ...]
    """nameServer: ``host:port`` of the name servers, joined by ``;``; profile: as for reading."""
    namespace: str | None = None
    """namespace: of the topics and the group, which are named without it."""
    topic: str | None = None
    """topic: where rows go that have no topic of their own."""
    group: str = PRODUCER_GROUP
    """group: the producer group."""
    texts: dict[str, str] = msgspec.field(default_factory=dict)
    """tags, keys, shardingKey, by these names: for rows without one of their own."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    """properties: a JSON object of texts; every row gets them, unless it has its own."""
    delay: dict[str, int] = msgspec.field(default_factory=dict)
    """delayTimeLevel (1 to the brokers' last, by default 18 for 2 hours), delayMs, or deliverTime
    (ISO 8601 with its zone; ms since the epoch here), by these names: for rows without one of their
    own. The latter two need brokers of RocketMQ 5."""
    queue_selector: str | None = None
    """queueSelector: ``module:function``, a queue selector as producers take it. It is called for
    each row with the topic's queues, the message, and its sharding key; on the executors, where the
    module must be importable. Default: by the sharding key where there is one, else in turn."""
    guarantee: str = AT_LEAST_ONCE
    """deliveryGuarantee: ``at_least_once`` (default); ``idempotent``, whose rows a task that is run
    again looks for in the topic instead of sending them again; or ``exactly_once``, whose rows
    wait on the brokers until the whole batch is there, and are then delivered together."""
    write_id: str | None = None
    """writeId: the name of a batch write, so that one that is started again under it is taken for
    the same. Streaming queries have one. Default: another one each time."""
    compression: Compression | None = None
    """compression: ``none`` (default), ``zlib``, ``lz4`` or ``zstd``; compressionLevel: 0 to 9
    (default 5) of zlib, 1 to 22 (default 3) of zstd; compressOver: from which size on bodies are
    compressed, such as ``16k`` (default 4k). Brokers and clients before 5.0 know zlib only."""
    broker_wait_ms: int = BROKER_WAIT_MS
    """brokerWaitMs: as for reading."""
    access: Access = OPEN
    """accessKey and so on, as for reading."""


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write. Raises ConfigError, naming the option, its value and what may be."""
    given = Given(options, "writing", WRITE_NAMES)
    given.only_one("delayTimeLevel", "delayMs", "deliverTime")
    namespace = given.get("namespace", namespace_name, None)
    return WriteOptions(
        name_servers=given.name_servers(),
        namespace=namespace,
        topic=given.get("topic", topic_name, None),
        group=with_namespace(namespace, given.get("group", group_name, PRODUCER_GROUP)),
        texts={
            name: given.get(name, _text, "")
            for name in ("tags", "keys", "shardingKey")
            if name in given
        },
        properties=given.get("properties", _texts, {}),
        delay=_delay(given),
        queue_selector=given.get("queueSelector", _function_name, None),
        guarantee=_guarantee(given),
        write_id=given.get("writeId", _text, None),
        compression=_compression(given),
        broker_wait_ms=given.get("brokerWaitMs", number(0), BROKER_WAIT_MS),
        access=given.access(),
    )


def _guarantee(given: Given) -> str:
    guarantee: str = given.get(
        "deliveryGuarantee", one_of(AT_LEAST_ONCE, IDEMPOTENT, EXACTLY_ONCE), AT_LEAST_ONCE
    )
    if guarantee == AT_LEAST_ONCE:
        given.refuse("writeId", f"it means something to {IDEMPOTENT} and {EXACTLY_ONCE} alone")
    else:
        for name in ("delayTimeLevel", "delayMs", "deliverTime"):
            given.refuse(name, f"messages with a delay need deliveryGuarantee={AT_LEAST_ONCE}")
    return guarantee


def _delay(given: Given) -> dict[str, int]:
    parsers = {"delayTimeLevel": number(1), "delayMs": number(1), "deliverTime": _time_ms}
    return {name: given.get(name, parse, 0) for name, parse in parsers.items() if name in given}


def _compression(given: Given) -> Compression | None:
    name = given.get("compression", one_of("none", *_LEVELS), "none")
    if name == "none":
        for other in ("compressionLevel", "compressOver"):
            given.refuse(other, "nothing is compressed; give compression as well")
        return None
    level = given.get("compressionLevel", number(0), _LEVELS[name])
    kind = CompressionType[name.upper()]
    try:
        check_compression(kind, level)
    except ConfigError as error:
        option = "compressionLevel" if error.name == "compress_level" else "compression"
        raise ConfigError(option, error.value, error.allowed) from error
    return Compression(kind, level, given.get("compressOver", size_bytes, COMPRESS_OVER))


def _text(text: str) -> str:
    if not text or "\x01" in text or "\x02" in text:
        raise ValueError("a text, not empty, without the characters U+0001 and U+0002")
    return text


def _texts(text: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise ValueError(f'a JSON object of texts, such as {{"colour": "red"}}: {error}') from error
    for name, value in found.items():
        _text(name), _text(value)
    return found


def _time_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        time = datetime.min  # noqa: DTZ901 - refused below
    if time.tzinfo is None:
        raise ValueError("a time in ISO 8601 with its zone, such as 2030-01-31T12:00:00+01:00")
    return int(time.timestamp() * 1000)


def _function_name(text: str) -> str:
    module, _, function = text.strip().partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError("module:function, such as my_package.selectors:by_customer")
    return text.strip()
