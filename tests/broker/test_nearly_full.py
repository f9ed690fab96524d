"""A broker whose disk is nearly full, and consumers of what it has deleted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import DiskSpace, FileOps
from orbitmq.wire.headers import ConsumerSendMsgBackRequestHeader
from tests.broker.remote import Client, Running, bodies, messages, running

STORE = StoreConfig(
    mapped_file_size=1 << 12,
    consume_queue_units=5,
    clean_interval_ms=3_600_000,
    delete_log_files_interval_ms=0,
    delete_queue_files_interval_ms=0,
    clean_files_forcibly=False,
    max_hash_slot_num=10,
    max_index_num=100,
)


class Disk(FileOps):
    """A disk whose use, in per cent, is set."""

    used = 10

    def disk_space(self, path: Path) -> DiskSpace:
        return DiskSpace(100, 100 - self.used, 100 - self.used)


def with_disk(scenario: Callable[[Running, Client, Disk], Awaitable[None]]) -> None:
    async def main() -> None:
        disk = Disk()
        async with running(file_ops=disk, store_config=STORE) as node:
            await scenario(node, await node.connect(), disk)

    asyncio.run(main())


def test_sends_are_refused_in_javas_words_reads_go_on_and_sends_resume() -> None:
    async def scenario(node: Running, client: Client, disk: Disk) -> None:
        assert (await client.send("T", b"before")).code == codes.SUCCESS
        disk.used = 91
        node.broker.store.cleaner.clean()
        answer = await client.send("T", b"refused")
        assert answer.code == codes.SERVICE_NOT_AVAILABLE
        assert answer.remark is not None
        assert "the broker's disk is full [CL:  0.91 CQ:  0.91 INDEX:  0.91]" in answer.remark
        assert bodies(await client.pull("T")) == [b"before"]
        disk.used = 85
        node.broker.store.cleaner.clean()
        assert (await client.send("T", b"after")).code == codes.SUCCESS
        assert bodies(await client.pull("T")) == [b"before", b"after"]

    with_disk(scenario)


def test_delayed_and_returned_messages_wait_until_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(node: Running, client: Client, disk: Disk) -> None:
        await client.heartbeat("g", "T")
        await client.send("T", b"delayed", properties={"DELAY": "1"})
        await client.send("T", b"failed")
        (failed,) = messages(await client.pull("T"))
        disk.used = 95
        store = node.broker.store
        store.cleaner.clean()
        header = ConsumerSendMsgBackRequestHeader(
            offset=failed.physical_offset, group="g", delay_level=0
        )
        answer = await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == codes.SERVICE_NOT_AVAILABLE
        for _ in range(5):
            node.advance(1000)
        assert store.max_offset("T", 0) == 1
        disk.used = 50
        store.cleaner.clean()
        node.advance(1000)
        assert bodies(await client.pull("T")) == [b"failed", b"delayed"]
        answer = await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == codes.SUCCESS
        assert store.max_offset(SCHEDULE_TOPIC, 2) == 1

    with_disk(scenario)
    assert caplog.text.count("delayed messages are not delivered") == 1


def test_a_consumer_below_the_minimum_is_told_where_to_go_on() -> None:
    async def scenario(node: Running, client: Client, disk: Disk) -> None:
        sent = [b"%02d" % n + b"x" * 900 for n in range(12)]
        for body in sent:
            await client.send("T", body)
        store = node.broker.store
        first = min((store.directory / "commitlog").iterdir())
        old = node.clock.now_ms() / 1000 - 100 * 3600
        os.utime(first, (old, old))
        disk.used = 76
        assert store.cleaner.clean() == 1
        low = store.min_offset("T", 0)
        assert low > 0
        answer = await client.pull("T", offset=0)
        assert answer.code == codes.PULL_OFFSET_MOVED
        fields = answer.ext_fields
        assert (fields["nextBeginOffset"], fields["minOffset"]) == (str(low), str(low))
        assert (fields["maxOffset"], answer.remark) == ("12", "OFFSET_TOO_SMALL")
        assert bodies(await client.pull("T", offset=low))[0] == sent[low]

    with_disk(scenario)
