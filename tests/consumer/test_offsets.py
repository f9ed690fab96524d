"""Offset stores: moving in memory, saving with brokers or in Java's file, and what failures do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, cast

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.client.instance import ClientInstance
from orbitmq.client.routes import RouteTable
from orbitmq.codes import RequestCode
from orbitmq.consumer.offsets import (
    NO_OFFSET,
    OffsetStore,
    ReadOffset,
    RemoteBrokerOffsetStore,
)
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
        if not owned:
            return
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


def test_what_has_moved_since_it_was_saved_is_known() -> None:
    store = MemoryStore()
    assert not store.has_moved(Q0)
    store.set_default(Q0, 3)
    assert not store.has_moved(Q0)
    store.update(Q0, 4)
    assert store.has_moved(Q0)
    asyncio.run(store.persist([Q0]))
    assert not store.has_moved(Q0)
    store.update(Q0, 5)
    store.fail = True
    asyncio.run(store.persist([Q0]))
    assert store.has_moved(Q0)
    store.remove(Q0)
    assert not store.has_moved(Q0)


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
    with caplog.at_level(logging.WARNING, "orbitmq.consumer.offsets"):
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
        self.master_wanted: list[bool] = []

    async def broker_address(self, broker_name: str, **options: Any) -> str:
        self.master_wanted.append(options.get("only_this", False))
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


class ApacheInstance(StubInstance):
    """Its brokers make a group's table at the first offset, and lose what others put meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[tuple[str, str], dict[str, str]] = {}

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
        fields = header.ext_fields()
        table = self.tables.get((address, fields["topic"]), {})
        await asyncio.sleep(0)
        table[fields["queueId"]] = fields["commitOffset"]
        self.tables[address, fields["topic"]] = table
        return RemotingCommand()


def test_the_first_offset_of_a_group_is_confirmed_before_the_others_are_sent() -> None:
    instance = ApacheInstance()
    store = RemoteBrokerOffsetStore(instance, "readers")
    for queue in (Q0, Q1, Q2, OTHER):
        store.update(queue, 5)

    async def main() -> None:
        await asyncio.gather(
            *(store.persist([queue], confirmed=True) for queue in (Q0, Q1, Q2, OTHER))
        )

    asyncio.run(main())
    assert instance.tables == {
        ("broker-a:10911", "orders"): {"0": "5", "1": "5", "2": "5"},
        ("broker-b:10911", "bills"): {"0": "5"},
    }


class Routes:
    """Of one broker name, without a master."""

    def broker_address(self, broker_name: str) -> str | None:
        return "slave:10911" if broker_name == "broker-b" else None


def test_where_the_master_is_gone_a_slave_is_asked_for_the_offset() -> None:
    instance = StubInstance()
    instance.routes = cast("RouteTable", Routes())
    instance.gone |= {"broker-a", "broker-b"}
    instance.offsets["orders"] = 12
    store = RemoteBrokerOffsetStore(instance, "readers")
    assert asyncio.run(store.fetch(OTHER)) == 12
    assert instance.requests[0][0] == "slave:10911"
    with pytest.raises(ConnectError, match="broker-a"):
        asyncio.run(store.fetch(Q0))
    assert instance.master_wanted == [True, True]
