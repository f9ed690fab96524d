"""Offset stores: moving in memory, saving with brokers or in Java's file, and what failures do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.client.instance import ClientInstance
from orbitmq.client.offsets import (
    NO_OFFSET,
    LocalFileOffsetStore,
    OffsetStore,
    ReadOffset,
    RemoteBrokerOffsetStore,
)
from orbitmq.codes import RequestCode
from orbitmq.errors import ConnectError, QueryNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.wire.command import Header, RemotingCommand

Q0, Q1, Q2 = (MessageQueue("orders", "broker-a", number) for number in range(3))
OTHER = MessageQueue("bills", "broker-b", 0)


class MemoryStore(OffsetStore):
    """A store of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[MessageQueue, int] = {}
        self.fail = False

    async def fetch(self, queue: MessageQueue) -> int:
        if self.fail:
            raise ConnectError("unplugged")
        return self.saved.get(queue, NO_OFFSET)

    async def save(self, offsets: Mapping[MessageQueue, int], *, confirmed: bool) -> None:
        if self.fail:
            raise ConnectError("unplugged")
        self.saved.update(offsets)


class Offsets(RuleBasedStateMachine):
    """The table in memory against two dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.offsets: dict[MessageQueue, int] = {}
        self.frozen: set[MessageQueue] = set()

    queues = st.sampled_from([Q0, Q1, OTHER])

    @rule(queue=queues, offset=st.integers(0, 9), increase_only=st.booleans())
    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        self.store.update(queue, offset, increase_only=increase_only)
        if queue not in self.frozen:
            known = self.offsets.get(queue, -1)
            self.offsets[queue] = max(known, offset) if increase_only else offset

    @rule(queue=queues, offset=st.integers(0, 9))
    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self.store.update_and_freeze(queue, offset)
        self.offsets[queue] = offset
        self.frozen.add(queue)

    @rule(queue=queues)
    def remove(self, queue: MessageQueue) -> None:
        self.store.remove(queue)
        self.offsets.pop(queue, None)
        self.frozen.discard(queue)

    @rule(owned=st.sets(queues))
    def persist_all(self, owned: set[MessageQueue]) -> None:
        asyncio.run(self.store.persist_all(owned))
        for queue in self.offsets.keys() - owned:
            del self.offsets[queue]
            self.frozen.discard(queue)
        for queue, offset in self.offsets.items():
            assert self.store.saved[queue] == offset

    @rule(queue=queues, source=st.sampled_from(ReadOffset))
    def read(self, queue: MessageQueue, source: ReadOffset) -> None:
        memory = self.offsets.get(queue, NO_OFFSET)
        saved = self.store.saved.get(queue, NO_OFFSET)
        offset = asyncio.run(self.store.read(queue, source))
        if source is ReadOffset.MEMORY or (source is ReadOffset.MEMORY_FIRST and memory >= 0):
            assert offset == memory
            return
        assert offset == saved
        if saved >= 0:
            self.offsets.setdefault(queue, saved)

    @invariant()
    def memory_is_the_models(self) -> None:
        assert self.store.clone() == self.offsets
        orders = {queue: at for queue, at in self.offsets.items() if queue.topic == "orders"}
        assert self.store.clone("orders") == orders
        assert self.store.get(Q0) == self.offsets.get(Q0, NO_OFFSET)


TestOffsets = Offsets.TestCase


def test_an_offset_that_cannot_be_read_is_an_error_and_not_no_offset() -> None:
    store = MemoryStore()
    store.fail = True
    with pytest.raises(ConnectError):
        asyncio.run(store.read(Q0, ReadOffset.MEMORY_FIRST))


def test_an_offset_set_while_another_is_being_read_stays() -> None:
    class Slow(MemoryStore):
        async def fetch(self, queue: MessageQueue) -> int:
            self.update(queue, 25)
            return 10

    for source, offset in ((ReadOffset.MEMORY_FIRST, 25), (ReadOffset.STORE, 10)):
        store = Slow()
        assert asyncio.run(store.read(Q0, source)) == offset
        assert store.get(Q0) == 25


def test_what_could_not_be_saved_is_logged_and_saved_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    store.update(Q0, 5)
    store.fail = True
    with caplog.at_level(logging.WARNING, "orbitmq.client.offsets"):
        asyncio.run(store.persist_all([Q0]))
    assert "unplugged" in caplog.text
    store.fail = False
    asyncio.run(store.persist_all([Q0]))
    assert store.saved == {Q0: 5}


class StubInstance(ClientInstance):
    """An instance whose brokers are a dict."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int, dict[str, str], bool]] = []
        self.offsets: dict[str, int] = {}
        self.gone: set[str] = set()

    async def broker_address(self, broker_name: str, **_: Any) -> str:
        if broker_name in self.gone:
            raise ConnectError(f"no {broker_name}")
        return f"{broker_name}:10911"

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        assert header is not None
        self.requests.append((address, code, header.ext_fields(), True))
        if code == RequestCode.QUERY_CONSUMER_OFFSET and not self.offsets:
            raise QueryNotFoundError(22, "none yet")
        offset = self.offsets.get("orders", 0)
        return RemotingCommand(ext=msgspec.Raw(b'{"offset":"%d"}' % offset))

    def oneway(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> None:
        assert header is not None
        self.requests.append((address, code, header.ext_fields(), False))


def test_brokers_are_told_one_way_or_asked_to_confirm() -> None:
    instance = StubInstance()
    store = RemoteBrokerOffsetStore(instance, "readers")
    store.update(Q1, 7)
    asyncio.run(store.persist([Q1]))
    asyncio.run(store.persist([Q1], confirmed=True))
    fields = {
        "consumerGroup": "readers",
        "topic": "orders",
        "queueId": "1",
        "commitOffset": "7",
        "bname": "broker-a",
    }
    expected = ("broker-a:10911", RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert instance.requests == [(*expected, False), (*expected, True)]


def test_a_broker_without_an_offset_is_no_error() -> None:
    instance = StubInstance()
    store = RemoteBrokerOffsetStore(instance, "readers")
    assert asyncio.run(store.read(Q0, ReadOffset.STORE)) == NO_OFFSET
    assert store.get(Q0) == NO_OFFSET
    instance.offsets["orders"] = 12
    assert asyncio.run(store.read(Q0, ReadOffset.STORE)) == 12
    assert store.get(Q0) == 12


@pytest.mark.parametrize("confirmed", [False, True])
def test_one_broker_that_is_gone_leaves_the_others_their_offsets(
    confirmed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    instance = StubInstance()
    instance.gone.add("broker-b")
    store = RemoteBrokerOffsetStore(instance, "readers")
    for queue in (OTHER, Q0, Q1):
        store.update(queue, 1)
    asyncio.run(store.persist_all([OTHER, Q0, Q1], confirmed=confirmed))
    assert [fields["queueId"] for _, _, fields, _ in instance.requests] == ["0", "1"]
    assert "no broker-b" in caplog.text


def file_store(root: Path) -> LocalFileOffsetStore:
    return LocalFileOffsetStore("10.0.0.1@one", "readers", root)


JAVA_FILE = """{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":1,
\t\t"topic":"orders"
\t}:7,{
\t\t"brokerName":"broker-a",
\t\t"queueId":0,
\t\t"topic":"orders"
\t}:3
\t}
}"""
"""As LocalFileOffsetStore of Java writes it (RemotingSerializable.toJson, pretty)."""


def test_a_file_of_java_is_read_and_written_in_its_form(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    assert store.path == tmp_path / "10.0.0.1@one" / "readers" / "offsets.json"
    store.path.parent.mkdir(parents=True)
    store.path.write_text(JAVA_FILE)
    asyncio.run(store.load())
    assert store.clone() == {Q1: 7, Q0: 3}
    store.update(Q0, 4)
    asyncio.run(store.persist_all([Q0, Q1]))
    assert store.path.read_bytes() == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:7,'
        b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}:4}}'
    )
    assert b":3}" in store.path.with_name("offsets.json.bak").read_bytes()


