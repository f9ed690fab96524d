"""The producer on bad days: what is tried again, what is not, and what the errors say."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orbitmq import Producer, codes
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    HeaderError,
    MessageIllegalError,
    NetworkError,
    NoPermissionError,
    RequestTimeoutError,
    SystemBusyError,
    TopicNotFoundError,
)
from orbitmq.message import Message, MessageQueue, SendStatus
from orbitmq.producer.config import ProducerConfig
from orbitmq.testing.wait import wait_until
from tests.client.stub_cluster import Reaction, StubCluster, answer, hang_up, silence
from tests.net.test_pool import unused_address
from tests.program import run_python


@contextmanager
def producing(cluster: StubCluster, **settings: Any) -> Iterator[Producer]:
    with Producer("writers", name_server=cluster.address, **settings) as producer:
        yield producer


def react(cluster: StubCluster, *reactions: Reaction) -> None:
    """Have every broker of the cluster react so to its next sends."""
    for broker in cluster.brokers:
        broker.reactions.extend(reactions)


def attempts(cluster: StubCluster) -> list[int]:
    """How many sends each broker got."""
    return [len(broker.of(RequestCode.SEND_MESSAGE_V2)) for broker in cluster.brokers]


RETRIED: dict[str, Reaction] = {
    "busy": answer(codes.SYSTEM_BUSY),
    "no service": answer(codes.SERVICE_NOT_AVAILABLE),
    "no permission": answer(codes.NO_PERMISSION),
    "no topic": answer(codes.TOPIC_NOT_EXIST),
    "go away": answer(codes.GO_AWAY),
    "lost": hang_up,
}


@pytest.mark.parametrize("reason", RETRIED)
def test_another_broker_is_tried(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with StubCluster(2, t=2) as cluster, producing(cluster) as producer:
        first = producer.send(Message("t", b"x")).message_queue.broker_name
        react(cluster, RETRIED[reason])
        result = producer.send(Message("t", b"y"))
        # One broker failed, the other would have next: both were asked, and one of them again.
        assert result.status is SendStatus.SEND_OK
        assert sum(attempts(cluster)) == 4
        assert all(attempts(cluster))
        assert "sent again" in caplog.text
        assert first in {"broker-a", "broker-b"}


def test_the_other_broker_takes_the_message() -> None:
    with StubCluster(2, t=4) as cluster, producing(cluster) as producer:
        producer.publish_queues("t")
        cluster.brokers[0].default = answer(codes.SYSTEM_BUSY)
        for _ in range(8):
            assert producer.send(Message("t", b"x")).message_queue.broker_name == "broker-b"


def test_a_broker_that_is_gone_is_passed_over() -> None:
    with StubCluster(2, t=4) as cluster, producing(cluster) as producer:
        producer.publish_queues("t")
        cluster.run(cluster.brokers[0].stop())
        for _ in range(8):
            assert producer.send(Message("t", b"x")).message_queue.broker_name == "broker-b"


def test_after_the_last_attempt_the_error_says_how_often() -> None:
    with StubCluster(t=2) as cluster, producing(cluster) as producer:
        react(cluster, *[answer(codes.SYSTEM_BUSY, "too busy")] * 3)
        with pytest.raises(SystemBusyError, match="too busy") as raised:
            producer.send(Message("t", b"x"))
        assert raised.value.address == cluster.brokers[0].address
        assert raised.value.__notes__ == ["sent 3 times, to broker-a, broker-a, broker-a"]
        assert producer.send(Message("t", b"x")).queue_offset == 0


@pytest.mark.parametrize("retries", [0, 1])
def test_how_often_is_a_setting(retries: int) -> None:
    with (
        StubCluster(t=2) as cluster,
        producing(cluster, retry_times_when_send_failed=retries) as producer,
    ):
        react(cluster, *[hang_up] * 5)
        with pytest.raises(ConnectionLostError):
            producer.send(Message("t", b"x"))
        assert attempts(cluster) == [1 + retries]


def test_asynchronous_sends_have_their_own_number_of_retries() -> None:
    with (
        StubCluster(t=2) as cluster,
        producing(cluster, retry_times_when_send_async_failed=0) as producer,
    ):
        react(cluster, answer(codes.SYSTEM_BUSY))
        with pytest.raises(SystemBusyError):
            producer.send_async(Message("t", b"x")).result()


def test_a_refused_message_is_not_sent_again() -> None:
    with StubCluster(2, t=2) as cluster, producing(cluster) as producer:
        react(cluster, answer(codes.MESSAGE_ILLEGAL, "not this one"))
        with pytest.raises(MessageIllegalError, match="not this one"):
            producer.send(Message("t", b"x"))
        assert sum(attempts(cluster)) == 1


def test_which_codes_are_retried_is_a_setting() -> None:
    with (
        StubCluster(t=2) as cluster,
        producing(cluster, retry_response_codes=frozenset({codes.MESSAGE_ILLEGAL})) as producer,
    ):
        react(cluster, answer(codes.MESSAGE_ILLEGAL), answer(codes.SYSTEM_BUSY))
        with pytest.raises(SystemBusyError):
            producer.send(Message("t", b"x"))
        assert attempts(cluster) == [2]


def test_a_message_for_a_certain_queue_is_tried_once() -> None:
    with StubCluster(2, t=2) as cluster, producing(cluster) as producer:
        react(cluster, answer(codes.SYSTEM_BUSY))
        with pytest.raises(SystemBusyError):
            producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-a", 0))
        with pytest.raises(SystemBusyError):
            producer.send(Message("t", b"x"), selector=lambda queues, *_: queues[-1])
        assert attempts(cluster) == [1, 1]
        with pytest.raises(ConnectError, match="broker-z"):
            producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-z", 0))


def test_a_sharding_key_keeps_its_queue_when_it_is_tried_again() -> None:
    with StubCluster(2, t=2) as cluster, producing(cluster) as producer:
        queue = producer.send(Message("t", b"x", sharding_key="k")).message_queue
        react(cluster, answer(codes.SYSTEM_BUSY), hang_up)
        assert producer.send(Message("t", b"x", sharding_key="k")).message_queue == queue
        assert sorted(attempts(cluster)) == [0, 4]


def test_no_answer_in_time_is_an_error_that_says_what_is_not_known() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        react(cluster, silence)
        begin = time.monotonic()
        with pytest.raises(RequestTimeoutError, match="within 120 ms; whether it stored") as raised:
            producer.send(Message("t", b"x"), timeout=0.12)
        assert 0.1 < time.monotonic() - begin < 5
        assert raised.value.address == cluster.brokers[0].address
        assert attempts(cluster) == [1]
        assert producer.send(Message("t", b"x")).status is SendStatus.SEND_OK


def test_an_attempt_may_be_limited_so_that_another_can_follow() -> None:
    with (
        StubCluster(2, t=1) as cluster,
        producing(cluster, send_max_timeout_per_request_ms=30) as producer,
    ):
        producer.publish_queues("t")
        react(cluster, silence)
        assert producer.send(Message("t", b"x")).status is SendStatus.SEND_OK
        assert sum(attempts(cluster)) == 3


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf])
def test_a_timeout_is_a_positive_number_of_seconds(timeout: float) -> None:
    with (
        StubCluster(t=1) as cluster,
        producing(cluster) as producer,
        pytest.raises(ConfigError, match=rf"timeout={timeout}.*positive number of seconds"),
    ):
        producer.send(Message("t", b"x"), timeout=timeout)


def test_not_flushed_may_count_as_failed() -> None:
    def stored_but(cluster: StubCluster, code: int) -> Reaction:
        broker = cluster.brokers[0]
        return lambda command, connection: broker.store(command, connection, code)

    with (
        StubCluster(t=1) as cluster,
        producing(cluster, retry_another_broker_when_not_store_ok=True) as producer,
    ):
        react(cluster, stored_but(cluster, codes.FLUSH_DISK_TIMEOUT))
        assert producer.send(Message("t", b"x")).status is SendStatus.SEND_OK
        react(
            cluster,
            stored_but(cluster, codes.FLUSH_DISK_TIMEOUT),
            answer(codes.MESSAGE_ILLEGAL),
        )
        assert producer.send(Message("t", b"x")).status is SendStatus.FLUSH_DISK_TIMEOUT


def test_an_answer_without_its_header_is_an_error() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        react(cluster, answer(codes.SUCCESS))
        with pytest.raises(HeaderError, match="SendMessageResponseHeader"):
            producer.send(Message("t", b"x"))


# Routes


def test_a_topic_that_brokers_do_not_create_is_named() -> None:
    with StubCluster() as cluster, producing(cluster) as producer:
        del cluster.topics["TBW102"]
        with pytest.raises(TopicNotFoundError, match="'missing' does not exist.*create it first"):
            producer.send(Message("missing", b"x"))
        with pytest.raises(TopicNotFoundError, match="missing"):
            producer.publish_queues("missing")
        cluster.topics["missing"] = 1
        assert producer.send(Message("missing", b"x")).status is SendStatus.SEND_OK


def test_a_topic_without_a_writable_queue_is_named() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        producer.send(Message("t", b"x"))
        cluster.away.add("broker-a")
        react(cluster, *[answer(codes.NO_PERMISSION)] * 3)
        with pytest.raises((TopicNotFoundError, NoPermissionError)):
            producer.send(Message("t", b"x"))
        with pytest.raises(TopicNotFoundError, match="'t' has no queue to write"):
            producer.send(Message("t", b"x"))
        cluster.away.clear()
        assert producer.send(Message("t", b"x")).status is SendStatus.SEND_OK


def test_a_route_is_fetched_anew_when_the_broker_does_not_have_the_topic() -> None:
    with StubCluster(2, t=1) as cluster, producing(cluster) as producer:
        producer.publish_queues("t")
        cluster.away.add("broker-a")
        cluster.brokers[0].default = answer(codes.TOPIC_NOT_EXIST)
        for _ in range(4):
            assert producer.send(Message("t", b"x")).message_queue.broker_name == "broker-b"
        assert attempts(cluster) == [1, 4]
        assert len(producer.publish_queues("t")) == 1


def test_an_error_of_the_name_server_is_raised() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        cluster.name_server.default = answer(codes.SYSTEM_ERROR, "name server is ill")
        with pytest.raises(BrokerError, match="name server is ill"):
            producer.send(Message("t", b"x"))


def test_an_unreachable_name_server_fails_the_send_after_its_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.client")
    address = unused_address()
    with Producer("writers", name_server=address) as producer:
        begin = time.monotonic()
        with pytest.raises(ConnectError, match=r"no name server answers.*Connection refused") as e:
            producer.send(Message("t", b"x"), timeout=0.3)
        assert 0.25 < time.monotonic() - begin < 5
        assert address in str(e.value)
        with pytest.raises(ConnectError, match=address):
            producer.publish_queues("t", timeout=0.05)
        wait_until(lambda: "Trying again in" in caplog.text, "the background attempts' log")


def test_a_hanging_name_server_fails_the_send_after_its_timeout() -> None:
    with StubCluster(t=1) as cluster, producing(cluster) as producer:
        cluster.name_server.default = silence
        with pytest.raises(RequestTimeoutError, match="100 ms in vain for the route") as raised:
            producer.send(Message("t", b"x"), timeout=0.1)
        assert raised.value.address == cluster.address
        with pytest.raises(RequestTimeoutError, match="no route of topic 't' within 100 ms"):
            producer.publish_queues("t", timeout=0.1)


def test_a_name_server_that_comes_late_is_in_time_for_the_send() -> None:
    with StubCluster(t=1) as cluster:
        port = cluster.name_server.server.port
        cluster.run(cluster.name_server.stop())
        with Producer("writers", name_server=f"127.0.0.1:{port}") as producer:
            future = producer.send_async(Message("t", b"x"), timeout=10)
            wait_until(lambda: producer._core._sender.routes.error_of("t"), "a first attempt")
            cluster.run(cluster.name_server.server.start("127.0.0.1", port))
            assert future.result(10).status is SendStatus.SEND_OK


def test_a_broker_without_master_is_named() -> None:
    with StubCluster(t=1) as cluster, producing(cluster, send_timeout_ms=500) as producer:
        cluster.brokers[0].server.port, port = 1, cluster.brokers[0].server.port
        try:
            with pytest.raises(NetworkError, match="127.0.0.1:1") as raised:
                producer.send(Message("t", b"x"))
            assert raised.value.__notes__ == ["tried again and again for 500 ms"]
        finally:
            cluster.brokers[0].server.port = port


def test_ctrl_c_interrupts_a_send() -> None:
    done = run_python(
        """
        import os, signal, socket, threading
        from orbitmq import Producer
        from orbitmq.message import Message

        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "127.0.0.1:%d" % silent.getsockname()[1]
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            producer = Producer("g", name_server=address)
            producer.start()
            try:
                producer.send(Message("t", b"x"), timeout=5)
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0)
    assert "ResourceWarning: producer 'g' was not shut down" in done.stderr


# Settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"send_timeout": 3}, "send_timeout=3.*did you mean send_timeout_ms"),
        ({"send_timeout_ms": 0}, "send_timeout_ms=0.*>= 1"),
        ({"max_in_flight": "many"}, "max_in_flight='many'.*int"),
        ({"name_server": "here"}, "name_server='here'.*host:port"),
        ({"name_server": "a:1;b:99999"}, "'b:99999' is not host:port"),
        ({"name_server": " ; "}, "NAMESRV_ADDR"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer("g", **{"name_server": "127.0.0.1:9876", **settings})


def test_the_environment_names_the_name_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="set NAMESRV_ADDR"):
        Producer("g")
    with StubCluster(t=1) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", f" {unused_address()} ; {cluster.address}; ")
        with Producer("g") as producer:
            assert producer.send(Message("t", b"x")).status is SendStatus.SEND_OK


def test_the_settings_of_java_have_its_defaults() -> None:
    config = ProducerConfig()
    assert config.send_timeout_ms == 3000
    assert config.retry_times_when_send_failed == config.retry_times_when_send_async_failed == 2
    assert (config.compress_over_bytes, config.compress_level) == (4096, 5)
    assert config.max_message_size == 4_194_304
    assert config.default_topic_queue_nums == 4
    assert config.retry_response_codes == {17, 14, 1, 2, 16, 204, 205, 1500}
    assert config.poll_name_server_interval_ms == config.heartbeat_interval_ms == 30_000
