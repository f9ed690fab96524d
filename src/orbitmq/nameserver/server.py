"""The name server: answers clients' and brokers' requests about the route table.

Request handlers translate only; what they mean is in RouteTable. Follows DefaultRequestProcessor
and ClientRequestProcessor.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, StoreError
from orbitmq.live_settings import LiveSettings
from orbitmq.names import ORDER_TOPIC_CONFIG
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.kv import SavedKVConfig
from orbitmq.nameserver.route_bodies import RouteBodies
from orbitmq.nameserver.routes import BrokerId, Registration, RouteTable
from orbitmq.nameserver.settings import KEYS
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Dispatcher, Handler
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls
from orbitmq.settings_requests import SettingsRequests
from orbitmq.wire.bodies import Body, DataVersion, TopicRouteData
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    BrokerHeartbeatRequestHeader,
    BrokerNameRequestHeader,
    BrokerRequestHeader,
    ClusterRequestHeader,
    GetRouteInfoRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    TopicCountResponseHeader,
    TopicRequestHeader,
)
from orbitmq.wire.namesrv_bodies import (
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    KVConfigRequestHeader,
    PutKVConfigRequestHeader,
)
from orbitmq.wire.registration import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
)

log = logging.getLogger("orbitmq.nameserver")

_V4_9_4: Final = 401
"""The first version of Java's client that reads standard JSON only."""


