"""A process that is one worker of several: brokers that joined the cluster of who started it.

Processes that run :func:`main` are started by :mod:`orbitmq.broker.workers`. What one is to run
comes through its standard input; through its standard output it says where its brokers serve,
and what went wrong. When its input ends it stops in order: so it never outlives who started it,
however that ended.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from orbitmq.broker import process
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.node import Node
from orbitmq.errors import OrbitMQError

_STDIN: Final = 0
_STDOUT: Final = 1
_FAILED: Final = 2


class Orders(msgspec.Struct):
    """What a worker is to run, and from which level on it tells what it logs."""

    brokers: list[BrokerConfig]
    log_level: str

    @property
    def names(self) -> str:
        """The names of its brokers, to be told."""
        return ", ".join(broker.broker_name for broker in self.brokers)

    def encode(self) -> bytes:
        """As a worker reads them."""
        return pickle.dumps(self)


class Report(msgspec.Struct):
    """A line that a worker says: where each of its brokers serves, or what went wrong."""

    addresses: list[str] = []
    error: str = ""

    def encode(self) -> bytes:
        """As who started the worker reads it."""
        return msgspec.json.encode(self) + b"\n"


def main() -> None:
    """Run what standard input says."""
    try:
        orders: Orders = pickle.load(sys.stdin.buffer)  # noqa: S301 - from who started the process
    except (EOFError, pickle.UnpicklingError):
        return  # who started it is gone
    process.log_to_stderr(orders.log_level, orders.names)
    try:
        process.run(_serve(orders.brokers))
    except OrbitMQError as error:
        _say(Report(error=str(error)))
        sys.exit(_FAILED)


async def _serve(brokers: list[BrokerConfig]) -> None:
    stop = process.told_to_stop()
    _watch_input(stop)
    async with AsyncExitStack() as nodes:
        addresses = []
        for config in brokers:
            node = Node(config, busy_poll=True)
            await node.start()
            nodes.push_async_callback(node.close)
            addresses.append(node.address)
        process.started()
        _say(Report(addresses))
        await stop.wait()


def _watch_input(stop: asyncio.Event) -> None:
    """Set ``stop`` when standard input ends."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(_STDIN, 4096):
            loop.remove_reader(_STDIN)
            stop.set()

    loop.add_reader(_STDIN, readable)


def _say(report: Report) -> None:
    try:
        os.write(_STDOUT, report.encode())
    except BrokenPipeError:  # nobody reads it any more
        sys.stderr.write(f"{report.error}\n")