def test_no_file_is_made_before_there_is_an_offset(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    asyncio.run(store.load())
    asyncio.run(store.persist_all([Q0]))
    assert asyncio.run(store.read(Q0, ReadOffset.STORE)) == NO_OFFSET
    assert list(tmp_path.iterdir()) == []


def test_saving_some_queues_keeps_the_others(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.update(Q0, 1)
    store.update(Q1, 2)
    asyncio.run(store.persist([Q0, Q1]))
    store.update(Q1, 3)
    asyncio.run(store.persist([Q1]))
    again = file_store(tmp_path)
    asyncio.run(again.load())
    assert again.clone() == {Q0: 1, Q1: 3}


@pytest.mark.parametrize("damage", [b"", b'{"offsetTable":{{"brok', b"\x00" * 50])
def test_a_damaged_file_gives_way_to_its_backup(tmp_path: Path, damage: bytes) -> None:
    store = file_store(tmp_path)
    for offset in (5, 6):
        store.update(Q0, offset)
        asyncio.run(store.persist([Q0]))
    store.path.write_bytes(damage)
    again = file_store(tmp_path)
    asyncio.run(again.load())
    assert again.get(Q0) == 5
    again.update(Q0, 9)
    asyncio.run(again.persist([Q0]))
    assert asyncio.run(file_store(tmp_path).read(Q0, ReadOffset.STORE)) == 9


def test_unchanged_offsets_are_not_written_again(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.update(Q0, 5)
    asyncio.run(store.persist([Q0]))
    written = store.path.stat().st_ino
    asyncio.run(store.persist([Q0]))
    assert store.path.stat().st_ino == written
