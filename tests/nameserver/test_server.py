"""The name server by its protocol, as brokers and clients use it."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import BodyError
from orbitmq.nameserver.server import NameServer
from orbitmq.net.connection import Connection
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import (
    ClusterInfo,
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from orbitmq.wire.command import RemotingCommand, encode_request
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.registration import (
    MAX_INFLATED,
    GetBrokerMemberGroupResponseBody,
    RegisterBrokerBody,
    TopicList,
)
from tests.waiting import until

BROKER = {
    "brokerName": "b",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c",
    "brokerId": "0",
    "haServerAddr": "10.0.0.1:10912",
}
BODY = RegisterBrokerBody(
    TopicConfigAndMappingSerializeWrapper(
        {"T": TopicConfig("T", 4, 4), "U": TopicConfig("U", 1, 1)}, DataVersion(0, 5, 1)
    )
).encode()


class Peer:
    """A name server and one connection to it."""

    def __init__(self, server: NameServer, clock: ManualClock, connection: Connection) -> None:
        self.server = server
        self.clock = clock
        self.connection = connection

    async def call(
        self, code: int, header: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self.connection.call(code, header, body, timeout_ms=10_000)

    async def register(self, body: bytes = BODY, **fields: str) -> RemotingCommand:
        return await self.call(RequestCode.REGISTER_BROKER, BROKER | fields, body)

    async def route(self, topic: str = "T") -> RemotingCommand:
        return await self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


async def connect(server: NameServer) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(lambda *_: None), "127.0.0.1", server.port
    )
    return connection


def with_server(scenario: Callable[[Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = ManualClock()
        server = NameServer(clock)
        await server.start("127.0.0.1", 0)
        connection = await connect(server)
        try:
            await scenario(Peer(server, clock, connection))
        finally:
            connection.close()
            await server.close()

    asyncio.run(main())


def test_a_broker_registers_beats_and_unregisters() -> None:
    async def scenario(peer: Peer) -> None:
        answer = await peer.register(bodyCrc32=str(zlib.crc32(BODY) & 0x7FFFFFFF))
        assert (answer.code, answer.ext_fields) == (codes.SUCCESS, {})
        route = TopicRouteData.decode((await peer.route()).body)
        assert route.broker_datas[0].master_address == "10.0.0.1:10911"
        version = DataVersion(0, 5, 1).encode()
        for body, changed in ((version, "false"), (DataVersion().encode(), "true")):
            answer = await peer.call(RequestCode.QUERY_DATA_VERSION, BROKER, body)
            assert answer.ext_fields == {"changed": changed}
            assert DataVersion.decode(answer.body) == DataVersion(0, 5, 1)
        peer.clock.advance(100_000)
        assert (await peer.call(RequestCode.BROKER_HEARTBEAT, BROKER)).code == codes.SUCCESS
        peer.clock.advance(100_000)
        peer.server.expire_brokers()
        assert (await peer.route()).code == codes.SUCCESS
        answer = await peer.call(RequestCode.UNREGISTER_BROKER, BROKER)
        assert answer.code == codes.SUCCESS
        answer = await peer.route()
        assert answer.code == codes.TOPIC_NOT_EXIST
        assert "no broker has topic T" in (answer.remark or "")

    with_server(scenario)


def test_a_broker_is_gone_with_its_connection_and_when_it_is_silent() -> None:
    async def scenario(peer: Peer) -> None:
        other = await connect(peer.server)
        await other.call(RequestCode.REGISTER_BROKER, BROKER, BODY, timeout_ms=10_000)
        assert (await peer.route()).code == codes.SUCCESS
        other.close()
        await until(lambda: not peer.server.routes.members("b"), "the end of the broker")
        assert (await peer.route()).code == codes.TOPIC_NOT_EXIST
        silent = await connect(peer.server)
        await silent.call(RequestCode.REGISTER_BROKER, BROKER, BODY, timeout_ms=10_000)
        peer.clock.advance(120_001)
        peer.server.expire_brokers()
        assert (await peer.route()).code == codes.TOPIC_NOT_EXIST
        await until(lambda: silent.closed, "the end of the silent broker")

    with_server(scenario)


def test_a_connection_without_traffic_ends() -> None:
    async def scenario(peer: Peer) -> None:
        silent = await connect(peer.server)
        for minute in range(3):
            await peer.route()
            await until(lambda: len(peer.server._server.connections) == 2, "both connections")
            peer.server.hang_up_on_idle()
            if minute < 2:
                peer.clock.advance(60_000)
        await until(lambda: silent.closed, "the end of the silent one")
        assert (await peer.route()).code == codes.TOPIC_NOT_EXIST

    with_server(scenario)


def test_what_brokers_and_tools_ask_is_answered_in_javas_form() -> None:
    async def scenario(peer: Peer) -> None:
        await peer.register()
        answer = await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert bytes(answer.body) == (
            b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b",'
            b'"cluster":"c","enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}'
        )
        assert ClusterInfo.decode(answer.body).broker_addr_table["b"].cluster == "c"
        members = {"clusterName": "c", "brokerName": "b"}
        answer = await peer.call(RequestCode.GET_BROKER_MEMBER_GROUP, members)
        group = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
        assert group.broker_addrs == {0: "10.0.0.1:10911"}
        for code, header in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}),
        ):
            answer = await peer.call(code, header)
            assert TopicList.decode(answer.body).topic_list == {"T", "U"}
        answer = await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert TopicList.decode(answer.body).topic_list == {"b", "c"}
        answer = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, members)
        assert answer.ext_fields == {"wipeTopicCount": "2"}
        answer = await peer.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, members)
        assert answer.ext_fields == {"addTopicCount": "2"}
        route = TopicRouteData.decode((await peer.route()).body)
        body = TopicRouteData(queue_datas=route.queue_datas).encode()
        await peer.call(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "X"}, body)
        assert (await peer.route("X")).code == codes.SUCCESS
        await peer.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "X"})
        assert (await peer.route("X")).code == codes.TOPIC_NOT_EXIST

    with_server(scenario)


@pytest.mark.parametrize(
    ("version", "fields", "body"),
    [
        (401, {}, b'"brokerAddrs":{"0":'),
        (400, {}, b'"brokerAddrs":{0:'),
        (400, {"acceptStandardJsonOnly": "true"}, b'"brokerAddrs":{"0":'),
    ],
)
def test_a_route_is_standard_json_for_those_who_need_it(
    version: int, fields: dict[str, str], body: bytes
) -> None:
    async def scenario(peer: Peer) -> None:
        await peer.register()
        reader, writer = await asyncio.open_connection("127.0.0.1", peer.server.port)
        frame = encode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, {"topic": "T"} | fields)
        header = frame[8:].replace(b'"version":479', b'"version":%d' % version)
        writer.write(struct.pack(">II", 4 + len(header), len(header)) + header)
        (answer,) = FrameDecoder().feed(await reader.read(4096))
        assert body in bytes(answer.body)
        writer.close()
        await writer.wait_closed()

    with_server(scenario)


def test_registrations_that_are_damaged_or_too_early_are_refused() -> None:
    async def scenario(peer: Peer) -> None:
        answer = await peer.register(bodyCrc32="5")
        assert (answer.code, answer.remark) == (
            codes.SYSTEM_ERROR, "the registration was damaged: crc32 differs",
        )  # fmt: skip
        single = RegisterBrokerBody(
            TopicConfigAndMappingSerializeWrapper({"T": TopicConfig("T")})
        ).encode()
        answer = await peer.register(single)
        assert answer.code == codes.SYSTEM_ERROR
        assert "all its topics first" in (answer.remark or "")
        answer = await peer.register(b"{]")
        assert answer.code == codes.SYSTEM_ERROR
        assert (await peer.register()).code == codes.SUCCESS

    with_server(scenario)


def packed(*parts: bytes | int) -> bytes:
    return b"".join(
        part.to_bytes(4, "big") if isinstance(part, int) else len(part).to_bytes(4, "big") + part
        for part in parts
    )


PARTS = (
    b'{"counter":{"value":3},"stateVersion":0,"timestamp":9}'.replace(b'{"value":3}', b"3"),
    2,
    b'T 4 4 6 SINGLE_TAG {"a":"b"}',
    b"U 1 2 6 SINGLE_TAG",
    b"[]",
)


@pytest.mark.parametrize("mappings", [(), (1, b'{"topic":"S","bname":"b","totalQueues":2}')])
def test_a_compressed_registration_is_read(mappings: tuple[bytes | int, ...]) -> None:
    async def scenario(peer: Peer) -> None:
        body = zlib.compress(packed(*PARTS, *mappings))
        assert (await peer.register(body, compressed="true")).code == codes.SUCCESS
        route = TopicRouteData.decode((await peer.route("U")).body)
        assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].write_queue_nums) == (
            1,
            2,
        )

    with_server(scenario)


@pytest.mark.parametrize(
    "body",
    [
        b"not deflated",
        zlib.compress(packed(*PARTS))[:-9],
        zlib.compress(packed(*PARTS)[:-4]),
        zlib.compress(packed(PARTS[0], 1, b"T four 4 6 SINGLE_TAG")),
        zlib.compress(packed(PARTS[0], 1, b"T 4")),
        zlib.compress(packed(PARTS[0], 1 << 30)),
        zlib.compress(bytes(MAX_INFLATED + 1)),
    ],
)
def test_a_compressed_registration_that_is_damaged_is_an_error(body: bytes) -> None:
    with pytest.raises(BodyError):
        RegisterBrokerBody.decode_compressed(body)


def test_unknown_requests_are_answered_so() -> None:
    async def scenario(peer: Peer) -> None:
        answer = await peer.call(RequestCode.SEND_MESSAGE_V2)
        assert answer.code == codes.REQUEST_CODE_NOT_SUPPORTED

    with_server(scenario)
