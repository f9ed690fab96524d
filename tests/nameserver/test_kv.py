"""Keys and values of the name server: the table, its file, and the requests about it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, CorruptStoreError, StoreError
from orbitmq.names import ORDER_TOPIC_CONFIG
from orbitmq.nameserver import kv
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.kv import KVConfig, SavedKVConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import (
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.namesrv_bodies import KVConfigSerializeWrapper
from orbitmq.wire.registration import KVTable, RegisterBrokerBody, TopicList

NAMES = st.sampled_from(["a", "b", "c"])
CHANGES = st.lists(st.tuples(NAMES, NAMES, st.none() | st.text(max_size=5)))


@given(CHANGES)
def test_a_table_holds_what_was_set_last_and_counts_it(
    changes: list[tuple[str, str, str | None]],
) -> None:
    table, model = KVConfig(), dict[str, dict[str, str]]()
    for namespace, key, value in changes:
        if value is None:
            table.delete(namespace, key)
            model.get(namespace, {}).pop(key, None)
        else:
            table.put(namespace, key, value)
            model.setdefault(namespace, {})[key] = value
    assert table.snapshot().config_table == model
    for namespace in "abcd":
        assert table.namespace(namespace) == model.get(namespace)
        for key in "abcd":
            assert table.get(namespace, key) == model.get(namespace, {}).get(key)
    again = KVConfig()
    again.load(KVConfigSerializeWrapper.decode(table.snapshot().encode()))
    assert vars(again) == vars(table)  # its counts, too


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [
        ("", "k", "v"),
        ("n", " ", "v"),
        ("n" * 256, "k", "v"),
        ("n", "k" * 256, "v"),
        ("n", "k", "v" * (kv.MAX_VALUE_LENGTH + 1)),
    ],
)
def test_what_is_blank_or_too_long_is_refused(namespace: str, key: str, value: str) -> None:
    table = KVConfig()
    with pytest.raises(BrokerError) as caught:
        table.put(namespace, key, value)
    assert caught.value.code == codes.INVALID_PARAMETER
    assert table.snapshot().config_table == {}


def test_there_are_only_so_many_keys_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "MAX_ENTRIES", 2)
    monkeypatch.setattr(kv, "MAX_CHARACTERS", 20)
    table = KVConfig()
    table.put("n", "a", "1")
    table.put("n", "b", "2")
    with pytest.raises(BrokerError, match="2 keys"):
        table.put("n", "c", "3")
    table.put("n", "a", "x" * 15)
    with pytest.raises(BrokerError, match="20 characters"):
        table.put("n", "b", "22")
    table.delete("n", "a")
    table.put("n", "c", "3" * 15)


class Peer:
    """A name server and one connection to it."""

    def __init__(self, server: NameServer, connection: Connection) -> None:
        self.server = server
        self._connection = connection

    async def call(self, code: int, body: bytes = b"", **header: str) -> RemotingCommand:
        return await self._connection.call(code, header, body, timeout_ms=10_000)

    async def put(self, key: str, value: str, namespace: str = "n") -> RemotingCommand:
        return await self.call(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)

    async def get(self, key: str, namespace: str = "n") -> str | None:
        answer = await self.call(RequestCode.GET_KV_CONFIG, namespace=namespace, key=key)
        if answer.code == codes.QUERY_NOT_FOUND:
            return None
        assert answer.code == codes.SUCCESS
        return answer.ext_fields["value"]


class Running:
    """``async with``: a name server with ``config``."""

    def __init__(self, config: NameServerConfig) -> None:
        self._server = NameServer(config=config)

    async def __aenter__(self) -> Peer:
        await self._server.start("127.0.0.1", 0)
        _, self._connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(lambda *_: None), "127.0.0.1", self._server.port
        )
        return Peer(self._server, self._connection)

    async def __aexit__(self, *_: object) -> None:
        self._connection.close()
        await self._server.close()


def test_values_are_set_told_listed_and_deleted() -> None:
    async def main() -> None:
        async with Running(NameServerConfig()) as peer:
            assert await peer.get("k") is None
            assert (await peer.put("k", "v=1;x")).code == codes.SUCCESS
            assert await peer.get("k") == "v=1;x"
            answer = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
            assert KVTable.decode(answer.body).table == {"k": "v=1;x"}
            answer = await peer.call(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k")
            assert answer.code == codes.SUCCESS
            assert await peer.get("k") is None
            answer = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
            assert KVTable.decode(answer.body).table == {}
            answer = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="other")
            assert answer.code == codes.QUERY_NOT_FOUND
            answer = await peer.put("k" * 1000, "v")
            assert answer.code == codes.INVALID_PARAMETER

    asyncio.run(main())


def test_values_are_on_the_disk_in_apaches_form_when_they_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"

    async def main() -> None:
        async with Running(NameServerConfig(kv_config_path=path)) as peer:
            answers = await asyncio.gather(*(peer.put(f"k{n}", "v") for n in range(50)))
            assert {answer.code for answer in answers} == {codes.SUCCESS}
            assert json.loads(path.read_bytes()) == {
                "configTable": {"n": {f"k{n}": "v" for n in range(50)}}
            }
        async with Running(NameServerConfig(kv_config_path=path)) as peer:
            assert await peer.get("k49") == "v"

    asyncio.run(main())


def test_a_disk_that_does_not_take_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"

    async def main() -> None:
        async with Running(NameServerConfig(kv_config_path=path)) as peer:
            path.parent.write_bytes(b"no directory")
            answer = await peer.put("k", "v")
            assert answer.code == codes.SYSTEM_ERROR
            assert "not on the disk" in (answer.remark or "")
            assert await peer.get("k") == "v"
            path.parent.unlink()
            assert (await peer.put("l", "w")).code == codes.SUCCESS
            assert set(json.loads(path.read_bytes())["configTable"]["n"]) == {"k", "l"}

    asyncio.run(main())


def test_a_damaged_file_is_taken_from_its_backup_or_keeps_it_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b"{")
    with pytest.raises(CorruptStoreError, match=r"kvConfig\.json"):
        SavedKVConfig(path).load()
    path.with_name("kvConfig.json.bak").write_bytes(b'{"configTable":{"n":{"k":"v"}}}')
    saved = SavedKVConfig(path)
    saved.load()
    assert saved.table.get("n", "k") == "v"
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError):
        SavedKVConfig(path).load()


def registration(*topics: str) -> bytes:
    configs = {name: TopicConfig(name, 4, 4) for name in topics}
    version = DataVersion(counter=len(topics))
    return RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(configs, version)).encode()


async def register(peer: Peer, *topics: str) -> RemotingCommand:
    return await peer.call(
        RequestCode.REGISTER_BROKER,
        registration(*topics),
        brokerName="b",
        brokerAddr="10.0.0.1:10911",
        clusterName="c",
        brokerId="0",
        haServerAddr="",
    )


def test_routes_and_registrations_tell_the_order_configuration_where_that_is_set() -> None:
    async def main() -> None:
        async with Running(NameServerConfig(order_message_enable=True)) as peer:
            assert not (await register(peer, "T", "U")).body
            await peer.put("T", "b:4", ORDER_TOPIC_CONFIG)
            answer = await register(peer, "T", "U")
            assert KVTable.decode(answer.body).table == {"T": "b:4"}
            for topic, order in (("T", "b:4"), ("U", None)):
                answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
                assert TopicRouteData.decode(answer.body).order_topic_conf == order
            peer.server.settings.current = NameServerConfig(
                return_order_topic_config_to_broker=False
            )
            assert not (await register(peer, "T", "U")).body
            answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
            assert TopicRouteData.decode(answer.body).order_topic_conf is None

    asyncio.run(main())


def test_lists_can_be_switched_off_and_registrations_can_delete() -> None:
    async def main() -> None:
        config = NameServerConfig(delete_topic_with_broker_registration=True)
        async with Running(config) as peer:
            await register(peer, "T", "U", "V")
            await register(peer, "T", "U")
            answer = await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert TopicList.decode(answer.body).topic_list == {"T", "U"}
            answer = await peer.call(RequestCode.GET_UNIT_TOPIC_LIST)
            assert TopicList.decode(answer.body).topic_list == frozenset()
            peer.server.settings.current = NameServerConfig(
                enable_all_topic_list=False, enable_topic_list=False
            )
            for code in (
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                RequestCode.GET_UNIT_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            ):
                answer = await peer.call(code)
                assert answer.code == codes.SYSTEM_ERROR
                assert "switched off" in (answer.remark or "")

    asyncio.run(main())
