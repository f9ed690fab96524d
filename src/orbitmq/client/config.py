"""Settings of the clients: frozen value objects, made once from keyword arguments, checked once.

Defaults are those of the Java client (ClientConfig, DefaultMQProducer and the consumers' classes)
unless a field says otherwise. Times are in milliseconds, sizes in bytes. A setting that does not
exist, or has a value it may not have, raises ConfigError naming it, its value and what is allowed.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from orbitmq import codes
from orbitmq.errors import ConfigError
from orbitmq.net.addresses import local_ip
from orbitmq.wire.compress import CompressionType

Millis = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]

NAME_SERVER_ENV = "NAMESRV_ADDR"
"""The environment variable that gives the name servers where ``name_server`` does not."""

_ConfigT = TypeVar("_ConfigT", bound="ClientConfig")


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every client has (Java's ``ClientConfig``)."""

    name_server: str | None = None
    """``host:port`` of the name servers, separated by ``;``. Default: env ``NAMESRV_ADDR``."""
    client_ip: str | None = None
    """What stands before ``@`` in the client id. Default: the address this host speaks from."""
    instance_name: str = "DEFAULT"
    """What stands after ``@`` in the client id. Clients of one process with the same name share
    connections; ``DEFAULT`` becomes ``pid#nanoseconds``, different for each client."""
    unit_name: str | None = None
    """A third part of the client id."""
    unit_mode: bool = False
    """Whether this client belongs to a unit of a divided deployment; told to the brokers."""
    poll_name_server_interval_ms: Millis = 30_000
    """How often the routes of the topics in use are fetched anew."""
    heartbeat_interval_ms: Millis = 30_000
    """How often every broker in use hears of this client."""
    persist_offset_interval_ms: Millis = 5_000
    """How often consumers store their offsets."""
    persist_offset_delay_ms: Millis = 10_000
    """When they store them first."""
    rebalance_interval_ms: Millis = 20_000
    """How often consumers balance their queues when nothing calls for it sooner."""
    rebalance_min_interval_ms: Millis = 1_000
    """The least time between two rebalances, and the time to the next after one that failed."""
    api_timeout_ms: Millis = 3_000
    """How long an answer to anything but a send or a pull may take."""
    connect_timeout_ms: Millis = 3_000
    """How long making a connection may take."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses in ``name_server``, or in the environment where it is None."""
        return name_servers(self.name_server)

    def new_client_id(self) -> str:
        """The id a client with these settings takes (ClientConfig.buildMQClientId).

        With the instance name DEFAULT every call gives another.
        """
        name = self.instance_name
        if name == "DEFAULT":
            name = f"{os.getpid()}#{time.monotonic_ns()}"
        parts = [self.client_ip or local_ip(), name]
        if self.unit_name:
            parts.append(self.unit_name)
        return "@".join(parts)


class ProducerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a producer has besides (Java's ``DefaultMQProducer``)."""

    send_timeout_ms: Millis = 3_000
    """How long a send may take in all, retries included."""
    send_max_timeout_per_request_ms: Millis | None = None
    """How long one attempt may take while another can follow. Default: all the time left."""
    retry_times_when_send_failed: CountOrZero = 2
    """How often ``send`` tries again, on another broker where there is one."""
    retry_times_when_send_async_failed: CountOrZero = 2
    """The same for ``send_async`` and AsyncProducer."""
    retry_another_broker_when_not_store_ok: bool = False
    """Whether to try again when the broker stored the message but could not flush or replicate."""
    retry_response_codes: frozenset[int] = frozenset(
        {
            codes.TOPIC_NOT_EXIST,
            codes.SERVICE_NOT_AVAILABLE,
            codes.SYSTEM_ERROR,
            codes.SYSTEM_BUSY,
            codes.NO_PERMISSION,
            codes.NO_BUYER_ID,
            codes.NOT_IN_CURRENT_UNIT,
            codes.GO_AWAY,
        }
    )
    """The response codes after which another attempt is made."""
    max_message_size: Count = 4 * 1024 * 1024
    """The largest body, or batch, that is sent; brokers refuse more than 4 MiB by default."""
    compress_over_bytes: Count = 4096
    """Bodies of at least this size are compressed. Batches are not."""
    compress_level: Annotated[int, Meta(ge=0, le=22)] = 5
    """0 to 9 for ZLIB, 1 to 22 for ZSTD."""
    compress_type: CompressionType = CompressionType.ZLIB
    """Anything but ZLIB needs brokers and consumers of RocketMQ 5, and an extra package here."""
    create_topic_key: str = "TBW102"
    """The topic whose route an unknown topic starts with, where brokers create topics by need."""
    default_topic_queue_nums: Count = 4
    """How many queues a topic created so gets, at most."""
    max_in_flight: Count = 1024
    """Messages sent asynchronously and not answered yet; the next send waits
    (``backPressureForAsyncSendNum``; Java does not limit them unless told to)."""
    max_in_flight_bytes: Count = 100 * 1024 * 1024
    """The same in bytes of body (``backPressureForAsyncSendSize``)."""


class ClientSettings(TypedDict, total=False):
    """The keyword arguments every client takes; see ClientConfig."""

    name_server: str | None
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    poll_name_server_interval_ms: int
    heartbeat_interval_ms: int
    persist_offset_interval_ms: int
    persist_offset_delay_ms: int
    rebalance_interval_ms: int
    rebalance_min_interval_ms: int
    api_timeout_ms: int
    connect_timeout_ms: int


class ProducerSettings(ClientSettings, total=False):
    """The keyword arguments a producer takes; see ProducerConfig."""

    send_timeout_ms: int
    send_max_timeout_per_request_ms: int | None
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    retry_response_codes: frozenset[int]
    max_message_size: int
    compress_over_bytes: int
    compress_level: int
    compress_type: CompressionType
    create_topic_key: str
    default_topic_queue_nums: int
    max_in_flight: int
    max_in_flight_bytes: int


def make_config(config_type: type[_ConfigT], settings: Mapping[str, Any]) -> _ConfigT:
    """A checked ``config_type`` from keyword arguments.

    Raises ConfigError for an unknown setting, a wrong type or value, and for name servers that
    are missing or malformed.
    """
    unknown = settings.keys() - set(config_type.__struct_fields__)
    if unknown:
        name = min(unknown)
        raise ConfigError(name, settings[name], _no_such_setting(name, config_type))
    try:
        config = msgspec.convert(settings, config_type)
    except msgspec.ValidationError as error:
        name, allowed = _explain(error)
        raise ConfigError(name, settings.get(name), allowed) from error
    name_servers(config.name_server)
    return config


def name_servers(text: str | None) -> tuple[str, ...]:
    """The addresses in ``text``, or in env ``NAMESRV_ADDR`` where it is None.

    Raises ConfigError when there is none, or one that is not ``host:port``.
    """
    given = os.environ.get(NAME_SERVER_ENV) if text is None else text
    addresses = tuple(part.strip() for part in (given or "").split(";") if part.strip())
    if not addresses:
        raise ConfigError(
            "name_server",
            text,
            f"give host:port, such as name_server='127.0.0.1:9876', or set {NAME_SERVER_ENV}",
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                "name_server",
                given,
                f"{address!r} is not host:port; several are separated by ';', "
                "such as 'ns1:9876;ns2:9876'",
            )
    return addresses


def _no_such_setting(name: str, config_type: type[ClientConfig]) -> str:
    close = difflib.get_close_matches(name, config_type.__struct_fields__, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{config_type.__name__} has no such setting{hint}"


def _explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """The setting and what it may be, from ``Expected `int` >= 1 - at `$.send_timeout_ms```."""
    text, _, path = str(error).partition(" - at ")
    name = re.search(r"\$\.(\w+)", path)
    return name.group(1) if name else "settings", text.replace("`", "")