class NameServer:
    """A name server on a port of its own; ``routes`` is its state, a new one by default.

    ``settings`` begin with ``config``, ``kv`` has what operators keep in it. ``tls`` has it speak
    TLS too, or only. All methods belong to the running loop. Raises ConfigError when changed
    settings that were kept cannot be taken.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        routes: RouteTable | None = None,
        *,
        config: NameServerConfig | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.routes = routes or RouteTable()
        self._bodies = RouteBodies()
        config = config or NameServerConfig()
        self.settings = LiveSettings(KEYS, config, clock.now_ms, kept_in=config.config_store_path)
        self.settings.watch(self._renew)
        self._settings_requests = SettingsRequests(self.settings, self._facts)
        self.kv = SavedKVConfig(self.config.kv_config_path)
        self._clock = clock
        self._scan: asyncio.TimerHandle | None = None
        handlers: dict[int, Handler] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._members,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._clusters,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_only_topics,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._settings_requests.change,
            RequestCode.GET_NAMESRV_CONFIG: self._settings_requests.show,
        }
        self._server = Server(
            Dispatcher(handlers).dispatch,
            on_closed=self._disconnected,
            tls=tls,
            idle_ms=self.config.connection_idle_ms,
        )

    @property
    def config(self) -> NameServerConfig:
        """The settings as they are now."""
        return self.settings.current

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes any free one.

        Raises ConfigError when that cannot be done, StoreError when what was kept cannot be read.
        """
        self.kv.load()
        await self._server.start(host, port)
        self._scan_later()

    async def close(self) -> None:
        """Stop, and close all connections."""
        if self._scan is not None:
            self._scan.cancel()
        await self._server.close()
        self._settings_requests.close()
        await self.kv.close()

    def expire_brokers(self) -> None:
        """Forget the brokers that are silent too long, and hang up on them."""
        for connection in self.routes.expire(self._now_ms()):
            if isinstance(connection, Connection):
                connection.abort()

    def hang_up_on_idle(self) -> None:
        """End the connections that are idle too long."""
        self._server.sweep(self._now_ms())

    def _scan_later(self) -> None:
        def scan() -> None:
            self.expire_brokers()
            self.hang_up_on_idle()
            self._scan_later()

        if self._scan is not None:
            self._scan.cancel()
        seconds = self.config.scan_interval_ms / 1000
        self._scan = asyncio.get_running_loop().call_later(seconds, scan)

    def _renew(self, config: NameServerConfig) -> None:
        """Go by these settings from now on."""
        self._server.idle_ms = config.connection_idle_ms
        self._scan_later()

    def _facts(self) -> dict[str, str]:
        """Settings that are known as it runs."""
        return {"bindAddress": self._server.host, "listenPort": str(self._server.port)}

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _disconnected(self, connection: Connection, _error: Exception | None) -> None:
        self.routes.disconnected(connection)

    # Handlers

    def _route(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        header = command.header(GetRouteInfoRequestHeader)
        route = self.routes.route(header.topic)
        if route is None:
            raise BrokerError(
                codes.TOPIC_NOT_EXIST,
                f"no broker has topic {header.topic}: create it, or send to it where brokers "
                "create topics by themselves",
            )
        if self.config.order_message_enable:
            order = self.kv.table.get(ORDER_TOPIC_CONFIG, header.topic)
            if order is not None:
                route = msgspec.structs.replace(route, order_topic_conf=order)
        standard = command.version >= _V4_9_4 or bool(header.accept_standard_json_only)
        body = self._bodies.body(header.topic, route, standard=standard)
        return [encode_response(command, codes.SUCCESS, body_length=len(body)), body]

    def _register(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(RegisterBrokerRequestHeader)
        checksum = zlib.crc32(command.body) & 0x7FFFFFFF
        if header.body_crc32 and header.body_crc32 != checksum:
            raise BrokerError(codes.SYSTEM_ERROR, "the registration was damaged: crc32 differs")
        if header.compressed:
            body = RegisterBrokerBody.decode_compressed(command.body)
        else:
            body = RegisterBrokerBody.decode(command.body) if command.body else RegisterBrokerBody()
        topics = body.topic_config_serialize_wrapper
        result = self.routes.register(
            Registration(
                BrokerId(header.cluster_name, header.broker_addr),
                header.broker_name,
                header.broker_id,
                header.ha_server_addr,
                header.heartbeat_timeout_millis,
                header.enable_acting_master,
            ),
            topics.topic_config_table.values(),
            topics.data_version,
            connection,
            self._now_ms(),
            only_these=self.config.delete_topic_with_broker_registration
            and not topics.topic_queue_mapping_info_map,
        )
        if result is None:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"{header.broker_name} at {header.broker_addr} is not registered: it must tell of "
                "all its topics first, and not be older than the broker that has its id",
            )
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=result.ha_address, master_addr=result.master_address
        )
        order = self.order_config()
        data = KVTable(order).encode() if order is not None else b""
        return [encode_response(command, codes.SUCCESS, answer, body_length=len(data)), data]

    def order_config(self) -> dict[str, str] | None:
        """What brokers are told of ordered topics when they register; None: nothing."""
        if not self.config.return_order_topic_config_to_broker:
            return None
        return self.kv.table.namespace(ORDER_TOPIC_CONFIG)

    def _unregister(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(BrokerRequestHeader)
        self.routes.unregister(
            BrokerId(header.cluster_name, header.broker_addr), header.broker_name
        )
        return encode_response(command, codes.SUCCESS)

    def _query_version(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        header = command.header(BrokerRequestHeader)
        broker = BrokerId(header.cluster_name, header.broker_addr)
        known = self.routes.version(broker)
        self.routes.touch(broker, self._now_ms())
        body = known.encode() if known else b""
        changed = known is None or known != DataVersion.decode(command.body)
        answer = QueryDataVersionResponseHeader(changed=changed)
        return [encode_response(command, codes.SUCCESS, answer, body_length=len(body)), body]

    def _heartbeat(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(BrokerHeartbeatRequestHeader)
        self.routes.touch(BrokerId(header.cluster_name, header.broker_addr), self._now_ms())
        return encode_response(command, codes.SUCCESS)

    def _members(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        header = command.header(BrokerNameRequestHeader)
        group = BrokerMemberGroup(
            header.cluster_name or "", header.broker_name, self.routes.members(header.broker_name)
        )
        return _answer(command, GetBrokerMemberGroupResponseBody(group))

    def _clusters(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return _answer(command, self.routes.clusters())

    def _topics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        _check_enabled("enableAllTopicList", self.config.enable_all_topic_list)
        return _answer(command, self.routes.topics())

    def _cluster_topics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        _check_enabled("enableTopicList", self.config.enable_topic_list)
        header = command.header(ClusterRequestHeader)
        return _answer(command, self.routes.cluster_topics(header.cluster))

    def _system_topics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return _answer(command, self.routes.system_topics())

    def _unit_topics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        _check_enabled("enableTopicList", self.config.enable_topic_list)
        return _answer(command, self.routes.unit_topics())

    def _unit_sub_topics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        _check_enabled("enableTopicList", self.config.enable_topic_list)
        return _answer(command, self.routes.unit_sub_topics())

    def _unit_sub_only_topics(
        self, command: RemotingCommand, _connection: Connection
    ) -> list[bytes]:
        _check_enabled("enableTopicList", self.config.enable_topic_list)
        return _answer(command, self.routes.unit_sub_only_topics())

    def _put_kv(self, command: RemotingCommand, connection: Connection) -> None:
        header = command.header(PutKVConfigRequestHeader)
        self.kv.table.put(header.namespace, header.key, header.value)
        self._save_kv(command, connection)

    def _get_kv(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(KVConfigRequestHeader)
        value = self.kv.table.get(header.namespace, header.key)
        if value is None:
            raise BrokerError(
                codes.QUERY_NOT_FOUND,
                f"namespace {header.namespace!r} has no key {header.key!r}",
            )
        return encode_response(command, codes.SUCCESS, GetKVConfigResponseHeader(value=value))

    def _delete_kv(self, command: RemotingCommand, connection: Connection) -> None:
        header = command.header(KVConfigRequestHeader)
        self.kv.table.delete(header.namespace, header.key)
        self._save_kv(command, connection)

    def _kv_list(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        namespace = command.header(GetKVListByNamespaceRequestHeader).namespace
        table = self.kv.table.namespace(namespace)
        if table is None:
            raise BrokerError(codes.QUERY_NOT_FOUND, f"there is no namespace {namespace!r}")
        return _answer(command, KVTable(table))

    def _save_kv(self, command: RemotingCommand, connection: Connection) -> None:
        """Save keys and values, and answer ``command`` when that is done."""

        def done(error: StoreError | None) -> None:
            if error is None:
                connection.send(encode_response(command, codes.SUCCESS))
            else:
                remark = f"it is kept in memory, but not on the disk: {error}"
                connection.send(encode_response(command, codes.SYSTEM_ERROR, remark=remark))

        self.kv.save(done)

    def _register_topic(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(TopicRequestHeader)
        route = TopicRouteData.decode(command.body)
        self.routes.register_topic(header.topic, route.queue_datas)
        return encode_response(command, codes.SUCCESS)

    def _delete_topic(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(TopicRequestHeader)
        self.routes.delete_topic(header.topic, header.cluster_name)
        return encode_response(command, codes.SUCCESS)

    def _wipe_write_perm(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(BrokerNameRequestHeader)
        count = self.routes.set_writable(header.broker_name, writable=False)
        answer = TopicCountResponseHeader(wipe_topic_count=count)
        return encode_response(command, codes.SUCCESS, answer)

    def _add_write_perm(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(BrokerNameRequestHeader)
        count = self.routes.set_writable(header.broker_name, writable=True)
        answer = TopicCountResponseHeader(add_topic_count=count)
        return encode_response(command, codes.SUCCESS, answer)


def _check_enabled(setting: str, enabled: bool) -> None:
    if not enabled:
        raise BrokerError(codes.SYSTEM_ERROR, f"this is switched off: {setting}=false")


def _answer(command: RemotingCommand, body: Body) -> list[bytes]:
    data = body.encode()
    return [encode_response(command, codes.SUCCESS, body_length=len(data)), data]
