"""Where a task finds the brokers of its topic: as planned, until a name server tells otherwise."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from orbitmq.errors import BrokerError, NetworkError
from orbitmq.net.blocking import OPEN, Access
from orbitmq.spark.source.routes import fetch_route
from orbitmq.wire.bodies import MASTER_ID

log = logging.getLogger("orbitmq.spark")


class Brokers:
    """The addresses of ``topic``'s brokers, by name and id; ``topic`` is named as brokers know it.

    Without ``name_servers`` it is known of masters only, and only what was planned.
    """

    def __init__(self, name_servers: Sequence[str], topic: str, access: Access = OPEN) -> None:
        self._name_servers = name_servers
        self._topic = topic
        self._access = access
        self._known: dict[tuple[str, int], str] = {}
        self._asked = False

    def master(self, broker_name: str, planned: str) -> str:
        """Where the master is: where it was ``planned`` to be, if a name server knows no better."""
        return self._known.get((broker_name, MASTER_ID), planned)

    def slave(self, broker_name: str, broker_id: int) -> str | None:
        """Where the slave ``broker_id`` is, None if that is not known."""
        if not self._asked:
            self.ask()
        return self._known.get((broker_name, broker_id))

    def ask(self) -> None:
        """Ask a name server; what none of them tells stays as it was."""
        if not self._name_servers:
            return
        self._asked = True
        try:
            route = fetch_route(self._name_servers, self._topic, self._access)
        except (NetworkError, BrokerError) as error:
            log.warning("where the brokers of %s are now is not told: %s", self._topic, error)
            return
        for broker in route.broker_datas:
            for broker_id, address in broker.broker_addrs.items():
                self._known[broker.broker_name, broker_id] = address
