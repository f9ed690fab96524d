"""How handlers answer with a body."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import Final

from orbitmq import codes
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, refusal
from orbitmq.wire.bodies import Body
from orbitmq.wire.command import Header, RemotingCommand, encode_response

_BIG_TABLE: Final = 1_000
"""From how many entries on a table takes a millisecond or more to be encoded."""
MAX_LISTED: Final = 10_000
"""How many topics or groups one request may make or change; Java's broker has no limit."""


def answer(command: RemotingCommand, body: Body) -> list[bytes]:
    """The answer to ``command`` that carries ``body``."""
    data = body.encode()
    return [encode_response(command, codes.SUCCESS, body_length=len(data)), data]


def answer_table(
    command: RemotingCommand,
    connection: Connection,
    body: Body,
    entries: int,
    header: Header | None = None,
) -> Answer:
    """The answer with a whole table, that of a big one encoded beside the loop."""

    def frame(data: bytes) -> list[bytes]:
        return [encode_response(command, codes.SUCCESS, header, body_length=len(data)), data]

    if entries < _BIG_TABLE:
        return frame(body.encode())

    def done(encoding: Future[bytes]) -> None:
        error = encoding.exception()
        if error is None:
            connection.send(*frame(encoding.result()))
        elif isinstance(error, Exception):
            connection.send(refusal(command, connection, error))

    asyncio.get_running_loop().run_in_executor(None, body.encode).add_done_callback(done)
    return None


def check_count(what: str, count: int) -> None:
    """Raise BrokerError for a list of more than one request may bring."""
    if count > MAX_LISTED:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"{count} {what} are too many for one request: send {MAX_LISTED} at a time",
        )
