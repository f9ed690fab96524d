"""How handlers answer with a body."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterator
from typing import Final

from orbitmq import codes
from orbitmq.broker.beside import BIG_TABLE, encode_beside
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, refusal
from orbitmq.wire.bodies import Body
from orbitmq.wire.command import Header, RemotingCommand, encode_response

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

    if entries < BIG_TABLE:
        return frame(body.encode())

    def done(encoding: Future[bytes]) -> None:
        error = encoding.exception()
        if error is None:
            connection.send(*frame(encoding.result()))
        elif isinstance(error, Exception):
            connection.send(refusal(command, connection, error))

    asyncio.get_running_loop().run_in_executor(None, encode_beside, body).add_done_callback(done)
    return None


def answer_after(
    command: RemotingCommand,
    connection: Connection,
    work: Iterator[None],
    write_down: Callable[[], None],
) -> Answer:
    """The answer when ``work`` is done.

    At each turn of the loop it is carried out until it yields, so that others have their turn, and
    what changed is written down.
    """
    loop = asyncio.get_running_loop()

    def piece() -> bytes | None:
        done = next(work, True)
        write_down()
        if done:
            return encode_response(command, codes.SUCCESS)
        loop.call_soon(go_on)
        return None

    def go_on() -> None:
        try:
            frame = piece()
        except Exception as error:  # noqa: BLE001 - as the dispatcher does
            frame = refusal(command, connection, error)
        if frame is not None:
            connection.send(frame)

    return piece()


def check_count(what: str, count: int) -> None:
    """Raise BrokerError for a list of more than one request may bring."""
    if count > MAX_LISTED:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"{count} {what} are too many for one request: send {MAX_LISTED} at a time",
        )
