"""Keeps name servers of other processes told of this broker and its topics.

They are told of all topics when the broker starts and every 30 s, which they take for a sign of
life, and at once of those that changed; a name server that went away is told again a second after
it is back. Follows BrokerController.registerBrokerAll, registerIncrementBrokerData and
BrokerOuterAPI.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from orbitmq import codes
from orbitmq.broker.beside import BIG_TABLE, encode_beside
from orbitmq.broker.topics import TopicTable
from orbitmq.codes import RequestCode
from orbitmq.errors import BodyError, BrokerError, NetworkError, OrbitMQError, for_code
from orbitmq.net.connection import Connection
from orbitmq.net.pool import ConnectionPool
from orbitmq.wire.bodies import (
    QueueData,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from orbitmq.wire.command import Header, RemotingCommand
from orbitmq.wire.headers import (
    BrokerRequestHeader,
    RegisterBrokerRequestHeader,
    TopicRequestHeader,
)
from orbitmq.wire.registration import KVTable, RegisterBrokerBody

log = logging.getLogger("orbitmq.broker")

REGISTER_MS: Final = 30_000
"""How often a broker registers (BrokerConfig.registerNameServerPeriod)."""
_RETRY_SECONDS: Final = 1.0
_TIMEOUT_MS: Final = 3_000


class Registrar:
    """Registers one broker, the master of its name, at each of ``name_servers``.

    ``identity`` names the broker in its requests, ``tls`` has it speak TLS to all of them. All
    methods belong to the running loop.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        identity: BrokerRequestHeader,
        topics: TopicTable,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._pool = ConnectionPool(_ignore_request, connect_timeout_ms=_TIMEOUT_MS, tls=tls)
        self._changed = {address: asyncio.Event() for address in name_servers}
        # By address the topics it is to be told of; None: all, as it knows nothing.
        self._untold: dict[str, dict[str, TopicConfig] | None] = dict.fromkeys(name_servers)
        self._failing: set[str] = set()
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register, and go on doing so; a name server that does not answer is only logged."""
        await asyncio.gather(*map(self._register, self._changed))
        self._keepers = [asyncio.create_task(self._keep(address)) for address in self._changed]

    def topics_changed(self, topics: Iterable[TopicConfig]) -> None:
        """Have the name servers told of topics that are new or different."""
        changes = {topic.topic_name: self._topics.announced(topic) for topic in topics}
        for address, changed in self._changed.items():
            untold = self._untold[address]
            if untold is not None:
                untold.update(changes)
            changed.set()

    async def close(self) -> None:
        """Unregister where that is possible."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*map(self._unregister, self._changed))
        await self._pool.close()

    async def _keep(self, address: str) -> None:
        while True:
            changed = await self._until_changed(address)
            if not changed or self._pool.idle(address) is None:
                self._untold[address] = None
            await self._register(address)

    async def _until_changed(self, address: str) -> bool:
        """Wait until topics changed (True), or it is time for the name server to be told of all."""
        loop = asyncio.get_running_loop()
        due = loop.time() + REGISTER_MS / 1000
        while loop.time() < due:
            try:
                async with asyncio.timeout(_RETRY_SECONDS):
                    await self._changed[address].wait()
                    return True
            except TimeoutError:
                if self._pool.idle(address) is None:
                    return False
        return False

    async def _register(self, address: str) -> None:
        self._changed[address].clear()
        untold, self._untold[address] = self._untold[address], {}
        try:
            if untold is not None and self._topics.are_registered_singly:
                for topic in untold.values():
                    await self._register_topic(address, topic)
            else:
                await self._register_topics(address, untold)
        except (NetworkError, BrokerError) as error:
            self._untold[address] = None
            if untold is not None:  # it may know nothing of this broker any more
                self._changed[address].set()
            if address not in self._failing:
                self._failing.add(address)
                log.warning(
                    "not registered at name server %s, so clients do not find this broker "
                    "there; it is tried again: %s",
                    address,
                    error,
                )
        else:
            self._failing.discard(address)
            log.info("registered at name server %s", address)

    async def _register_topic(self, address: str, topic: TopicConfig) -> None:
        """Tell of one topic (BrokerOuterAPI.registerSingleTopicAll)."""
        queues = QueueData(
            self._identity.broker_name,
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm,
            topic.topic_sys_flag,
        )
        header = TopicRequestHeader(topic=topic.topic_name)
        body = TopicRouteData(queue_datas=[queues]).encode()
        await self._ask(address, RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)

    async def _register_topics(self, address: str, untold: dict[str, TopicConfig] | None) -> None:
        """Tell of several topics; None: of all."""
        identity = self._identity
        told = self._topics.all_announced() if untold is None else untold
        registration = RegisterBrokerBody(
            TopicConfigAndMappingSerializeWrapper(told, self._topics.version)
        )
        if len(told) < BIG_TABLE:
            body = registration.encode()
        else:
            body = await asyncio.to_thread(encode_beside, registration)
        header = RegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            ha_server_addr="",
            broker_id=identity.broker_id,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        answer = await self._ask(address, RequestCode.REGISTER_BROKER, header, body)
        self._take_order_config(answer.body, address)

    def _take_order_config(self, body: bytes | memoryview, address: str) -> None:
        """Learn of ordered topics from what a name server answers a registration with."""
        if body:
            try:
                self._topics.mark_ordered(KVTable.decode(body).table)
            except BodyError as error:
                log.warning("the order configuration of name server %s: %s", address, error)

    async def _unregister(self, address: str) -> None:
        if self._pool.idle(address) is None:
            return
        try:
            await self._ask(address, RequestCode.UNREGISTER_BROKER, self._identity)
        except OrbitMQError as error:
            log.warning("not unregistered at name server %s: %s", address, error)

    async def _ask(
        self, address: str, code: int, header: Header, body: bytes = b""
    ) -> RemotingCommand:
        answer = await self._pool.call(address, code, header, body, timeout_ms=_TIMEOUT_MS)
        if answer.code != codes.SUCCESS:
            raise for_code(answer.code, answer.remark, address)
        return answer


def _ignore_request(_command: RemotingCommand, _connection: Connection) -> None:
    """Name servers ask a broker nothing that concerns one without replicas."""
