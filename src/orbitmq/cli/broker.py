"""``orbitmq broker``: a broker and its name server, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from orbitmq.net.tls import ServerTls

_FLUSH_MODES: Final = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "broker",
        help="run a broker and a name server",
        description="Run a broker and a name server until SIGINT or SIGTERM. When clients can "
        "connect, one line says where: ready name-server=HOST:PORT broker=HOST:PORT store=DIR. "
        "With --name-server it is a broker alone, one more of a cluster.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument(
        "--advertised-host",
        help="address or name that clients are told; --host, or this machine's own for a wildcard",
    )
    parser.add_argument("--port", type=int, default=10911, help="the broker's port, 0: any free")
    parser.add_argument(
        "--name-server-port", type=int, default=9876, help="the name server's port, 0: any free"
    )
    parser.add_argument(
        "--name-server",
        metavar="HOST:PORT",
        help="name servers to register at, separated by ';', instead of running one",
    )
    parser.add_argument(
        "--fast-listen-port", type=int, help="the VIP channel: a port two below the broker's own"
    )
    _add_tls(parser)
    parser.add_argument(
        "--store", type=Path, help="directory to keep messages in; temporary if not given"
    )
    parser.add_argument(
        "--flush",
        choices=_FLUSH_MODES,
        default="async",
        help="what an acknowledged message survives: async, a killed process; sync, a power cut",
    )
    _add_sizes(parser)
    parser.add_argument("--broker-name", default="broker-a", help="the name queues are known by")
    parser.add_argument("--cluster", default="DefaultCluster", help="the cluster's name")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="how much is told on stderr",
    )
    parser.set_defaults(run=run, parser=parser)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mapped-file-size",
        type=int,
        default=1 << 30,
        help="bytes of a commit-log file; stays as it is for a store that has files",
    )
    parser.add_argument(
        "--consume-queue-units",
        type=int,
        default=300_000,
        help="entries of a consume-queue file; stays as it is for a store that has files",
    )
    parser.add_argument(
        "--max-message-size", type=int, default=4 << 20, help="the longest body, bytes"
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
        help="who may connect: permissive, with TLS or without; enforcing, with TLS only",
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


def run(options: argparse.Namespace) -> None:
    """Run the broker. Raises OrbitMQError when it cannot be as asked."""
    from orbitmq import descriptors
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.store.config import FlushMode, StoreConfig

    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    config = BrokerConfig(
        host=options.host,
        advertised_host=options.advertised_host or "",
        port=options.port,
        fast_listen_port=options.fast_listen_port,
        tls=_tls(options),
        name_server_port=options.name_server_port,
        name_server=options.name_server or "",
        store_directory=options.store,
        store_config=StoreConfig(
            mapped_file_size=options.mapped_file_size,
            consume_queue_units=options.consume_queue_units,
            max_message_size=options.max_message_size,
            flush_mode=FlushMode(_FLUSH_MODES[options.flush]),
            cut_damaged_log=options.cut_damaged_log,
        ),
        broker_name=options.broker_name,
        cluster_name=options.cluster,
    )
    descriptors.raise_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config))


async def _serve(config: Any) -> None:
    from orbitmq.broker.node import Node

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    node = Node(config)
    await node.start()
    try:
        print(
            f"ready name-server={node.name_server} broker={node.address} "
            f"store={node.store_directory}",
            flush=True,
        )
        await stop.wait()
    finally:
        await node.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
