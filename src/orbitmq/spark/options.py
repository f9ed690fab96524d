"""The options of ``format("rocketmq")``: read once from Spark's strings, checked, and documented.

Spark hands option names over in lower case and passes on what the user gave anywhere, so an
unknown one is more likely a slip than meant: it is an error that names the nearest known option.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from orbitmq.client.config import ClientConfig, make_config
from orbitmq.errors import ConfigError, IllegalNameError
from orbitmq.filters.tags import parse_tags
from orbitmq.names import check_group, check_topic
from orbitmq.net.blocking import OPEN, Access
from orbitmq.spark.offsets import EARLIEST, LATEST, Boundary, parse_boundary

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group every broker has for who only looks; reads without a group of their own use it."""
PRODUCER_GROUP: Final = "orbitmq_spark"

_T = TypeVar("_T")

# What Spark hands on although it is its own: writeStream.option("checkpointLocation", ...).
_OF_SPARK: Final = {"checkpointlocation"}


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to read; each field is the option of that name."""

    name_servers: tuple[str, ...]
    """nameServer: ``host:port`` of the name servers, joined by ``;``."""
    topic: str
    """topic: what to read."""
    tags: frozenset[str] | None = None
    """tags: only messages of these, joined by ``||``. Default ``*``, all."""
    expression: str = "*"
    """The option tags as the broker wants it."""
    group: str | None = None
    """group: the consumer group that the offsets of a streaming query are committed to, for
    RocketMQ's tools to see its lag. Where the query begins does not depend on it."""
    starting_offsets: Boundary = EARLIEST
    """startingOffsets: earliest (default of a batch), latest (default of a stream) or JSON. A
    query that finds a checkpoint goes on from there instead."""
    ending_offsets: Boundary = LATEST
    """endingOffsets: latest (default), earliest or JSON. Batch only."""
    max_offsets_per_trigger: int | None = None
    """maxOffsetsPerTrigger: how many offsets one micro-batch takes at most, of all queues together.
    Default: no limit. Streams only."""
    fail_on_data_loss: bool = True
    """failOnDataLoss: whether to stop when messages to be read are gone, or go on without them."""
    max_tasks: int = 1
    """maxTasks: how many tasks read at the same time at most. Default: the driver's CPU count."""
    idle_wait_ms: int = 1000
    """idleWaitMs: how long, at most, an idle stream waits for messages before it tells Spark that
    there are none. A message ends the wait. 0 does not wait. Streams only."""
    access: Access = OPEN
    """accessKey, secretKey, securityToken: who signs the requests, for brokers with ACL on.
    useTls (default false), tlsCaFile, tlsCertFile, tlsKeyFile, tlsKeyPassword: how connections are
    encrypted; the files are PEM, at the same path on the driver and every executor."""

    @property
    def reading_group(self) -> str:
        """The group to pull with."""
        return self.group or TOOLS_GROUP


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to write; each field is the option of that name."""

    name_servers: tuple[str, ...]
    """nameServer: ``host:port`` of the name servers, joined by ``;``."""
    topic: str | None = None
    """topic: where rows go that have no topic of their own."""
    group: str = PRODUCER_GROUP
    """group: the producer group."""
    access: Access = OPEN
    """accessKey and so on, as for reading."""


def read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of a read, None where it is not known yet whether of a stream or a batch.

    Raises ConfigError, naming the option, its value and what may be.
    """
    given = _Given(options, "reading", _READ_NAMES)
    if streaming:
        given.refuse("endingOffsets", "a stream has no end; leave the option out")
    elif streaming is not None:
        given.refuse("maxOffsetsPerTrigger", "a batch reads all; leave the option out")
        given.refuse("idleWaitMs", "a batch does not wait; leave the option out")
    expression = given.get("tags", str.strip, "*")
    begin = LATEST if streaming else EARLIEST
    return ReadOptions(
        name_servers=given.name_servers(),
        topic=given.required("topic", _topic),
        tags=given.get("tags", parse_tags, None),
        expression=expression,
        group=given.get("group", _group, None),
        starting_offsets=given.get("startingOffsets", _boundary("startingOffsets"), begin),
        ending_offsets=given.get("endingOffsets", _boundary("endingOffsets"), LATEST),
        max_offsets_per_trigger=given.get("maxOffsetsPerTrigger", _number(1), None),
        fail_on_data_loss=given.get("failOnDataLoss", _boolean, default=True),
        max_tasks=given.get("maxTasks", _number(1), _cpus()),
        idle_wait_ms=given.get("idleWaitMs", _number(0), 1000),
        access=given.access(),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write. Raises ConfigError, naming the option, its value and what may be."""
    given = _Given(options, "writing", _WRITE_NAMES)
    return WriteOptions(
        name_servers=given.name_servers(),
        topic=given.get("topic", _topic, None),
        group=given.get("group", _group, PRODUCER_GROUP),
        access=given.access(),
    )


_ACCESS: Final = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "securityToken": "security_token",
    "useTls": "use_tls",
    "tlsCaFile": "tls_ca_file",
    "tlsCertFile": "tls_cert_file",
    "tlsKeyFile": "tls_key_file",
    "tlsKeyPassword": "tls_key_password",
}
"""Options that are settings of every client (ClientConfig)."""

_READ_NAMES: Final = (
    "nameServer",
    "topic",
    "tags",
    "group",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "maxTasks",
    "idleWaitMs",
    *_ACCESS,
)
_WRITE_NAMES: Final = ("nameServer", "topic", "group", *_ACCESS)


class _Given:
    """The options as given, none of them unknown."""

    def __init__(self, options: Mapping[str, str], use: str, names: tuple[str, ...]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        for name, value in options.items():
            if name.lower() not in {known.lower() for known in names} | _OF_SPARK:
                raise ConfigError(name, value, _no_such_option(name, use, names))

    def get(self, name: str, parse: Callable[[str], _T], default: Any) -> Any:
        text = self._options.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ConfigError as error:
            raise ConfigError(name, text, error.allowed) from error
        except (ValueError, IllegalNameError) as error:
            raise ConfigError(name, text, str(error)) from error

    def required(self, name: str, parse: Callable[[str], _T]) -> Any:
        if name.lower() not in self._options:
            raise ConfigError(name, None, f'the option is required: .option("{name}", ...)')
        return self.get(name, parse, None)

    def refuse(self, name: str, reason: str) -> None:
        text = self._options.get(name.lower())
        if text is not None:
            raise ConfigError(name, text, reason)

    def name_servers(self) -> tuple[str, ...]:
        servers: tuple[str, ...] = self.required("nameServer", _addresses)
        return servers

    def access(self) -> Access:
        settings = {
            setting: self.get(option, _boolean if option == "useTls" else str, None)
            for option, setting in _ACCESS.items()
            if option.lower() in self._options
        }
        servers = ";".join(self.name_servers())
        try:
            config = make_config(ClientConfig, {"name_server": servers, **settings})
        except ConfigError as error:
            option = next(option for option in _ACCESS if _ACCESS[option] == error.name)
            raise ConfigError(option, error.value, error.allowed) from error
        return Access(config.credentials, config.tls)


def _no_such_option(name: str, use: str, names: tuple[str, ...]) -> str:
    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"did you mean {lower[close[0]]}? " if close else ""
    return f"no such option; {hint}{use} has {', '.join(names)}"


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses or ("",):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{address!r} is not host:port; several are joined by ';', such as "
                "'ns1:9876;ns2:9876'"
            )
    return addresses


def _topic(text: str) -> str:
    check_topic(text)
    return text


def _group(text: str) -> str:
    check_group(text)
    return text


def _boundary(name: str) -> Callable[[str], Boundary]:
    return lambda text: parse_boundary(name, text)


def _number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
            raise ValueError(f"a whole number, {least} or more")
        return int(text)

    return parse


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
