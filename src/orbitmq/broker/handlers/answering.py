"""How handlers answer with a body."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import Final

from orbitmq import codes
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, refusal
from orbitmq.wire.bodies import Body
from orbitmq.wire.command import RemotingCommand, encode_response

_BIG_TABLE: Final = 1_000
"""From how many entries on a table takes a millisecond or more to be encoded."""


def answer(command: RemotingCommand, body: Body) -> list[bytes]:
    """The answer to ``command`` that carries ``body``."""
    data = body.encode()
    return [encode_response(command, codes.SUCCESS, body_length=len(data)), data]


def answer_table(
    command: RemotingCommand, connection: Connection, body: Body, entries: int
) -> Answer:
    """The answer with a whole table, that of a big one encoded beside the loop."""
    if entries < _BIG_TABLE:
        return answer(command, body)

    def done(encoding: Future[bytes]) -> None:
        error = encoding.exception()
        if error is None:
            data = encoding.result()
            connection.send(encode_response(command, codes.SUCCESS, body_length=len(data)), data)
        elif isinstance(error, Exception):
            connection.send(refusal(command, connection, error))

    asyncio.get_running_loop().run_in_executor(None, body.encode).add_done_callback(done)
    return None
