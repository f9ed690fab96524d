"""``orbitmq broker``: a broker and its name server, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    import msgspec

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.net.tls import ServerTls

_SettingsT = TypeVar("_SettingsT", bound="msgspec.Struct")

_FLUSH_MODES: Final = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "broker",
        help="run a broker and a name server",
        description="Run a broker and a name server until SIGINT or SIGTERM. When clients can "
        "connect, one line says where: ready name-server=HOST:PORT broker=HOST:PORT store=DIR. "
        "With --workers N it is N brokers of one cluster, each a process. "
        "With --name-server it is a broker alone, one more of a cluster. Settings are read from a "
        "broker.conf with -c, by the keys of Apache's; options given here go before it.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-c",
        "--config-file",
        type=Path,
        metavar="FILE",
        help="settings by Apache's keys, key=value a line; what mqadmin changes is kept in it",
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--advertised-host",
        help="address or name that clients are told; --host, or this machine's own for a wildcard",
    )
    parser.add_argument("--port", type=int, help="the broker's port, 0: any free (default: 10911)")
    parser.add_argument(
        "--name-server-port",
        type=int,
        help="the name server's port, 0: any free (default: 9876)",
    )
    parser.add_argument(
        "--name-server",
        metavar="HOST:PORT",
        help="name servers to register at, separated by ';', instead of running one",
    )
    parser.add_argument(
        "--fast-listen-port", type=int, help="the VIP channel: a port two below the broker's own"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="run N brokers (broker-a-0, broker-a-1 ...), each a process, with a directory of its "
        "name in --store and ports 10 above those of the one before",
    )
    _add_tls(parser)
    parser.add_argument(
        "--store", type=Path, help="directory to keep messages in; temporary if not given"
    )
    parser.add_argument(
        "--flush",
        choices=_FLUSH_MODES,
        help="what an acknowledged message survives: async, a killed process; sync, a power cut "
        "(default: async)",
    )
    _add_sizes(parser)
    parser.add_argument("--broker-name", help="the name queues are known by (default: broker-a)")
    parser.add_argument("--cluster", help="the cluster's name (default: DefaultCluster)")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="how much is told on stderr (default: warning)",
    )
    parser.set_defaults(run=run, parser=parser)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mapped-file-size",
        type=int,
        help="bytes of a commit-log file; stays as it is for a store that has files "
        "(default: 1073741824)",
    )
    parser.add_argument(
        "--consume-queue-units",
        type=int,
        help="entries of a consume-queue file; stays as it is for a store that has files "
        "(default: 300000)",
    )
    parser.add_argument(
        "--max-message-size", type=int, help="the longest body, bytes (default: 4194304)"
    )
    parser.add_argument(
        "--cut-damaged-log",
        action="store_true",
        help="when the commit log is damaged in the middle: drop the damaged message and ALL "
        "messages stored after it, for good, instead of refusing to start; copy the store before",
    )


def _add_tls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tls-cert", type=Path, help="PEM file of a certificate; without one there is no TLS"
    )
    parser.add_argument(
        "--tls-key", type=Path, help="PEM file of its private key; in --tls-cert if not given"
    )
    parser.add_argument(
        "--tls-mode",
        choices=("permissive", "enforcing", "disabled"),
        default="permissive",
        help="who may connect: permissive, with TLS or without; enforcing, with TLS only "
        "(default: permissive)",
    )


def _tls(options: argparse.Namespace) -> ServerTls | None:
    from orbitmq.net.tls import ServerTls, TlsMode

    if options.tls_cert is None:
        if options.tls_key is not None:
            raise ConfigError("--tls-cert", None, "--tls-key is given: its certificate, too")
        return None
    return ServerTls(
        cert_file=options.tls_cert, key_file=options.tls_key, mode=TlsMode(options.tls_mode)
    )


def _with(settings: _SettingsT, **given: Any) -> _SettingsT:
    """``settings`` with the options that were given; the others are None."""
    import msgspec

    given = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **given)


def run(options: argparse.Namespace) -> None:
    """Run the broker. Raises OrbitMQError when it cannot be as asked."""
    from orbitmq.broker import process

    process.log_to_stderr(options.log_level)
    process.run(_serve(_config(options), options))


def _config(options: argparse.Namespace) -> BrokerConfig:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.store.config import FlushMode

    file: Path | None = options.config_file
    base = BrokerConfig() if file is None else BrokerConfig.from_file(file)
    return _with(
        base,
        host=options.host,
        advertised_host=options.advertised_host,
        port=options.port,
        fast_listen_port=options.fast_listen_port,
        tls=_tls(options),
        name_server_port=options.name_server_port,
        name_server=options.name_server,
        store_directory=options.store,
        store_config=_with(
            base.store_config,
            mapped_file_size=options.mapped_file_size,
            consume_queue_units=options.consume_queue_units,
            max_message_size=options.max_message_size,
            flush_mode=options.flush and FlushMode(_FLUSH_MODES[options.flush]),
            cut_damaged_log=options.cut_damaged_log or None,
        ),
        broker_name=options.broker_name,
        cluster_name=options.cluster,
    )


async def _serve(config: BrokerConfig, options: argparse.Namespace) -> None:
    from orbitmq.broker import process
    from orbitmq.broker.node import Node
    from orbitmq.broker.workers import Workers

    stop = process.told_to_stop()
    brokers: Node | Workers
    if options.workers is None:
        brokers = Node(config, busy_poll=True)
    else:
        brokers = Workers(config, options.workers, log_level=options.log_level)
    await brokers.start()
    process.started()
    try:
        addresses = [brokers.address] if isinstance(brokers, Node) else brokers.addresses
        print(
            f"ready name-server={brokers.name_server} broker={';'.join(addresses)} "
            f"store={brokers.store_directory}",
            flush=True,
        )
        await stop.wait()
    finally:
        await brokers.close()
