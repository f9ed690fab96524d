"""Sends: where a message goes, how it is stored, what the sender is told, what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_ops import FileOps
from orbitmq.wire.command import BINARY, encode_request
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.headers import SendMessageRequestHeader
from orbitmq.wire.ids import decode_offset_message_id
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import encode_batch
from tests.broker.remote import Client, Running, bodies, messages, running, send_header, with_broker
from tests.store.support import after_crash
from tests.waiting import until


def test_the_answer_says_where_the_message_is() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for offset in range(2):
            answer = await client.send("T", queue_id=3, properties={"UNIQ_KEY": "ABC1"})
            fields = answer.ext_fields
            message_id = fields.pop("msgId")
            assert answer.code == codes.SUCCESS
            assert fields == {
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "queueId": "3",
                "queueOffset": str(offset),
                "transactionId": "ABC1",
            }
            ip, port, physical_offset = decode_offset_message_id(message_id)
            assert f"{ip}:{port}" == node.node.address
            assert node.broker.store.record_at(physical_offset) is not None

    with_broker(scenario)


def test_a_stored_message_is_what_was_sent_and_who_took_it() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send(
            "T", b"hello", tags="TagA", properties={"KEYS": "k", "city": "北京"}, flag=7
        )
        (message,) = messages(await client.pull("T"))
        assert (message.body, message.tags, message.keys, message.flag) == (
            b"hello",
            "TagA",
            "k",
            7,
        )
        assert message.store_timestamp == node.clock.now_ms()
        assert message.store_host == node.node.address
        assert message.born_host.startswith("127.0.0.1:")
        properties = message.properties
        assert len(properties.pop("UNIQ_KEY")) == 32
        assert properties == {
            "KEYS": "k",
            "city": "北京",
            "TAGS": "TagA",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }

    with_broker(scenario)


def test_properties_of_4_x_clients_lack_the_last_separator() -> None:
    async def scenario(node: Running, client: Client) -> None:
        header = send_header("T")
        header.properties = "UNIQ_KEY\x01K1\x02TAGS\x01TagA"
        await client.call(RequestCode.SEND_MESSAGE_V2, header, b"x")
        (message,) = messages(await client.pull("T", tags="TagA"))
        assert (message.tags, message.message_id) == ("TagA", "K1")
        assert message.property("CLUSTER") == "DefaultCluster"

    with_broker(scenario)


def test_the_first_form_of_send_works_too() -> None:
    async def scenario(node: Running, client: Client) -> None:
        header = SendMessageRequestHeader(
            producer_group="g",
            topic="T",
            default_topic="TBW102",
            default_topic_queue_nums=2,
            queue_id=1,
            sys_flag=0,
            born_timestamp=5,
            flag=0,
        )
        answer = await client.call(RequestCode.SEND_MESSAGE, header, b"old")
        assert answer.ext_fields["queueId"] == "1"
        assert bodies(await client.pull("T", queue_id=1)) == [b"old"]

    with_broker(scenario)


def test_binary_headers_are_answered_in_kind() -> None:
    async def scenario(node: Running, _client: Client) -> None:
        reader, writer = await asyncio.open_connection(*node.node.address.split(":"))
        writer.write(
            encode_request(310, 9, send_header("T", properties={"UNIQ_KEY": "a-b"}), b"x",
                           serialize_type=BINARY)
        )  # fmt: skip
        decoder = FrameDecoder()
        answers = list(decoder.feed(await reader.read(4096)))
        writer.close()
        await writer.wait_closed()
        assert (answers[0].serialize_type, answers[0].opaque) == (BINARY, 9)
        assert answers[0].ext_fields["transactionId"] == "a-b"

    with_broker(scenario)


def test_a_key_that_json_must_escape_comes_back_whole() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.send("T", properties={"UNIQ_KEY": 'a"\\é%d'})
        assert answer.ext_fields["transactionId"] == 'a"\\é%d'

    with_broker(scenario)


def test_a_one_way_send_is_stored_and_not_answered() -> None:
    async def scenario(node: Running, client: Client) -> None:
        client.connection.oneway(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"quiet")
        client.connection.oneway(RequestCode.SEND_MESSAGE_V2, send_header("T", queue_id=99), b"bad")
        client.connection.oneway(RequestCode.END_TRANSACTION, {"producerGroup": "g"})
        await client.settle()
        assert bodies(await client.pull("T")) == [b"quiet"]

    with_broker(scenario)


def test_a_batch_is_stored_as_its_messages() -> None:
    async def scenario(node: Running, client: Client) -> None:
        items = [
            (n, b"body%d" % n, encode_properties({"TAGS": f"T{n}", "UNIQ_KEY": f"K{n}"}))
            for n in range(3)
        ]
        header = send_header("T", batch=True, properties={"UNIQ_KEY": "BATCH"})
        answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items))
        fields = answer.ext_fields
        assert (fields["queueOffset"], fields["transactionId"]) == ("0", "BATCH")
        found = messages(await client.pull("T"))
        assert [(m.flag, m.body, m.tags, m.message_id) for m in found] == [
            (n, b"body%d" % n, f"T{n}", f"K{n}") for n in range(3)
        ]
        assert fields["msgId"] == ",".join(m.offset_message_id for m in found)
        assert [m.queue_offset for m in messages(await client.pull("T", tags="T1"))] == [1]

    with_broker(scenario)


@pytest.mark.parametrize(
    ("topic", "body", "properties", "remark"),
    [
        ("T", encode_batch([(0, b"x", b"")])[:-1], {}, "cannot be read"),
        ("T", b"", {}, "is empty"),
        ("T", encode_batch([(0, b"x", b"")]), {"DELAY": "3"}, "one by one"),
        ("%RETRY%g", encode_batch([(0, b"x", b"")]), {}, "one by one"),
    ],
)
def test_a_batch_that_cannot_be_stored_is_refused_whole(
    topic: str, body: bytes, properties: dict[str, str], remark: str
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        header = send_header(topic, batch=True, properties=properties)
        answer = await client.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert remark in (answer.remark or "")
        assert node.broker.store.max_physical_offset == 0

    with_broker(scenario)


def test_a_new_topic_takes_after_its_default_topic() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for asked, given in ((3, 3), (100, 8), (-1, 0)):
            topic = f"T{given}"
            await client.send(topic, default_topic_queue_nums=asked, queue_id=-1)
            made = node.broker.topics.topics[topic]
            assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (given, given, 6)
        await client.send("Cluster", default_topic="DefaultCluster", default_topic_queue_nums=99)
        assert node.broker.topics.topics["Cluster"].write_queue_nums == 16
        for default_topic in ("T3", "nowhere"):  # one that is not inherited, one that is not there
            answer = await client.send("New", default_topic=default_topic)
            assert answer.code == codes.TOPIC_NOT_EXIST
            assert "topic New does not exist" in (answer.remark or "")

    with_broker(scenario)


def test_topics_are_not_made_where_that_is_switched_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            await client.send("Old")  # saves TBW102 with it
        async with running(tmp_path, auto_create_topics=False) as node:
            client = await node.connect()
            assert (await client.send("T")).code == codes.TOPIC_NOT_EXIST
            assert (await client.send("Old")).code == codes.SUCCESS

    asyncio.run(main())


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("has space", codes.INVALID_PARAMETER, "' '"),
        ("日本", codes.INVALID_PARAMETER, "letters, digits"),
        (" ", codes.INVALID_PARAMETER, "blank"),
        ("x" * 128, codes.INVALID_PARAMETER, "127 at most"),
        ("../../etc", codes.INVALID_PARAMETER, "'.'"),
        ("SCHEDULE_TOPIC_XXXX", codes.NO_PERMISSION, "broker's own"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", codes.NO_PERMISSION, "broker's own"),
    ],
)
def test_illegal_topics_are_refused_by_name_with_the_remedy(
    topic: str, code: int, remark: str
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.send(topic)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (await client.send("legal")).code == codes.SUCCESS

    with_broker(scenario)


def test_the_queue_is_the_one_asked_for_any_for_minus_one_and_none_that_is_not_there() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        answer = await client.send("T", queue_id=4)
        assert answer.code == codes.INVALID_PARAMETER
        assert "no queue 4" in (answer.remark or "")
        chosen = {(await client.send("T", queue_id=-1)).ext_fields["queueId"] for _ in range(60)}
        assert chosen == {"0", "1", "2", "3"}

    with_broker(scenario)


def test_messages_and_properties_over_the_limit_are_refused() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await client.send("T", bytes(1001))
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert "1001 bytes, 1000 is the most" in (answer.remark or "")
        answer = await client.send("T", properties={"p": "x" * 32_760})
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert "32767 is the most" in (answer.remark or "")
        assert (await client.send("T", bytes(1000))).code == codes.SUCCESS

    with_broker(scenario, store_config=StoreConfig(max_message_size=1000))


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_DELAY_MS": "soon"}, codes.MESSAGE_ILLEGAL),
        ({"DELAY": "soon"}, codes.MESSAGE_ILLEGAL),
    ],
)
def test_what_cannot_be_is_said_and_not_stored(properties: dict[str, str], code: int) -> None:
    async def scenario(node: Running, client: Client) -> None:
        assert (await client.send("T", properties=properties)).code == code
        assert node.broker.store.max_physical_offset == 0

    with_broker(scenario)


def test_words_within_properties_change_nothing() -> None:
    async def scenario(node: Running, client: Client) -> None:
        given = {"note": "no DELAY, TRAN_MSG or POP_CK here", "TAGS": "x"}
        assert (await client.send("T", properties=given)).code == codes.SUCCESS
        (message,) = messages(await client.pull("T", tags="x"))
        assert message.property("note") == given["note"]

    with_broker(scenario)


def test_all_answers_of_a_tick_come_in_order_after_one_write() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answers = await asyncio.gather(*(client.send("T", b"%d" % n) for n in range(100)))
        assert [answer.ext_fields["queueOffset"] for answer in answers] == list(
            map(str, range(100))
        )
        assert bodies(await client.pull("T", max_msg_nums=200)) == [b"%d" % n for n in range(100)]

    with_broker(scenario)


def test_with_sync_flush_messages_are_on_the_disk_before_the_answer() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answers = await asyncio.gather(*(client.send("T") for _ in range(50)))
        assert {answer.code for answer in answers} == {codes.SUCCESS}
        store = node.broker.store
        assert store.flushed_physical_offset == store.max_physical_offset > 0

    with_broker(
        scenario, store_config=StoreConfig(flush_mode=FlushMode.SYNC, flush_interval_ms=3_600_000)
    )


class FullDisk(FileOps):
    """A disk that takes no commit log while it is full."""

    def __init__(self) -> None:
        self.full = False

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, data, position)


def test_a_full_disk_refuses_messages_and_the_broker_goes_on(tmp_path: Path) -> None:
    disk = FullDisk()

    async def main() -> None:
        async with running(tmp_path / "store", file_ops=disk) as node:
            client = await node.connect()
            await client.send("T", b"before")
            disk.full = True
            answers = await asyncio.gather(*(client.send("T", b"lost") for _ in range(3)))
            for answer in answers:
                assert answer.code == codes.SERVICE_NOT_AVAILABLE
                assert "Free space" in (answer.remark or "")
            other = await node.connect()
            assert bodies(await other.pull("T")) == [b"before"]
            disk.full = False
            answer = await client.send("T", b"after")
            assert answer.ext_fields["queueOffset"] == "1"
            assert bodies(await other.pull("T")) == [b"before", b"after"]

    asyncio.run(main())


def test_a_killed_broker_keeps_a_batch_whose_last_property_ends_in_nul(tmp_path: Path) -> None:
    """Its messages' properties are stored without a separator behind them."""

    async def main() -> None:
        async with running(tmp_path / "live") as node:
            client = await node.connect()
            batch = encode_batch([(0, b"one", b""), (0, b"two", b"K\x01v\0")])
            answer = await client.send("T", batch, batch=True)
            assert answer.code == codes.SUCCESS
            await until(lambda: not node.broker.saved.saving, "the topic saved")
            after_crash(tmp_path / "live", tmp_path / "killed")
        async with running(tmp_path / "killed") as node:
            found = messages(await (await node.connect()).pull("T"))
            assert [message.body for message in found] == [b"one", b"two"]
            assert found[1].property("K") == "v\0"

    asyncio.run(main())


def test_a_batch_with_a_message_no_file_holds_is_refused_as_a_whole() -> None:
    async def scenario(node: Running, client: Client) -> None:
        batch = encode_batch([(0, b"one", b""), (0, bytes(4096), b"")])
        answer = await client.send("T", batch, batch=True)
        assert answer.code == codes.MESSAGE_ILLEGAL
        assert "mapped_file_size" in (answer.remark or "")
        await client.send("T", b"next")
        assert bodies(await client.pull("T")) == [b"next"]

    with_broker(scenario, store_config=StoreConfig(mapped_file_size=4096))
