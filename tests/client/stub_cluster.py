"""A name server and brokers that answer as a test tells them to, on a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    GetRouteInfoRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

Reaction = Callable[[RemotingCommand, Connection], None]

SENDS = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


def answer(code: int, remark: str | None = None) -> Reaction:
    """Answer a send with a response code."""

    def react(command: RemotingCommand, connection: Connection) -> None:
        connection.send(encode_response(command, code, remark=remark))

    return react


def silence(command: RemotingCommand, connection: Connection) -> None:
    """Take a request and never answer it."""


def hang_up(command: RemotingCommand, connection: Connection) -> None:
    """Close the connection instead of answering."""
    connection.close()


class StubServer:
    """A server whose answers come from ``reactions``, one a request, then from ``default``."""

    def __init__(self, default: Reaction) -> None:
        self.default = default
        self.reactions: deque[Reaction] = deque()
        self.requests: list[RemotingCommand] = []
        self.server = Server(self._on_request)

    @property
    def address(self) -> str:
        return self.server.address

    async def stop(self) -> None:
        """Close, and see every connection end."""
        # Turns of the loop for those just accepted: asyncio forgets them when the server closes.
        for _ in range(5):
            await asyncio.sleep(0)
        await self.server.close()
        while self.server.connections:  # noqa: ASYNC110 - a few turns more
            await asyncio.sleep(0)

    def _on_request(self, command: RemotingCommand, connection: Connection) -> None:
        self.requests.append(command)
        reaction = self.default
        if self.reactions and self.scripted(command):
            reaction = self.reactions.popleft()
        reaction(command, connection)

    def scripted(self, command: RemotingCommand) -> bool:
        return True

    def of(self, code: int) -> list[RemotingCommand]:
        """The requests with ``code`` so far."""
        return [command for command in self.requests if command.code == code]


class StubBroker(StubServer):
    """A broker that keeps what it is sent, by queue; only its sends are scripted."""

    def __init__(self, name: str) -> None:
        super().__init__(self.answer)
        self.name = name
        self.messages: list[tuple[SendMessageRequestHeaderV2, bytes]] = []
        self.lock = threading.Lock()

    def scripted(self, command: RemotingCommand) -> bool:
        return command.code in SENDS

    def bodies(self, queue_id: int | None = None) -> list[bytes]:
        with self.lock:
            return [
                body
                for header, body in self.messages
                if queue_id is None or header.queue_id == queue_id
            ]

    def store(
        self, command: RemotingCommand, connection: Connection, code: int = codes.SUCCESS
    ) -> None:
        header = command.header(SendMessageRequestHeaderV2)
        with self.lock:
            self.messages.append((header, bytes(command.body)))
        if command.is_oneway:
            return
        connection.send(
            encode_response(
                command,
                code,
                SendMessageResponseHeader(
                    msg_id=f"{self.name}-{len(self.messages)}",
                    queue_id=header.queue_id,
                    queue_offset=len(self.messages) - 1,
                ),
            )
        )

    def answer(self, command: RemotingCommand, connection: Connection) -> None:
        if command.code in SENDS:
            self.store(command, connection)
        elif not command.is_oneway:
            connection.send(encode_response(command, codes.SUCCESS))


class StubCluster:
    """One name server and ``brokers`` named broker-a, broker-b, ...

    ``topics`` has the queues each broker has of a topic; 4 of TBW102 to start with.
    """

    def __init__(self, brokers: int = 1, **topics: int) -> None:
        self.topics = {"TBW102": 4, **topics}
        self.brokers = [StubBroker(f"broker-{chr(ord('a') + number)}") for number in range(brokers)]
        self.name_server = StubServer(self._route)
        self.away: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stub-cluster")

    @property
    def address(self) -> str:
        """Of the name server."""
        return self.name_server.address

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def __enter__(self) -> Self:
        self._thread.start()
        for server in (self.name_server, *self.brokers):
            self.run(server.server.start("127.0.0.1", 0))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in (self.name_server, *self.brokers):
            self.run(server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _route(self, command: RemotingCommand, connection: Connection) -> None:
        topic = command.header(GetRouteInfoRequestHeader).topic
        queues = self.topics.get(topic)
        if queues is None:
            connection.send(encode_response(command, codes.TOPIC_NOT_EXIST, remark="no such topic"))
            return
        present = [broker for broker in self.brokers if broker.name not in self.away]
        body = TopicRouteData(
            queue_datas=[QueueData(broker.name, queues, queues, 6) for broker in present],
            broker_datas=[
                BrokerData("stub", broker.name, {0: broker.address}) for broker in present
            ],
        ).encode(standard=True)
        connection.send(encode_response(command, codes.SUCCESS, body_length=len(body)), body)
