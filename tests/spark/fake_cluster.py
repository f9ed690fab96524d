"""A name server and broker in one that answers as a test tells it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager

from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.command import RemotingCommand, encode_response

Handler = Callable[[RemotingCommand, Connection], None]


def answer(
    command: RemotingCommand,
    connection: Connection,
    code: int = 0,
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> None:
    """Answer ``command`` with ``code``, header ``fields`` and ``body``."""
    connection.send(encode_response(command, code, fields, body_length=len(body)), body)


@contextmanager
def server(handler: Handler) -> Iterator[str]:
    """The address of a server that gives every request to ``handler``, on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-cluster", daemon=True)
    thread.start()

    def run(coroutine: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)

    async def close() -> None:
        # asyncio leaks a connection that is being accepted while its server closes.
        for _ in range(5):
            await asyncio.sleep(0)
        await listening.close()
        while listening.connections:  # noqa: ASYNC110 - only a turn or two of the loop
            await asyncio.sleep(0)

    listening = Server(handler)
    run(listening.start("127.0.0.1", 0))
    try:
        yield listening.address
    finally:
        run(close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def cluster(
    handler: Handler, *, queues: int = 2, brokers: int = 1, address: str = "", slave: str = ""
) -> Iterator[str]:
    """As :func:`server`, but routes are answered: any topic has ``queues`` on each broker.

    All brokers, broker-0 and so on, are at ``address``, by default this server; a request's
    ``bname`` tells which is meant. Each has a ``slave`` where that is given.
    """

    def handle(command: RemotingCommand, connection: Connection) -> None:
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            handler(command, connection)
            return
        names = [f"broker-{number}" for number in range(brokers)]
        route = TopicRouteData(
            queue_datas=[QueueData(name, queues, queues, 6) for name in names],
            broker_datas=[BrokerData("c", name, {0: own[-1]} | slaves) for name in names],
        )
        answer(command, connection, body=route.encode(standard=True))

    own: list[str] = []
    slaves = {1: slave} if slave else {}
    with server(handle) as listening:
        own.append(address or listening)
        yield listening
