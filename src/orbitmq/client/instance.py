"""ClientInstance: what the producers and consumers with one client id share.

Connections, routes, heartbeats, and the clocks of rebalance and offset persistence, as in Java's
MQClientInstance. All of it lives on the private loop; nothing here may be called from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from orbitmq import codes
from orbitmq.client.config import ClientConfig
from orbitmq.client.members import Members, RegisteredConsumer, RegisteredProducer
from orbitmq.client.remoting import RemotingClient
from orbitmq.client.routes import describe_route
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ClientStateError,
    ConfigError,
    ConnectError,
    NetworkError,
    OrbitMQError,
    TopicNotFoundError,
)
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection, describe_code
from orbitmq.wire.bodies import (
    MASTER_ID,
    GetConsumerListByGroupResponseBody,
    TopicRouteData,
)
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    ConsumerGroupRequestHeader,
    GetRouteInfoRequestHeader,
    UnregisterClientRequestHeader,
)

log = logging.getLogger("orbitmq.client")

_FIRST_HEARTBEAT_MS = 1000
_FIRST_RETRY_SECONDS = 1.0

_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClientInstance]] = (
    WeakKeyDictionary()
)


class ClientInstance(RemotingClient):
    """One client as brokers see it. Use :meth:`obtain` and :meth:`release`."""

    def __init__(self, client_id: str, config: ClientConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self.client_id = client_id
        super().__init__(
            config,
            clock,
            on_request=self._on_request,
            on_connected=self._on_connected,
        )
        self._members = Members(client_id)
        self._handlers: dict[int, Callable[[RemotingCommand, Connection], None]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._consumer_ids_changed,
        }
        self._fetches: dict[str, asyncio.Task[TopicRouteData]] = {}
        self._greeting: Counter[str] = Counter()  # heartbeats under way
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rebalance_wanted = asyncio.Event()
        self._users = 0

    # Life

    @classmethod
    async def obtain(
        cls, config: ClientConfig, *, client_id: str | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> ClientInstance:
        """The running instance of ``client_id`` (default: made from ``config``), for one more user.

        Where there is one already its own configuration counts (MQClientManager). Raises
        ConfigError where that says otherwise who this client is, or how connections are made.
        """
        client_id = client_id or config.new_client_id()
        instances = _instances.setdefault(asyncio.get_running_loop(), {})
        instance = instances.get(client_id)
        if instance is None:
            instance = instances[client_id] = cls(client_id, config, clock)
            instance._start()
        else:
            instance._check_shared_by(config)
        instance._users += 1
        return instance

    async def release(self) -> None:
        """Give the instance back; the last user stops it."""
        self._users -= 1
        if self._users:
            return
        instances = _instances[asyncio.get_running_loop()]
        if instances.get(self.client_id) is self:
            del instances[self.client_id]
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.pool.close()
        log.info("client %s stopped", self.client_id)

    def _check_shared_by(self, config: ClientConfig) -> None:
        """Java's MQClientManager does not look: the second client goes by the first one's name."""
        mine = self.config
        for what, ours, theirs in (
            ("credentials", mine.credentials, config.credentials),
            ("TLS settings", mine.tls, config.tls),
        ):
            if ours != theirs:
                raise ConfigError(
                    "instance_name",
                    config.instance_name,
                    f"another client of this process has it with other {what}, and both would "
                    "share one connection: give each its own",
                )

    def _start(self) -> None:
        config = self.config
        url = config.name_servers_url
        if url is not None:
            # Here, because few clients need it, and HTTP takes its time to be imported.
            from orbitmq.client.address_server import AddressServer

            self.spawn(AddressServer(url, self.name_servers).run())
        if config.tls is not None and not config.tls.verifies:
            log.warning(
                "client %s does not verify its servers' certificates: give tls_ca_file",
                self.client_id,
            )
        self.spawn(self._hold_connections())
        self.spawn(self._keep_routes())
        self.spawn(self._every(_FIRST_HEARTBEAT_MS, config.heartbeat_interval_ms, self._beat))
        self.spawn(
            self._every(
                config.persist_offset_delay_ms,
                config.persist_offset_interval_ms,
                self._persist_offsets,
            )
        )
        self.spawn(self._keep_balanced())
        log.info(
            "client %s started, name servers %s",
            self.client_id,
            self.name_servers.addresses or f"asked for at {url}",
        )

    async def _hold_connections(self) -> None:
        """Close them even where the process ends without a release."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.pool.close()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run ``coroutine`` beside everything else; it ends with the instance at the latest."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task of client %s failed", self.client_id, exc_info=error)

    async def _every(
        self, first_ms: int, interval_ms: int, job: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(first_ms / 1000)
        while True:
            try:
                await job()
            except Exception:
                log.exception("client %s: %s failed, to be tried again", self.client_id, job)
            await asyncio.sleep(interval_ms / 1000)

    # Who uses it

    def register_producer(self, group: str, producer: RegisteredProducer) -> None:
        """Add a producer to the heartbeats. ClientStateError when the group is taken here."""
        self._members.add_producer(group, producer)

    async def unregister_producer(self, group: str) -> None:
        """Remove a producer, and tell the brokers."""
        if self._members.producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    def register_consumer(self, group: str, consumer: RegisteredConsumer) -> None:
        """Add a consumer to the heartbeats and to rebalance. ClientStateError when taken."""
        self._members.add_consumer(group, consumer)

    async def unregister_consumer(self, group: str) -> None:
        """Remove a consumer, and tell the brokers, which then notify the rest of its group."""
        if self._members.consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    def producer(self, group: str) -> RegisteredProducer | None:
        """The registered producer of ``group``."""
        return self._members.producers.get(group)

    def consumer(self, group: str) -> RegisteredConsumer | None:
        """The registered consumer of ``group``."""
        return self._members.consumers.get(group)

    def handle(self, code: int, handler: Callable[[RemotingCommand, Connection], None]) -> None:
        """Have ``handler`` get the brokers' requests with ``code``; it answers them itself."""
        self._handlers[code] = handler

    # Routes and brokers

    async def topic_route(self, topic: str) -> TopicRouteData:
        """The route of ``topic``, fetched where it is not known; errors as :meth:`fetch_route`."""
        return self.routes.get(topic) or await self.fetch_route(topic)

    async def fetch_route(self, topic: str) -> TopicRouteData:
        """The route of ``topic`` from a name server, taken over by all who use this instance.

        Raises TopicNotFoundError, another BrokerError, or ConnectError when no name server
        answers within ``api_timeout_ms``.
        """
        fetch = self._fetches.get(topic)
        if fetch is None:
            fetch = asyncio.get_running_loop().create_task(self._fetch_route(topic))
            self._fetches[topic] = fetch
            self._tasks.add(fetch)
            fetch.add_done_callback(self._fetch_done)
        try:
            return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not fetch.cancelled() or (caller is not None and caller.cancelling()):
                raise
            raise ClientStateError(f"client {self.client_id} was shut down meanwhile") from None
        except OrbitMQError as error:
            # A caller's own copy: the fetch is shared, and a traceback has one owner.
            raise copy.copy(error) from error

    async def query_route(self, topic: str) -> TopicRouteData:
        """The route of ``topic`` as a name server has it, without taking it over."""
        answer = await self.name_servers.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True),
            timeout_ms=self.config.api_timeout_ms,
        )
        if answer.code != codes.SUCCESS:
            raise self.error_of(answer, self.name_servers.addresses)
        return TopicRouteData.decode(answer.body)

    def adopt_route(self, topic: str, route: TopicRouteData) -> None:
        """Take over a route: tell the producers, balance the consumers anew, when it changed."""
        if not self.routes.put(topic, route):
            return
        log.info("topic %s now has %s", topic, describe_route(route))
        for producer in self._members.producers.values():
            producer.route_changed(topic, route)
        if self._members.consumers:
            self.rebalance_immediately()

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The readable queues of ``topic``, sorted; errors as :meth:`fetch_route`."""
        await self.topic_route(topic)
        return self.routes.subscribe_queues(topic)

    async def broker_address(
        self,
        broker_name: str,
        *,
        broker_id: int = MASTER_ID,
        only_this: bool = False,
        topic: str | None = None,
    ) -> str:
        """The address of a broker by name; where it is unknown ``topic``'s route is fetched anew.

        Without ``only_this`` another broker of the same name may stand in. Raises ConnectError
        when there is none.
        """
        address = self.routes.broker_address(broker_name, broker_id, only_this=only_this)
        if address is None and topic is not None:
            await self.fetch_route(topic)
            address = self.routes.broker_address(broker_name, broker_id, only_this=only_this)
        if address is None:
            raise ConnectError(f"no route names a running broker {broker_name!r}", broker_name)
        return address

    async def consumer_ids(self, group: str, topic: str) -> list[str]:
        """The client ids of ``group``, asked of a broker of ``topic``.

        Raises NetworkError or BrokerError (MQClientInstance.findConsumerIdList gives null).
        """
        address = self.routes.address_for_topic(topic)
        if address is None:
            await self.fetch_route(topic)
            address = self.routes.address_for_topic(topic)
        if address is None:
            raise ConnectError(f"the route of topic {topic} names no broker", topic)
        answer = await self.request(
            address,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            ConsumerGroupRequestHeader(consumer_group=group),
        )
        return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list

    async def _fetch_route(self, topic: str) -> TopicRouteData:
        try:
            route = await self.query_route(topic)
            self.adopt_route(topic, route)
            return route
        finally:
            del self._fetches[topic]

    def _fetch_done(self, fetch: asyncio.Task[TopicRouteData]) -> None:
        self._tasks.discard(fetch)
        if not fetch.cancelled():
            fetch.exception()  # seen, even where whoever asked has gone

    async def _keep_routes(self) -> None:
        """Refresh the routes in use; sooner while no name server answers."""
        interval = self.config.poll_name_server_interval_ms / 1000
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                await self._refresh_routes()
            except NetworkError as error:
                delay = min(pause, interval)
                pause *= 2
                log.warning("%s. Trying again in %g s", error, delay)
            except Exception:
                delay = interval
                log.exception("client %s: refreshing the routes failed", self.client_id)
            else:
                delay, pause = interval, _FIRST_RETRY_SECONDS
            await asyncio.sleep(delay)

    async def _refresh_routes(self) -> None:
        topics = self._members.topics()
        if not topics:
            await self.name_servers.check(timeout_ms=self.config.api_timeout_ms)
        for topic in topics:
            try:
                await self.fetch_route(topic)
            except BrokerError as error:
                level = logging.DEBUG if isinstance(error, TopicNotFoundError) else logging.WARNING
                log.log(level, "the route of topic %s cannot be had: %s", topic, error)

    # Heartbeats

    async def heartbeat(self) -> None:
        """Tell every broker of this client now; a broker that cannot be told is logged.

        Slaves hear of it only where there are consumers, as in sendHeartbeatToAllBroker.
        """
        addresses = self.routes.brokers(masters_only=not self._members.consumers)
        await asyncio.gather(*map(self._greet, addresses))

    async def _beat(self) -> None:
        for address in self.routes.forget_offline_brokers():
            log.info("the broker at %s is in no route any more and is forgotten", address)
        await self.heartbeat()

    async def _greet(self, address: str) -> bool:
        heartbeat = self._members.heartbeat()
        if heartbeat is None:
            return False
        self._greeting[address] += 1
        try:
            await self.request(address, RequestCode.HEART_BEAT, body=heartbeat.encode())
        except (NetworkError, BrokerError) as error:
            log.warning("no heartbeat reached the broker at %s: %s", address, error)
            return False
        finally:
            self._greeting[address] -= 1
        return True

    def _on_connected(self, address: str, _: Connection) -> None:
        """Make ourselves known on a new connection: the broker forgot us with the old one."""
        # Unless it was made for a heartbeat.
        if address in self.routes.brokers() and not self._greeting[address]:
            self.spawn(self._introduce(address))

    async def _introduce(self, address: str) -> None:
        if await self._greet(address) and self._members.consumers:
            self.rebalance_immediately()

    async def _unregister(
        self, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Tell the brokers we are connected to; the others do not know of us."""
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
        )

        async def tell(address: str) -> None:
            try:
                await self.request(address, RequestCode.UNREGISTER_CLIENT, header)
            except (NetworkError, BrokerError) as error:
                log.warning("could not unregister from the broker at %s: %s", address, error)

        connected = [address for address in self.routes.brokers() if self.pool.idle(address)]
        await asyncio.gather(*map(tell, connected))

    # The consumers' clocks

    def rebalance_immediately(self) -> None:
        """Have the consumers balance their queues now, or as soon as the least interval allows."""
        self._rebalance_wanted.set()

    async def _keep_balanced(self) -> None:
        """RebalanceService.run."""
        least = self.config.rebalance_min_interval_ms / 1000
        most = max(least, self.config.rebalance_interval_ms / 1000)
        wait = most
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._rebalance_wanted.wait()
            self._rebalance_wanted.clear()
            balanced = await self._rebalance()
            await asyncio.sleep(least)
            wait = most - least if balanced else 0

    async def _rebalance(self) -> bool:
        balanced = True
        for group, consumer in list(self._members.consumers.items()):
            try:
                balanced = await consumer.rebalance() and balanced
            except Exception:
                balanced = False
                log.exception("rebalance of consumer group %s failed", group)
        return balanced

    async def _persist_offsets(self) -> None:
        for group, consumer in list(self._members.consumers.items()):
            try:
                await consumer.persist_offsets()
            except Exception:
                log.exception("the offsets of consumer group %s were not stored", group)

    # Requests of the brokers

    def _on_request(self, command: RemotingCommand, connection: Connection) -> None:
        handler = self._handlers.get(command.code)
        if handler is not None:
            handler(command, connection)
            return
        log.debug("%s of %s is not handled", describe_code(command.code), connection.peer)
        if not command.is_oneway:
            remark = f"request code {command.code} is not supported by this client"
            connection.send(
                encode_response(command, codes.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
            )

    def _consumer_ids_changed(self, command: RemotingCommand, connection: Connection) -> None:
        group = command.header(ConsumerGroupRequestHeader).consumer_group
        log.info("the broker at %s says the consumers of %s changed", connection.peer, group)
        consumer = self.consumer(group)
        if consumer is not None:
            consumer.balance_soon()
