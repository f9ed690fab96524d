"""The producer on good days: where messages go, and what stands on the wire."""

from __future__ import annotations

import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from orbitmq import Producer, codes
from orbitmq.client.mailbox import Waiter
from orbitmq.codes import RequestCode
from orbitmq.errors import ClientStateError, IllegalNameError, InvalidMessageError
from orbitmq.message import Message, MessageQueue, SendResult, SendStatus
from orbitmq.producer.selectors import select_queue_by_hash, select_queue_by_random
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import HeartbeatData
from orbitmq.wire.headers import SendMessageRequestHeaderV2
from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import decode_properties
from orbitmq.wire.record import decode_batch
from tests.client.stub_cluster import SENDS, StubCluster


@contextmanager
def producing(cluster: StubCluster, **settings: Any) -> Iterator[Producer]:
    with Producer("writers", name_server=cluster.address, **settings) as producer:
        yield producer


def sent(cluster: StubCluster) -> list[tuple[SendMessageRequestHeaderV2, bytes]]:
    return [stored for broker in cluster.brokers for stored in broker.messages]


def properties_of(header: SendMessageRequestHeaderV2) -> dict[str, str]:
    return decode_properties((header.properties or "").encode())


def test_a_message_is_acknowledged_with_its_place() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        result = producer.send(Message("t", b"hello"))
        assert result.status is SendStatus.SEND_OK
        assert result.message_queue == MessageQueue("t", "broker-a", 0)
        assert result.queue_offset == 0
        assert result.offset_message_id == "broker-a-1"
        assert result.region_id == "DefaultRegion"
        ((header, body),) = sent(cluster)
        assert body == b"hello"
        assert properties_of(header)["UNIQ_KEY"] == result.message_id


def test_the_request_says_what_javas_producer_says() -> None:
    message = Message(
        "t",
        b"x",
        tags="UA",
        keys=["N1", "N2"],
        sharding_key="s",
        properties={"user": "100 %"},
        delay_level=3,
        flag=7,
    )
    with StubCluster(t=1) as cluster, producing(cluster, unit_mode=True) as producer:
        message_id = producer.send(message).message_id
        ((header, _),) = sent(cluster)
        assert header.producer_group == "writers"
        assert header.topic == "t"
        assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
        assert (header.sys_flag, header.flag, header.reconsume_times) == (0, 7, 0)
        assert (header.unit_mode, header.batch, header.bname) == (True, False, "broker-a")
        assert header.born_timestamp > 1_700_000_000_000
        assert properties_of(header) == {
            "user": "100 %",
            "UNIQ_KEY": message_id,
            "TAGS": "UA",
            "KEYS": "N1 N2",
            "__SHARDINGKEY": "s",
            "DELAY": "3",
            "WAIT": "true",
        }
        assert message.properties == {"user": "100 %"}
        (request,) = cluster.brokers[0].of(RequestCode.SEND_MESSAGE_V2)
        assert request.language == "PYTHON"


def test_messages_take_the_queues_in_turn() -> None:
    with StubCluster(2, t=3) as cluster, producing(cluster) as producer:
        queues = [producer.send(Message("t", b"x")).message_queue for _ in range(12)]
        assert set(Counter(queues).values()) == {2}
        assert queues[:6] == queues[6:]


def test_a_sharding_key_keeps_to_the_queue_java_would_choose() -> None:
    keys = ["N14228", "N24211", "N619AA", "N804JB", "N668DN", "日本"]
    with StubCluster(2, t=3) as cluster, producing(cluster) as producer:
        queues = producer.publish_queues("t")
        for key in keys * 2:
            result = producer.send(Message("t", b"x", sharding_key=key))
            assert result.message_queue == queues[abs(java_hash(key)) % 6]
            by_java = producer.send(Message("t", b"x"), selector=select_queue_by_hash, arg=key)
            assert by_java.message_queue == result.message_queue


