"""What clients can make grow has limits, and who reaches them is told so."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.net.burst import Burst
from orbitmq.net.receiving import Receiving
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_ops import FileOps
from tests.broker.remote import (
    COMMIT,
    SUBSCRIPTION,
    Client,
    Running,
    bodies,
    running,
    with_broker,
)
from tests.waiting import until


async def change(client: Client, text: str) -> None:
    answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
    assert answer.code == codes.SUCCESS, answer.remark


def test_held_pulls_of_a_connection_and_in_all() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        await change(client, "maxHeldPulls=3\nmaxHeldPullsPerConnection=2")
        held = [client.hold("T", offset=1) for _ in range(2)]
        refused = await client.hold("T", offset=1)
        assert refused.code == codes.SYSTEM_BUSY
        assert "[OVERLOAD]" in (refused.remark or "")
        assert "maxHeldPullsPerConnection" in (refused.remark or "")
        other = await node.connect()
        held.append(other.hold("T", offset=1))
        await other.settle()
        refused = await (await node.connect()).hold("T", offset=1)
        assert "maxHeldPulls)" in (refused.remark or "")
        assert bodies(await client.pull("T")) == [b"body"]  # what need not wait is answered
        await client.send("T", b"new")
        assert [bodies(answer) for answer in await asyncio.gather(*held)] == [[b"new"]] * 3
        again = client.hold("T", offset=2)
        await client.settle()
        assert not again.done()
        again.cancel()

    with_broker(scenario)


def test_topics_and_groups() -> None:
    async def scenario(node: Running, client: Client) -> None:
        topics, groups = len(node.broker.topics.topics), len(node.broker.groups.groups)
        await change(client, f"maxTopics={topics + 1}\nmaxGroups={groups + 1}")
        assert (await client.send("T")).code == codes.SUCCESS
        refused = await client.send("U")
        assert refused.code == codes.SYSTEM_ERROR
        assert "maxTopics" in (refused.remark or "")
        assert (await client.send("T")).code == codes.SUCCESS
        assert (await client.pull("T")).code == codes.SUCCESS
        refused = await client.pull("T", consumer_group="others")
        assert "maxGroups" in (refused.remark or "")
        await change(client, "maxTopics=200000\nmaxGroups=200000")
        assert (await client.send("U")).code == codes.SUCCESS

    with_broker(scenario)


def test_offset_entries(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, max_offset_entries=2) as node:
            client = await node.connect()
            flags = {"sys_flag": SUBSCRIPTION | COMMIT, "commit_offset": 1}
            await client.send("T", queue_id=0)
            for queue_id in (0, 1):
                answer = await client.pull("T", queue_id=queue_id, **flags)
                assert answer.code != codes.SYSTEM_BUSY
            refused = await client.pull("T", queue_id=2, **flags)
            assert refused.code == codes.SYSTEM_BUSY
            assert "maxOffsetEntries" in (refused.remark or "")
            assert (await client.pull("T", queue_id=0, **flags)).code == codes.SUCCESS
            await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            await client.send("U", queue_id=0)
            assert (await client.pull("U", **flags)).code == codes.SUCCESS
        async with running(tmp_path, max_offset_entries=1) as node:  # saved ones are all taken
            assert node.broker.offsets.query("readers", "U", 0) == 1

    asyncio.run(main())


def test_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await change(client, "maxConnections=2")
        second = await node.connect()
        await second.settle()
        with caplog.at_level(logging.WARNING, "orbitmq.net"):
            for _ in range(3):
                third = await node.connect()
                await until(lambda third=third: third.connection.closed)  # type: ignore[misc]
        told = [record for record in caplog.records if "maxConnections" in record.getMessage()]
        assert len(told) == 1
        second.close()
        await until(lambda: len(node.node.server._server.connections) == 1)
        await (await node.connect()).settle()

    with_broker(scenario)


class SlowDisk(FileOps):
    """A disk whose flushes wait until they are let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def fdatasync(self, fd: int) -> None:
        self.free.wait(60)
        super().fdatasync(fd)


def test_what_waits_for_the_disk() -> None:
    disk = SlowDisk()

    async def main() -> None:
        async with running(
            file_ops=disk,
            store_config=StoreConfig(mapped_file_size=1 << 20, flush_mode=FlushMode.SYNC),
            max_unanswered_bytes=40_000,
            max_unanswered_bytes_per_connection=15_000,
        ) as node:
            client, other = await node.connect(), await node.connect()
            assert (await client.send("T")).code == codes.SUCCESS
            disk.free.clear()
            try:
                waiting = [asyncio.ensure_future(client.send("T", bytes(20_000)))]
                await client.settle()
                refused = await client.send("T")
                assert refused.code == codes.SYSTEM_BUSY
                assert "maxUnansweredBytesPerConnection" in (refused.remark or "")
                waiting.append(asyncio.ensure_future(other.send("T", bytes(20_000))))
                await other.settle()
                refused = await (await node.connect()).send("T")
                assert "maxUnansweredBytes)" in (refused.remark or "")
                await change(client, "brokerFastFailureEnable=false")
                waiting.append(asyncio.ensure_future(client.send("T")))
                await client.settle()
                assert not any(sent.done() for sent in waiting)
            finally:
                disk.free.set()
            assert {(await sent).code for sent in waiting} == {codes.SUCCESS}
            await change(client, "brokerFastFailureEnable=true")
            assert (await client.send("T")).code == codes.SUCCESS
            assert not node.node.server._answers.unanswered

    asyncio.run(main())


def test_frames_being_received() -> None:
    async def scenario(node: Running, client: Client) -> None:
        receiving = node.node.server._receiving
        await change(client, "maxReceivingBytes=3000000")
        peers = [await node.connect() for _ in range(3)]
        sizes, beyond = (1_000_000, 1_400_000, 2_000_000), (900_000, 2_300_000, 0)
        for peer, size, arrived in zip(peers, sizes, beyond, strict=True):
            peer.connection.send(struct.pack(">II", 10_000_000, 100) + bytes(size))
            await until(lambda arrived=arrived: receiving.total > arrived)  # type: ignore[misc]
        await until(lambda: peers[2].connection.closed)
        assert not peers[0].connection.closed
        assert receiving.total < 3_000_000
        assert (await client.send("T", bytes(1 << 19))).code == codes.SUCCESS
        for peer in peers:
            peer.close()
        await until(lambda: receiving.total == 0)

    with_broker(scenario)


class Held:
    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_who_holds_most_goes_first() -> None:
    receiving = Receiving(100)
    few, many = Held("few"), Held("many")
    receiving.note(few, 40)
    receiving.note(many, 60)
    assert not many.aborted
    receiving.note(few, 41)
    assert (few.aborted, many.aborted, receiving.total) == (False, True, 41)
    receiving.note(many, 0)
    receiving.note(few, 0)
    assert receiving.total == 0


def test_a_burst_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 1.0, 59.0, 60.0))
    burst = Burst(logging.getLogger("orbitmq.net"), lambda: next(times))
    for _ in range(4):
        burst.tell("%s is refused", "it")
    assert [record.getMessage() for record in caplog.records] == [
        "it is refused (0 times in the minute before this was not logged)",
        "it is refused (2 times in the minute before this was not logged)",
    ]
