"""Clients of a broker whose disk cannot be flushed: each message is stored once, and they know."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq import AsyncProducer, Message, SendStatus, codes
from orbitmq.codes import RequestCode
from orbitmq.errors import ServiceUnavailableError
from orbitmq.message import MessageQueue
from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.wire.command import BINARY, encode_request
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.headers import ConsumerSendMsgBackRequestHeader
from orbitmq.wire.registration import KVTable
from tests.broker.remote import Running, bodies, messages, running, send_header
from tests.store.support import FailingFlush, after_crash, opened
from tests.store.support import bodies as stored_bodies
from tests.waiting import until

MODES = [FlushMode.SYNC, FlushMode.ASYNC]
QUEUE = MessageQueue("T", "broker-a", 0)


def config(mode: FlushMode, max_unflushed_bytes: int = 1 << 20) -> StoreConfig:
    # SYNC_FLUSH is to flush for its clients alone, ASYNC_FLUSH as soon as something is written
    interval_ms = 3_600_000 if mode is FlushMode.SYNC else 1
    return StoreConfig(
        mapped_file_size=1 << 16,
        consume_queue_units=1000,
        flush_mode=mode,
        flush_interval_ms=interval_ms,
        queue_flush_interval_ms=3_600_000,
        max_unflushed_bytes=max_unflushed_bytes,
    )


Send = Callable[[str], Awaitable[SendStatus]]


def with_failing_disk(
    store: Path,
    mode: FlushMode,
    scenario: Callable[[Running, FailingFlush, Send], Awaitable[None]],
    **settings: int,
) -> None:
    async def main() -> None:
        disk = FailingFlush()
        async with (
            running(store, file_ops=disk, store_config=config(mode, **settings)) as node,
            AsyncProducer("senders", name_server=node.node.name_server) as producer,
        ):

            async def send(text: str) -> SendStatus:
                result = await producer.send(Message("T", text.encode()), queue=QUEUE)
                return result.status

            await send("first")  # makes the topic
            log = node.broker.store
            await until(lambda: log.flushed_physical_offset == log.max_physical_offset, "a flush")
            try:
                await scenario(node, disk, send)
            finally:
                disk.failures = 0

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_one_failure_costs_no_message_and_makes_no_copy(tmp_path: Path, mode: FlushMode) -> None:
    async def scenario(node: Running, disk: FailingFlush, send: Send) -> None:
        disk.failures = 1
        status = await send("unlucky")
        expected = SendStatus.FLUSH_DISK_TIMEOUT if mode is FlushMode.SYNC else SendStatus.SEND_OK
        assert status is expected
        await until(lambda: disk.failures == 0, "the failure")
        if mode is FlushMode.ASYNC:
            await until(
                lambda: node.broker.store.flush_failure is None, "the disk to be well again"
            )
        for text in ("a", "b"):
            assert await send(text) is SendStatus.SEND_OK
        store = node.broker.store
        await until(lambda: store.flushed_physical_offset == store.max_physical_offset, "a flush")
        client = await node.connect()
        assert bodies(await client.pull("T")) == [b"first", b"unlucky", b"a", b"b"]
        disk.after_power_cut(tmp_path / "live", tmp_path / "cut")

    with_failing_disk(tmp_path / "live", mode, scenario)
    with opened(tmp_path / "cut", config(mode)) as store:
        assert stored_bodies(store, "T") == [b"first", b"unlucky", b"a", b"b"]


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_fails_for_long(
    tmp_path: Path, mode: FlushMode, caplog: pytest.LogCaptureFixture
) -> None:
    sent = [b"first", b"unlucky", *(b"%d" % n for n in range(5))]

    async def scenario(node: Running, disk: FailingFlush, send: Send) -> None:
        client = await node.connect()
        disk.failures = math.inf
        await send("unlucky")
        store = node.broker.store
        await until(lambda: store.flush_failure is not None, "the failure")
        for n in range(5):
            assert await send(str(n)) is SendStatus.FLUSH_DISK_TIMEOUT
        assert bodies(await client.pull("T")) == sent
        table = KVTable.decode((await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert "Input/output error" in table["commitLogFlush"]
        assert "may not survive a power cut" in table["commitLogFlush"]
        after_crash(tmp_path / "live", tmp_path / "killed")

        disk.failures = 0
        if mode is FlushMode.ASYNC:
            await until(lambda: store.flush_failure is None, "the disk to be well again")
        assert await send("healed") is SendStatus.SEND_OK
        await until(lambda: store.flushed_physical_offset == store.max_physical_offset, "a flush")
        table = KVTable.decode((await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert table["commitLogFlush"] == "works"
        disk.after_power_cut(tmp_path / "live", tmp_path / "cut")

    with_failing_disk(tmp_path / "live", mode, scenario)
    for directory, expected in (("killed", sent), ("cut", [*sent, b"healed"])):
        with opened(tmp_path / directory, config(mode)) as store:
            assert stored_bodies(store, "T") == expected
    assert caplog.text.count("cannot flush the commit log") == 1
    assert caplog.text.count("the commit log is flushed again") == 1


@pytest.mark.parametrize("mode", MODES)
def test_what_will_not_be_stored_is_refused(tmp_path: Path, mode: FlushMode) -> None:
    async def scenario(node: Running, disk: FailingFlush, send: Send) -> None:
        disk.failures = math.inf
        await send("unlucky")
        await until(lambda: node.broker.store._log_flusher.refusal, "the failure's consequence")
        with pytest.raises(ServiceUnavailableError, match="max_unflushed_bytes"):
            await send("refused")
        disk.failures = 0
        if mode is FlushMode.SYNC:  # the background has an hour left, so that it is the sends' turn
            node.broker.store.request_flush(lambda _: None)
        await until(lambda: node.broker.store.flush_failure is None, "the disk to be well again")
        assert await send("taken") is SendStatus.SEND_OK
        client = await node.connect()
        assert bodies(await client.pull("T")) == [b"first", b"unlucky", b"taken"]

    with_failing_disk(tmp_path, mode, scenario, max_unflushed_bytes=0)


def test_the_answer_says_where_the_message_is_in_either_serialization(tmp_path: Path) -> None:
    async def scenario(node: Running, disk: FailingFlush, send: Send) -> None:
        client = await node.connect()
        disk.failures = math.inf
        answer = await client.send("T", properties={"UNIQ_KEY": "ABC1"})
        assert answer.code == codes.FLUSH_DISK_TIMEOUT
        fields = answer.ext_fields
        assert (fields["queueOffset"], fields["transactionId"]) == ("1", "ABC1")
        assert answer.remark == "stored, but the disk cannot be flushed"
        reader, writer = await asyncio.open_connection(*node.node.address.split(":"))
        header = send_header("T", properties={"UNIQ_KEY": "ABC2"})
        writer.write(encode_request(310, 9, header, b"x", serialize_type=BINARY))
        (binary,) = FrameDecoder().feed(await reader.read(4096))
        writer.close()
        await writer.wait_closed()
        assert (binary.serialize_type, binary.code) == (BINARY, codes.FLUSH_DISK_TIMEOUT)
        assert binary.ext_fields["queueOffset"] == "2"

    with_failing_disk(tmp_path, FlushMode.SYNC, scenario)


def test_a_message_given_back_is_given_back_once(tmp_path: Path) -> None:
    """Whatever is no success has a consumer send it as a new message."""

    async def scenario(node: Running, disk: FailingFlush, send: Send) -> None:
        client = await node.connect()
        await client.heartbeat("g", "T")
        (message,) = messages(await client.pull("T"))
        disk.failures = math.inf
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset, group="g", delay_level=0
        )
        answer = await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == codes.SUCCESS
        assert node.broker.store.max_offset(SCHEDULE_TOPIC, 2) == 1

    with_failing_disk(tmp_path, FlushMode.SYNC, scenario)
