"""From a request to its handler, and from what the handler raises to an error answer.

The broker and the name server share this. A handler translates one kind of request and returns
its answer, or None when the answer comes later; whatever it raises is answered too, so that one
client's bad request never costs another anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from orbitmq import codes
from orbitmq.errors import (
    BrokerError,
    IllegalNameError,
    InvalidMessageError,
    StoreError,
    WireError,
)
from orbitmq.net.connection import Connection, describe_code
from orbitmq.wire.command import ONEWAY, RemotingCommand, encode_response

log = logging.getLogger("orbitmq.net")

Answer: TypeAlias = bytes | Sequence[bytes | memoryview] | None
"""A response frame, whole or in pieces; None: it comes later, or not at all."""

Handler: TypeAlias = Callable[[RemotingCommand, Connection], Answer]


class Dispatcher:
    """Gives each request to the handler of its code."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._find = {int(code): handler for code, handler in handlers.items()}.get

    def dispatch(self, command: RemotingCommand, connection: Connection) -> None:
        """Carry out one request, as a connection's ``on_request``; nothing is raised."""
        handler = self._find(command.code, _not_supported)
        try:
            answer = handler(command, connection)
        except Exception as error:  # noqa: BLE001 - each is answered, the unforeseen are logged
            answer = refusal(command, connection, error)
        if answer is not None and not command.flag & ONEWAY:
            if isinstance(answer, bytes):
                connection.send(answer)
            else:
                connection.send(*answer)


def refusal(command: RemotingCommand, connection: Connection, error: Exception) -> bytes:
    """The answer to a request that ended in ``error``."""
    code = _code_of(error)
    remark = error.remark if isinstance(error, BrokerError) else str(error)
    what = describe_code(command.code)
    if code is None:
        log.error("%s from %s failed", what, connection.peer, exc_info=error)
        code, remark = codes.SYSTEM_ERROR, f"{what} failed: {type(error).__name__}: {error}"
    elif code == codes.SYSTEM_BUSY:  # whoever is busy says so, once
        log.debug("%s from %s is refused: %s", what, connection.peer, remark)
    elif command.is_oneway:
        log.warning("one-way %s from %s is refused: %s", what, connection.peer, remark)
    else:
        log.info("%s from %s is refused: %s", what, connection.peer, remark)
    return encode_response(command, code, remark=remark)


def _code_of(error: Exception) -> int | None:
    """The response code that says what an error says; None for an error nobody foresaw."""
    if isinstance(error, BrokerError):
        return error.code
    if isinstance(error, IllegalNameError):
        return codes.INVALID_PARAMETER
    if isinstance(error, InvalidMessageError):
        return codes.MESSAGE_ILLEGAL
    if isinstance(error, StoreError):
        return codes.SERVICE_NOT_AVAILABLE
    if isinstance(error, WireError):
        return codes.SYSTEM_ERROR
    return None


def _not_supported(command: RemotingCommand, connection: Connection) -> bytes | None:
    what = describe_code(command.code)
    log.warning("%s from %s is not supported", what, connection.peer)
    why = codes.why_unsupported(command.code)
    remark = f"{what} is not supported here" + (f": {why}" if why else "")
    return encode_response(command, codes.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
