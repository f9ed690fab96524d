"""The broker's settings: 25, 26. Follows AdminBrokerProcessor."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from asyncio import Future
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, StoreError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.properties_file import decode_text, format_properties, parse_properties
from orbitmq.wire.command import ONEWAY, RemotingCommand, encode_response

log = logging.getLogger("orbitmq.broker")

_LONGEST_CHANGE: Final = 1 << 18
"""The longest change of settings, bytes: more than all of them take."""


class SettingsHandlers:
    """Reads and changes the broker's settings for tools."""

    def __init__(self, broker: Broker) -> None:
        self._settings = broker.settings
        self._saver = ThreadPoolExecutor(1, "orbitmq-settings-saver")
        host, port = broker.store_host[:-4], int.from_bytes(broker.store_host[-4:], "big")
        address = str(ipaddress.ip_address(host))
        directory = broker.store.directory
        self._facts = {
            "brokerIP1": address,
            "brokerIP2": address,
            "listenPort": str(port),
            "storePathRootDir": str(directory),
            "storePathCommitLog": str(directory / "commitlog"),
        }

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self._update,
            RequestCode.GET_BROKER_CONFIG: self._config,
        }

    def close(self) -> None:
        """Wait until what was changed is kept."""
        self._saver.shutdown()

    def _update(self, command: RemotingCommand, connection: Connection) -> None:
        """Change settings, and answer once the change is kept, too."""
        if len(command.body) > _LONGEST_CHANGE:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"{len(command.body)} bytes of settings are too many: {_LONGEST_CHANGE} at most",
            )
        self._settings.change(parse_properties(decode_text(bytes(command.body))))

        def kept(saving: Future[None]) -> None:
            error = saving.exception()
            if command.flag & ONEWAY:
                return
            if error is None:
                connection.send(encode_response(command, codes.SUCCESS))
            else:
                remark = f"changed, but only until the broker stops: it cannot be kept: {error}"
                connection.send(encode_response(command, codes.SYSTEM_ERROR, remark=remark))

        saving = asyncio.get_running_loop().run_in_executor(self._saver, self._save)
        saving.add_done_callback(kept)

    def _save(self) -> None:
        try:
            self._settings.save()
        except StoreError:
            log.exception("changed settings are not kept: they end with the broker")
            raise

    def _config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        """The settings under the names they have in Apache's ``broker.conf``."""
        body = format_properties(self._settings.texts() | self._facts).encode()
        version = self._settings.version.encode().decode()
        head = encode_response(command, codes.SUCCESS, {"version": version}, body_length=len(body))
        return [head, body]
