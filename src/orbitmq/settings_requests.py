"""The requests that show and change settings, of a broker (25, 26) and a name server (318, 319).

Follows AdminBrokerProcessor and DefaultRequestProcessor, which do the same in the same way.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from orbitmq import codes
from orbitmq.errors import BrokerError, StoreError
from orbitmq.live_settings import LiveSettings
from orbitmq.net.connection import Connection
from orbitmq.properties_file import decode_text, format_properties, parse_properties
from orbitmq.wire.command import ONEWAY, RemotingCommand, encode_response

log = logging.getLogger("orbitmq.settings")

_LONGEST_CHANGE: Final = 1 << 18
"""The longest change of settings, bytes: more than all of them take."""


class SettingsRequests:
    """Shows and changes ``settings``; ``facts`` are texts by key that are known only as it runs."""

    def __init__(self, settings: LiveSettings[Any], facts: Callable[[], dict[str, str]]) -> None:
        self._settings = settings
        self._facts = facts
        self._saver = ThreadPoolExecutor(1, "orbitmq-settings-saver")

    def close(self) -> None:
        """Wait until what was changed is kept."""
        self._saver.shutdown()

    def show(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        """All settings, by the names they have in Apache's files."""
        body = format_properties(self._settings.texts() | self._facts()).encode()
        version = self._settings.version.encode().decode()
        head = encode_response(command, codes.SUCCESS, {"version": version}, body_length=len(body))
        return [head, body]

    def change(self, command: RemotingCommand, connection: Connection) -> None:
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
                remark = f"changed, but only until the end: it cannot be kept: {error}"
                connection.send(encode_response(command, codes.SYSTEM_ERROR, remark=remark))

        saving = asyncio.get_running_loop().run_in_executor(self._saver, self._save)
        saving.add_done_callback(kept)

    def _save(self) -> None:
        try:
            self._settings.save()
        except StoreError:
            log.exception("changed settings are not kept: they end with the server")
            raise
