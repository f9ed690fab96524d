"""Who asks for an admin client: name servers, one broker, or several brokers at once.

Knows how requests find their servers and what becomes of those that fail; what is asked is up to
the modules beside this one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from orbitmq import codes
from orbitmq.admin.config import AdminConfig
from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespace import Namespace
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    ConfigError,
    ConnectError,
    NetworkError,
    OrbitMQError,
    PartialFailureError,
)
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import BrokerData, ClusterInfo, TopicRouteData
from orbitmq.wire.command import Header, RemotingCommand

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What several servers said, by address, and the errors of those that did not."""

    by_address: Mapping[str, T]
    failures: Mapping[str, OrbitMQError]

    def complete(self, result: R) -> R:
        """``result``, made of the answers; PartialFailureError with it where one is missing."""
        if self.failures:
            raise PartialFailureError(result, self.failures)
        return result


class Asker:
    """Asks on behalf of one admin client, on the private loop."""

    def __init__(self, instance: ClientInstance, config: AdminConfig) -> None:
        self.instance = instance
        self.config = config
        self.namespace = Namespace.of(config)
        self._room = asyncio.Semaphore(config.max_requests)

    # Name servers

    async def name_server(self, code: int, header: Header | None = None) -> RemotingCommand:
        """What the first name server says that answers. Raises BrokerError, ConnectError."""
        servers = self.instance.name_servers
        answer = await servers.ask(code, header, timeout_ms=self.config.api_timeout_ms)
        if answer.code != codes.SUCCESS:
            raise self.instance.error_of(answer, servers.addresses)
        return answer

    async def each_name_server(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        servers: Iterable[str] | None = None,
    ) -> Answers[RemotingCommand]:
        """What every name server says, or each of ``servers``; as :meth:`each`."""
        if servers is None:
            timeout_ms = self.config.api_timeout_ms
            servers = await self.instance.name_servers.all(timeout_ms=timeout_ms)
        return await self.each(servers, lambda server: self._ask_one(server, code, header, body))

    async def _ask_one(
        self, server: str, code: int, header: Header | None, body: bytes
    ) -> RemotingCommand:
        """Of a name server: it has no second port as brokers have."""
        async with self._room:
            answer = await self.instance.pool.call(
                server, code, header, body, timeout_ms=self.config.api_timeout_ms
            )
        if answer.code != codes.SUCCESS:
            raise self.instance.error_of(answer, server)
        return answer

    # Brokers

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """What the broker at ``address`` says. Raises BrokerError unless it is a success."""
        async with self._room:
            return await self.instance.request(address, code, header, body, timeout_ms=timeout_ms)

    async def each(
        self, addresses: Iterable[str], question: Callable[[str], Awaitable[T]]
    ) -> Answers[T]:
        """What ``question`` brings from each address, all asked at once.

        Raises what one alone raised, and what all of several raised alike.
        """
        asked = list(dict.fromkeys(addresses))
        outcomes = await asyncio.gather(*(_outcome(question(address)) for address in asked))
        answers: dict[str, T] = {}
        failures: dict[str, OrbitMQError] = {}
        for address, (answer, failure) in zip(asked, outcomes, strict=True):
            if failure is None:
                answers[address] = answer  # type: ignore[assignment]  # None where T says so
            else:
                failures[address] = failure
        if failures and not answers and len({_kind(error) for error in failures.values()}) == 1:
            raise next(iter(failures.values()))
        return Answers(answers, failures)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters (examineBrokerClusterInfo)."""
        answer = await self.name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic of a broker's name is. TopicNotFoundError where it is nowhere."""
        return await self.instance.query_route(topic)

    async def broker(self, broker: str) -> str:
        """The address of a broker given by its name, or by its address already.

        Raises ConfigError for a name that no name server knows.
        """
        if ":" in broker:
            return broker
        data = (await self.cluster_info()).broker_addr_table.get(broker)
        address = data and select_address(data)
        if not address:
            raise ConfigError("broker", broker, "the name of a running broker, or host:port")
        return address

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """The masters of ``cluster``, that ``broker`` alone, or else all (fetchMasterAddr...)."""
        if broker is not None:
            return [await self.broker(broker)]
        return [
            address
            for data in await self._brokers(cluster)
            if (address := data.master_address) is not None
        ]

    async def masters_and_slaves(self, cluster: str | None = None) -> list[str]:
        """All brokers of ``cluster``, or of all clusters (fetchMasterAndSlaveAddrByClusterName)."""
        return [
            address
            for data in await self._brokers(cluster)
            for address in data.broker_addrs.values()
        ]

    async def brokers_of(self, *topics: str) -> dict[str, str]:
        """The name of each broker of the first of ``topics`` that has a route, by address.

        One of each name: the master, or another where it is away. Raises TopicNotFoundError where
        none has a route.
        """
        route = await self.first_route(*topics)
        found = {
            address: data.broker_name
            for data in route.broker_datas
            if (address := select_address(data)) is not None
        }
        if not found:
            raise ConnectError(f"the route of topic {topics[0]} names no running broker", topics[0])
        return found

    async def broker_of(self, queue: MessageQueue) -> str:
        """The address of the broker that has ``queue``, one of a broker's name.

        Raises TopicNotFoundError, ConnectError where the route does not name a running one.
        """
        for data in (await self.route(queue.topic)).broker_datas:
            if data.broker_name == queue.broker_name and (address := select_address(data)):
                return address
        raise ConnectError(
            f"the route of topic {queue.topic} names no running broker {queue.broker_name!r}",
            queue.broker_name,
        )

    async def first_route(self, *topics: str) -> TopicRouteData:
        """The route of the first of ``topics`` that has one; errors as :meth:`route`."""
        for topic in topics[:-1]:
            try:
                return await self.route(topic)
            except OrbitMQError as error:
                if isinstance(error, NetworkError):
                    raise
        return await self.route(topics[-1])

    async def _brokers(self, cluster: str | None) -> list[BrokerData]:
        info = await self.cluster_info()
        if cluster is None:
            names: Iterable[str] = info.broker_addr_table
        else:
            names = info.cluster_addr_table.get(cluster, ())
            if not names:
                known = ", ".join(sorted(info.cluster_addr_table)) or "none"
                raise ConfigError("cluster", cluster, f"a cluster with running brokers: {known}")
        found = [
            info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table
        ]
        if not found:
            servers = self.instance.name_servers.addresses
            raise ConnectError(f"the name server {servers} knows no running broker", servers)
        return found


def select_address(data: BrokerData) -> str | None:
    """The master's address, else any slave's (BrokerData.selectBrokerAddr)."""
    address = data.master_address
    if address is None and data.broker_addrs:
        address = random.choice(list(data.broker_addrs.values()))  # noqa: S311 - not a secret
    return address


def merge_queues(
    namespace: Namespace, tables: Iterable[Mapping[MessageQueue, T]]
) -> dict[MessageQueue, T]:
    """What several brokers say of their queues as one table, in order, with the user's names."""
    merged = {queue: value for table in tables for queue, value in table.items()}
    return {namespace.unwrap_queue(queue): merged[queue] for queue in sorted(merged)}


async def _outcome(question: Awaitable[T]) -> tuple[T | None, OrbitMQError | None]:
    try:
        return await question, None
    except OrbitMQError as error:
        return None, error


def _kind(error: OrbitMQError) -> tuple[type, int | None]:
    return type(error), getattr(error, "code", None)
