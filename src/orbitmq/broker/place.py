"""Where brokers are: their addresses, their directory, and the name server beside them.

What a :class:`~orbitmq.broker.node.Node` and a group of workers both begin with.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.broker.config import BrokerConfig
from orbitmq.clock import Clock
from orbitmq.errors import ConfigError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.routes import RouteTable
from orbitmq.nameserver.server import NameServer
from orbitmq.net.addresses import local_ip

_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what the user may ask for


class Host(NamedTuple):
    """A host as clients are told it, and its numeric address, which records hold."""

    name: str
    numeric: str


def advertised(config: BrokerConfig) -> Host:
    """The host that clients are told. Raises ConfigError for one that is not this machine's."""
    if config.advertised_host:
        return Host(config.advertised_host, _numeric(config.advertised_host, "advertised_host"))
    numeric = local_ip() if config.host in _WILDCARDS else _numeric(config.host, "host")
    return Host(numeric, numeric)


def local(config: BrokerConfig) -> str:
    """A host by which processes of this machine reach what listens on the host of ``config``."""
    return _WILDCARDS.get(config.host, config.host)


def address(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def directory(config: BrokerConfig, undo: AsyncExitStack) -> Path:
    """Where everything is kept: the store's directory, or a temporary one that ``undo`` removes."""
    if config.store_directory is not None:
        return config.store_directory.absolute()
    temporary = tempfile.mkdtemp(prefix="orbitmq-")
    undo.callback(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


async def start_name_server(
    config: BrokerConfig, root: Path, clock: Clock, routes: RouteTable, undo: AsyncExitStack
) -> NameServer:
    """The name server beside brokers, which ``undo`` stops; with a store it keeps things there.

    Raises ConfigError or StoreError when it cannot be as ``config`` says.
    """
    given = _name_server_config(config, root)
    name_server = NameServer(clock, routes, config=given, tls=config.tls)
    await name_server.start(config.host, config.name_server_port)
    undo.push_async_callback(name_server.close)
    return name_server


def _name_server_config(config: BrokerConfig, root: Path) -> NameServerConfig:
    given = msgspec.structs.replace(
        config.name_server_config, connection_idle_ms=config.connection_idle_ms
    )
    if config.store_directory is None:
        return given
    kept = root / "namesrv"
    return msgspec.structs.replace(
        given,
        kv_config_path=given.kv_config_path or kept / "kvConfig.json",
        config_store_path=given.config_store_path or kept / "namesrv.properties",
    )


def _numeric(host: str, setting: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(
            setting, host, f"an address or name of this machine ({error.strerror})"
        ) from error