def test_a_queue_or_a_selector_decides() -> None:
    seen: list[tuple[Sequence[MessageQueue], str, object, str]] = []

    def last(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        seen.append((queues, message.topic, arg, threading.current_thread().name))
        return queues[-1]

    with StubCluster(t=4) as cluster, producing(cluster) as producer:
        chosen = producer.send(Message("t", b"x"), selector=last, arg=5).message_queue
        assert chosen.queue_id == 3
        ((queues, topic, arg, thread),) = seen
        assert (len(queues), topic, arg) == (4, "t", 5)
        assert thread == threading.current_thread().name, "user code stays off the private loop"
        queue = MessageQueue("t", "broker-a", 2)
        assert producer.send(Message("t", b"x"), queue=queue).message_queue == queue
        assert producer.send([Message("t", b"x")] * 2, queue=queue).message_queue == queue
        with pytest.raises(InvalidMessageError, match="queue of its topic"):
            producer.send(Message("t", b"x"), queue=MessageQueue("u", "broker-a", 2))
        with pytest.raises(InvalidMessageError, match="no queue of topic 't'"):
            producer.send(Message("t", b"x"), selector=lambda *_: MessageQueue("t", "z", 0))


@pytest.mark.parametrize(
    ("arg", "index"), [("a", 97 % 7), ("", 0), (-5, 5), (3_000_000_000, 1_294_967_296 % 7)]
)
def test_javas_hash_selector(arg: str | int, index: int) -> None:
    queues = [MessageQueue("t", "b", number) for number in range(7)]
    assert select_queue_by_hash(queues, Message("t", b"x"), arg).queue_id == index
    assert select_queue_by_random(queues, Message("t", b"x"), None) in queues


def test_a_batch_is_one_request_to_one_queue() -> None:
    messages = [Message("t", b"%d" % n, tags="a", sharding_key="k", flag=n) for n in range(3)]
    with StubCluster(2, t=4) as cluster, producing(cluster) as producer:
        queues = producer.publish_queues("t")
        result = producer.send(messages)
        assert result.message_queue == queues[abs(java_hash("k")) % 8]
        ((header, body),) = sent(cluster)
        assert header.batch
        items = decode_batch(body)
        assert [(flag, content) for flag, content, _ in items] == [(0, b"0"), (1, b"1"), (2, b"2")]
        properties = [decode_properties(properties) for _, _, properties in items]
        assert result.message_id.split(",") == [each["UNIQ_KEY"] for each in properties]
        assert all(each["TAGS"] == "a" and each["WAIT"] == "true" for each in properties)
        assert set(properties_of(header)) == {"UNIQ_KEY", "WAIT"}
        assert producer.send_batch(messages[:1]).status is SendStatus.SEND_OK


def test_large_bodies_are_compressed_and_batches_are_not() -> None:
    body = b"flight " * 1000
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        producer.send(Message("t", body))
        producer.send(Message("t", body[:4095]))
        producer.send([Message("t", body)])
        (large, compressed), (small, plain), (batch, _) = sent(cluster)
        assert large.sys_flag == 0x301
        assert len(compressed) < 200
        assert zlib.decompress(compressed) == body
        assert (small.sys_flag, plain) == (0, body[:4095])
        assert batch.sys_flag == 0


def test_a_body_that_compression_makes_larger_goes_as_it_is() -> None:
    body = random.Random(7).randbytes(4 * 1024 * 1024)
    assert len(zlib.compress(body, 5)) > len(body)
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        producer.send(Message("t", body))
        ((header, sent_body),) = sent(cluster)
        assert header.sys_flag == 0
        assert sent_body == body


def test_an_empty_sharding_key_is_none() -> None:
    with StubCluster(t=4) as cluster, producing(cluster) as producer:
        queues = {
            producer.send(Message("t", b"x", sharding_key="")).message_queue for _ in range(4)
        }
        assert len(queues) == 4
        batch = [Message("t", b"x", sharding_key=""), Message("t", b"x")]
        assert {producer.send(batch).message_queue for _ in range(4)} == queues
        assert all("__SHARDINGKEY" not in properties_of(header) for header, _ in sent(cluster))


def test_an_unknown_topic_starts_with_the_queues_of_the_default_topic() -> None:
    with StubCluster() as cluster, producing(cluster, default_topic_queue_nums=2) as producer:
        assert [queue.queue_id for queue in producer.publish_queues("new")] == [0, 1]
        assert producer.send(Message("new", b"x")).message_queue.topic == "new"
        ((header, _),) = sent(cluster)
        assert header.default_topic_queue_nums == 2


def test_a_route_that_changed_is_followed() -> None:
    with (
        StubCluster(2, t=1) as cluster,
        producing(cluster, poll_name_server_interval_ms=10) as producer,
    ):
        producer.send(Message("t", b"x"))
        cluster.away.add("broker-a")
        wait_until(lambda: len(producer.publish_queues("t")) == 1, "the new route")
        for _ in range(3):
            assert producer.send(Message("t", b"x")).message_queue.broker_name == "broker-b"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (codes.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (codes.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (codes.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_a_message_stored_with_reservations_is_a_result(code: int, status: SendStatus) -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        broker = cluster.brokers[0]
        broker.reactions.append(lambda command, connection: broker.store(command, connection, code))
        assert producer.send(Message("t", b"x")).status is status
        assert len(sent(cluster)) == 1


def test_bodies_of_all_bytes_kinds_are_taken() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        for body in (bytearray(b"abc"), memoryview(b"abc")):
            producer.send(Message("t", body))  # type: ignore[arg-type]
        assert [body for _, body in sent(cluster)] == [b"abc", b"abc"]


BAD_MESSAGES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "too large": (lambda: Message("t", bytes(101)), InvalidMessageError, "101 bytes.*=100"),
    "empty": (lambda: Message("t", b""), InvalidMessageError, "one byte"),
    "text": (lambda: Message("t", "x"), InvalidMessageError, "body='x'.*str.*bytes"),  # type: ignore[arg-type]
    "topic": (lambda: Message("a b", b"x"), IllegalNameError, "' '"),
    "no topic": (lambda: Message("", b"x"), IllegalNameError, "blank"),
    "long topic": (lambda: Message("t" * 128, b"x"), IllegalNameError, "127"),
    "flag": (lambda: Message("t", b"x", flag=2**31), InvalidMessageError, "flag=2147483648"),
    "system topic": (
        lambda: Message("SCHEDULE_TOPIC_XXXX", b"x"),
        InvalidMessageError,
        "RocketMQ's own",
    ),
    "separator": (
        lambda: Message("t", b"x", properties={"a": "b\x02"}),
        InvalidMessageError,
        "separator",
    ),
    "long properties": (
        lambda: Message("t", b"x", properties={"a": "b" * 33000}),
        InvalidMessageError,
        "33.*32767",
    ),
    "empty batch": (list, InvalidMessageError, "at least one"),
    "two topics": (
        lambda: [Message("t", b"x"), Message("u", b"x")],
        InvalidMessageError,
        "'t' and 'u'",
    ),
    "delayed batch": (
        lambda: [Message("t", b"x", delay_level=2)],
        InvalidMessageError,
        "delay_level=2",
    ),
    "two waits": (
        lambda: [Message("t", b"x"), Message("t", b"x", properties={"WAIT": "false"})],
        InvalidMessageError,
        "WAIT",
    ),
    "two keys": (
        lambda: [Message("t", b"x", sharding_key="a"), Message("t", b"x", sharding_key="b")],
        InvalidMessageError,
        "sharding key",
    ),
    "large batch": (lambda: [Message("t", bytes(60))] * 2, InvalidMessageError, "split_batch"),
    "retry batch": (lambda: [Message("%RETRY%g", b"x")], InvalidMessageError, "%RETRY%g"),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_message_that_cannot_be_sent_says_why(name: str) -> None:
    make, error, text = BAD_MESSAGES[name]
    with StubCluster(t=1) as cluster, producing(cluster, max_message_size=100) as producer:
        for send in (producer.send, producer.send_async, producer.send_oneway):
            with pytest.raises(error, match=text):
                send(make())
        assert not sent(cluster)


def test_a_field_of_a_wrong_type_fails_the_send_and_no_more() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        producer.send(Message("t", b"x"))
        with pytest.raises(InvalidMessageError, match="queue=.*publish_queues"):
            producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-a", "0"))  # type: ignore[arg-type]
        with pytest.raises(InvalidMessageError, match="tags=1.*int"):
            producer.send(Message("t", b"x", tags=1))  # type: ignore[arg-type]
        producer.send(Message("t", b"x"))


def test_keys_of_a_batch_do_not_matter_where_its_queue_is_given() -> None:
    queue = MessageQueue("t", "broker-a", 1)
    with StubCluster(t=4) as cluster, producing(cluster) as producer:
        batch = [Message("t", b"x", sharding_key="a"), Message("t", b"x", sharding_key="b")]
        assert producer.send(batch, queue=queue).message_queue == queue


def test_a_producer_starts_once() -> None:
    with StubCluster(t=1) as cluster:
        producer = Producer("writers", name_server=cluster.address)
        with pytest.raises(ClientStateError, match=r"CREATE_JUST.*call start"):
            producer.send(Message("t", b"x"))
        producer.start()
        with pytest.raises(ClientStateError, match="its state is RUNNING"):
            producer.start()
        producer.send(Message("t", b"x"))
        producer.shutdown()
        producer.shutdown()
        with pytest.raises(ClientStateError, match="its state is SHUTDOWN_ALREADY"):
            producer.start()
        with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
            producer.send(Message("t", b"x"))


def test_a_group_is_used_once_in_an_instance() -> None:
    with StubCluster() as cluster:
        settings = {"name_server": cluster.address, "instance_name": "shared"}
        with Producer("g", **settings), Producer("other", **settings):  # type: ignore[arg-type]
            second = Producer("g", **settings)  # type: ignore[arg-type]
            with pytest.raises(ClientStateError, match="choose another group"):
                second.start()
        second.start()  # free again
        second.shutdown()


@pytest.mark.parametrize("group", ["", "a b", "g" * 121, "DEFAULT_PRODUCER"])
def test_an_illegal_group_is_refused(group: str) -> None:
    with pytest.raises(IllegalNameError):
        Producer(group, name_server="127.0.0.1:9876")


def test_brokers_know_a_producer_until_it_leaves() -> None:
    with StubCluster(t=1) as cluster:
        with producing(cluster, instance_name="here", client_ip="10.1.2.3") as producer:
            producer.send(Message("t", b"x"))
            broker = cluster.brokers[0]
            wait_until(lambda: broker.of(RequestCode.HEART_BEAT), "a heartbeat")
            heartbeat = HeartbeatData.decode(broker.of(RequestCode.HEART_BEAT)[0].body)
            assert heartbeat.client_id == "10.1.2.3@here"
            assert [data.group_name for data in heartbeat.producer_data_set] == ["writers"]
        (left,) = broker.of(RequestCode.UNREGISTER_CLIENT)
        assert left.ext_fields == {"clientID": "10.1.2.3@here", "producerGroup": "writers"}


def test_many_threads_share_a_producer() -> None:
    results: list[SendResult] = []

    def send() -> None:
        results.extend(producer.send(Message("t", b"x")) for _ in range(50))

    with StubCluster(2, t=4) as cluster, producing(cluster) as producer:
        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({result.message_id for result in results}) == 400
        assert len(sent(cluster)) == 400
        assert {command.code for command in cluster.brokers[0].requests} & SENDS


def test_a_message_on_its_way_is_named_in_logs_without_its_body() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        core = producer._core
        outgoing = core.prepare(Message("t", b"a secret"), None, None)
        sending = core.sending(outgoing, Waiter[SendResult](), None, core.deadline(None))
        assert repr(sending) == f"<Sending {outgoing.message_id} to t>"
