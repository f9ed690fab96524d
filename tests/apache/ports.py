"""Ports for servers that cannot choose one themselves, or need its neighbours too."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below the ports that the kernel gives to outgoing connections.
PORTS = range(20_000, 30_000)
TRIES = 200


@contextmanager
def held_port(*offsets: int) -> Iterator[int]:
    """A port which nobody else takes meanwhile, with those at the given distances from it.

    Sockets are bound to them and never listen: so the kernel refuses the ports to everybody, other
    test workers included, but a server that reuses addresses, as Java's and ours do.
    """
    generator = random.SystemRandom()
    for _ in range(TRIES):
        port = generator.choice(PORTS)
        with ExitStack() as holding:
            try:
                for offset in {0, *offsets}:
                    _hold(holding.enter_context(socket.socket()), port + offset)
            except OSError:
                continue
            yield port
            return
    raise OSError(f"no free ports between {PORTS.start} and {PORTS.stop}")


def _hold(holder: socket.socket, port: int) -> None:
    """Takes the port if it is free, then lets it be reused."""
    holder.bind(("", port))
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
