"""A broker on the test's own loop, and raw protocol clients to ask it with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.node import Node
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS, FileOps
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from orbitmq.wire.command import Header, RemotingCommand
from orbitmq.wire.headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from orbitmq.wire.ids import java_hash
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import encode_properties

TIMEOUT_MS = 10_000
SMALL_STORE = StoreConfig(mapped_file_size=1 << 20, consume_queue_units=1000)
SUSPEND, SUBSCRIPTION, COMMIT = 2, 4, 1


class Client:
    """One connection to a broker, with what a test sends written short.

    ``notices`` are the requests the broker sent on its own.
    """

    def __init__(self, connection: Connection, notices: list[RemotingCommand]) -> None:
        self.connection = connection
        self.notices = notices

    async def call(
        self, code: int, header: Header | Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self.connection.call(code, header, body, timeout_ms=TIMEOUT_MS)

    async def send(self, topic: str, body: bytes = b"body", **fields: Any) -> RemotingCommand:
        return await self.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, **fields), body)

    async def pull(self, topic: str, **fields: Any) -> RemotingCommand:
        return await self.call(RequestCode.PULL_MESSAGE, pull_header(topic, **fields))

    def hold(self, topic: str, **fields: Any) -> asyncio.Future[RemotingCommand]:
        """A pull that waits up to 15 s for messages."""
        return asyncio.ensure_future(self.pull(topic, sys_flag=SUSPEND | SUBSCRIPTION, **fields))

    async def heartbeat(self, group: str, *topics: str, **fields: Any) -> RemotingCommand:
        return await self.call(RequestCode.HEART_BEAT, None, heartbeat(group, *topics, **fields))

    async def settle(self) -> None:
        """Wait until the broker has handled all that was sent to it before."""
        await self.call(RequestCode.GET_BROKER_CLUSTER_INFO)  # it is no name server: an answer

    def close(self) -> None:
        self.connection.close()


def send_header(
    topic: str,
    *,
    queue_id: int = 0,
    tags: str | None = None,
    properties: Mapping[str, str] | None = None,
    **fields: Any,
) -> SendMessageRequestHeaderV2:
    named = dict(properties or {})
    if tags:
        named["TAGS"] = tags
    defaults: dict[str, Any] = {
        "producer_group": "senders",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 0,
        "properties": encode_properties(named).decode(),
    }
    return SendMessageRequestHeaderV2(**defaults | fields)


def pull_header(
    topic: str, *, offset: int = 0, tags: str = "*", **fields: Any
) -> PullMessageRequestHeader:
    defaults: dict[str, Any] = {
        "consumer_group": "readers",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": tags,
    }
    return PullMessageRequestHeader(**defaults | fields)


def heartbeat(
    group: str,
    *topics: str,
    client_id: str = "client",
    tags: str | None = None,
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
    producers: tuple[str, ...] = (),
    **fields: Any,
) -> bytes:
    subscriptions = [
        SubscriptionData(
            topic=topic,
            sub_string=tags or "*",
            tags_set=frozenset([tags] if tags else []),
            code_set=frozenset([java_hash(tags)] if tags else []),
            sub_version=version,
        )
        for topic in topics
    ]
    data = ConsumerData(
        group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        subscription_data_set=subscriptions,
    )
    return HeartbeatData(
        client_id,
        producer_data_set=[ProducerData(name) for name in producers],
        consumer_data_set=[data] if group else [],
        **fields,
    ).encode()


def messages(answer: RemotingCommand) -> list[MessageView]:
    assert answer.code == 0, answer
    return decode_records(bytes(answer.body))


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


class Running:
    """A running node with the clock that its time stands still on."""

    def __init__(self, node: Node, clock: ManualClock) -> None:
        self.node = node
        self.broker = node.broker
        self.clock = clock
        self._clients: list[Client] = []

    async def connect(self, address: str = "") -> Client:
        """A new client of the broker, or of another address, closed with the broker."""
        client = await connect(address or self.node.address)
        self._clients.append(client)
        return client

    def advance(self, ms: int) -> None:
        """Move the time and do what is due then."""
        self.clock.advance(ms)
        self.node.server.run_due()

    def close(self) -> None:
        for client in self._clients:
            client.close()


async def connect(address: str) -> Client:
    """A client of the broker at ``address``."""
    host, port = address.rsplit(":", 1)
    notices: list[RemotingCommand] = []
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(lambda command, _: notices.append(command)), host, int(port)
    )
    return Client(connection, notices)


@asynccontextmanager
async def running(
    store: Path | None = None,
    clock: ManualClock | None = None,
    file_ops: FileOps = FILE_OPS,
    **settings: Any,
) -> AsyncIterator[Running]:
    clock = clock or ManualClock()
    config = BrokerConfig(
        **{
            "port": 0,
            "name_server_port": 0,
            "store_directory": store,
            "store_config": SMALL_STORE,
        }
        | settings
    )
    node = Node(config, clock, file_ops)
    await node.start()
    running_node = Running(node, clock)
    try:
        yield running_node
    finally:
        running_node.close()
        await node.close()


def with_broker(scenario: Callable[[Running, Client], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario with a new broker and one client of it."""

    async def main() -> None:
        async with running(**settings) as node:
            await scenario(node, await node.connect())

    asyncio.run(main())
