"""What this host is called on the network."""

from __future__ import annotations

import socket


def local_ip() -> str:
    """The IPv4 address this host speaks from; 127.0.0.1 where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # picks a route; a datagram socket sends nothing here
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def vip_address(address: str) -> str:
    """The second port of the broker at ``address``, two below (MixAll.brokerVIPChannel)."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"
