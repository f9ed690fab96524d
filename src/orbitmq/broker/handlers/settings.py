"""The broker's settings: 25, 26. Follows AdminBrokerProcessor."""

from __future__ import annotations

from orbitmq.broker.broker import Broker
from orbitmq.codes import RequestCode
from orbitmq.net.dispatcher import Handler
from orbitmq.settings_requests import SettingsRequests


class SettingsHandlers:
    """Shows and changes the broker's settings for tools."""

    def __init__(self, broker: Broker) -> None:
        directory = broker.store.directory
        facts = {
            "brokerIP1": broker.ip,
            "brokerIP2": broker.ip,
            "listenPort": str(broker.port),
            "storePathRootDir": str(directory),
            "storePathCommitLog": str(directory / "commitlog"),
        }
        self._requests = SettingsRequests(broker.settings, lambda: facts)

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self._requests.change,
            RequestCode.GET_BROKER_CONFIG: self._requests.show,
        }

    def close(self) -> None:
        """Wait until what was changed is kept."""
        self._requests.close()
