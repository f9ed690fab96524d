"""Who a client says it is, and how it is kept from others: signatures, TLS, ports, client ids."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from orbitmq import (
    AuthenticationError,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageView,
    Producer,
    PushConsumer,
    ServerTls,
    TlsMode,
    codes,
)
from orbitmq.client.config import ClientConfig, make_config
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import ConfigError, ConnectError, for_code
from orbitmq.producer.config import ProducerConfig
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import HeartbeatData
from tests.client.stub_cluster import StubCluster, answer
from tests.client.test_instance import config, with_instance
from tests.net.certificates import Certificates
from tests.net.seen import ACCOUNT, Seen, is_signed
from tests.net.test_pool import unused_address

FIRST = "CONSUME_FROM_FIRST_OFFSET"


def exchange(name_server: str, **settings: Any) -> None:
    """Send in every way, consume with a consumer that polls and one that listens, with a retry."""
    settings["name_server"] = name_server
    sent = {b"one", b"two", b"three", b"later"}
    with Producer("producers", **settings) as producer:
        producer.send(Message("t", b"one", keys="k", tags="Täg%s"))
        producer.send([Message("t", b"two"), Message("t", b"three")])
        producer.send_oneway(Message("t", b"later"))
    polled: set[bytes] = set()
    with LitePullConsumer("pollers", consume_from_where=FIRST, **settings) as consumer:
        consumer.subscribe("t")

        def poll() -> bool:
            polled.update(bytes(message.body) for message in consumer.poll(0.05))
            return polled >= sent

        wait_until(poll, "what was sent, by polling", timeout=30)
        consumer.commit_sync()
    heard: set[bytes] = set()

    def refuse(messages: Sequence[MessageView]) -> bool:
        heard.update(bytes(message.body) for message in messages)
        return False

    with PushConsumer("listeners", refuse, consume_from_where=FIRST, **settings) as push:
        push.subscribe("t")
        wait_until(lambda: heard >= sent, "what was sent, by listening", timeout=30)


# Signatures


def test_every_request_is_signed(requests: list[Seen]) -> None:
    with EmbeddedBroker() as broker:
        exchange(broker.name_server, **ACCOUNT)
    assert not {command.code for command, _, _ in requests if not is_signed(command)}
    assert {command.code for command, _, _ in requests} >= {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.UNREGISTER_CLIENT,
    }


def test_without_an_account_nothing_is_added(requests: list[Seen]) -> None:
    with EmbeddedBroker() as broker, Producer("g", name_server=broker.name_server) as producer:
        producer.send(Message("t", b"x"))
    fields = {name for command, _, _ in requests for name in command.ext_fields}
    assert not fields & {"AccessKey", "Signature", "SecurityToken", "ReqT"}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"access_key": "a"}, "secret_key=None.*access_key='a' needs one"),
        ({"secret_key": "hidden"}, "access_key=None.*secret_key is given"),
        ({"security_token": "hidden"}, "access_key=None.*security_token is given"),
        ({"access_key": "a", "secret_key": 3}, r"secret_key='\*\*\*'"),
        ({"tls_ca_file": "ca.pem"}, "tls_ca_file='ca.pem'.*without use_tls=True"),
        ({"tls_key_password": "hidden"}, r"tls_key_password='\*\*\*'"),
        ({"use_tls": True, "tls_key_file": "key.pem"}, "tls_cert_file=None.*tls_key_file"),
    ],
)
def test_half_an_account_is_an_error(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error) as raised:
        config("127.0.0.1:1", **settings)
    assert "hidden" not in str(raised.value)


def test_secrets_are_shown_nowhere() -> None:
    settings = {**ACCOUNT, "secret_key": "hidden", "use_tls": True, "tls_key_password": "hidden"}
    settings |= {"name_server": "127.0.0.1:1", "security_token": "hidden"}
    shown = repr(make_config(ProducerConfig, settings))
    assert "hidden" not in shown
    assert shown.startswith("ProducerConfig(name_server='127.0.0.1:1', access_key='account'")


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (codes.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: No accessKey is ..."),
        (codes.NO_PERMISSION, "username cannot be null."),
        (codes.NO_PERMISSION, "User:account is not found."),
        (codes.NO_PERMISSION, "check signature failed."),
    ],
)
def test_a_broker_that_refuses_an_account_is_understood(code: int, remark: str) -> None:
    async def scenario(instance: ClientInstance) -> None:
        broker = cluster.brokers[0]
        broker.default = answer(code, remark)
        with pytest.raises(AuthenticationError) as raised:
            await instance.request(broker.address, 1)
        error = raised.value
        assert error.access_key == "account"
        assert re.search(f"{re.escape(remark)}; .*'account': check its secret_key", str(error))
        assert "secret_key='secret'" not in str(error)
        copied = pickle.loads(pickle.dumps(error))
        assert (str(copied), copied.access_key) == (str(error), "account")

    with StubCluster() as cluster:
        with_instance(cluster, scenario, **ACCOUNT)
    assert "was not signed: give access_key and secret_key" in str(for_code(code, remark))
    assert not isinstance(for_code(code, "the topic is read-only"), AuthenticationError)


# Several clients in one process


def test_clients_with_other_accounts_do_not_share_a_client_id() -> None:
    async def main() -> None:
        address = unused_address()
        settings = {"instance_name": "shared", "name_server": address}
        first = await ClientInstance.obtain(make_config(ClientConfig, {**settings, **ACCOUNT}))
        for other in ({}, {**ACCOUNT, "secret_key": "another"}, {**ACCOUNT, "use_tls": True}):
            with pytest.raises(ConfigError, match="instance_name='shared'.*give each its own"):
                await ClientInstance.obtain(make_config(ClientConfig, {**settings, **other}))
        same = await ClientInstance.obtain(make_config(ClientConfig, {**settings, **ACCOUNT}))
        assert same is first
        default = await ClientInstance.obtain(config(address))
        assert default is not first
        for instance in (first, same, default):
            await instance.release()

    asyncio.run(main())


@pytest.mark.parametrize(("name", "connections"), [("DEFAULT", 2), ("shared", 1)])
def test_each_client_of_a_process_has_one_connection_to_a_broker(
    name: str, connections: int, requests: list[Seen]
) -> None:
    with EmbeddedBroker() as broker:
        port = int(broker.address.rpartition(":")[2])
        one, two = (
            Producer(group, name_server=broker.name_server, instance_name=name)
            for group in ("one", "two")
        )
        with one, two:
            for number in range(20):
                one.send_async(Message("t", b"%d" % number))
                two.send(Message("t", b"%d" % number))
            one.shutdown()
            two.send(Message("t", b"the other goes on"))
    assert len({seen.peer for seen in requests if seen.port == port}) == connections


@pytest.mark.parametrize(
    ("settings", "client_id"),
    [
        ({}, r"10.0.0.1@PID#\d+"),
        ({"instance_name": "mine"}, "10.0.0.1@mine"),
        ({"instance_name": "mine", "unit_name": "u"}, "10.0.0.1@mine@u"),
        (
            {"instance_name": "mine", "unit_name": "u", "enable_stream_request_type": True},
            "10.0.0.1@mine@u@STREAM",
        ),
    ],
)
def test_client_ids_are_javas(settings: dict[str, Any], client_id: str) -> None:
    made = config("127.0.0.1:1", client_ip="10.0.0.1", **settings)
    assert re.fullmatch(client_id.replace("PID", str(os.getpid())), made.new_client_id())


def test_a_client_that_reads_a_stream_says_so(requests: list[Seen]) -> None:
    with EmbeddedBroker() as broker:
        name_server = broker.name_server
        with Producer("g", name_server=name_server, enable_stream_request_type=True) as producer:
            producer.send(Message("t", b"x"))
    assert {command.ext_fields.get("ReqT") for command, _, _ in requests} == {"0"}


def test_a_namespace_is_told_with_every_request(requests: list[Seen]) -> None:
    with (
        EmbeddedBroker() as broker,
        Producer("g", name_server=broker.name_server, namespace_v2="ns1") as producer,
    ):
        producer.send(Message("t", b"x"))
    told = {
        (seen.command.ext_fields.get("nsd"), seen.command.ext_fields.get("ns")) for seen in requests
    }
    assert told == {("true", "ns1")}


def test_unit_mode_is_told_wherever_java_tells_it(requests: list[Seen]) -> None:
    with EmbeddedBroker() as broker:
        exchange(broker.name_server, unit_mode=True)
    sends = [seen.command for seen in requests if seen.command.code == RequestCode.SEND_MESSAGE_V2]
    assert {command.ext_fields["k"] for command in sends} == {"true"}
    beats = [seen.command for seen in requests if seen.command.code == RequestCode.HEART_BEAT]
    consumers = [
        consumer
        for command in beats
        for consumer in HeartbeatData.decode(command.body).consumer_data_set
    ]
    assert {consumer.unit_mode for consumer in consumers} == {True}


# TLS and the VIP channel


def test_all_clients_speak_tls(certificates: Certificates) -> None:
    tls = ServerTls(cert_file=certificates.cert, key_file=certificates.key, mode=TlsMode.ENFORCING)
    with EmbeddedBroker(tls=tls) as broker:
        exchange(broker.name_server, use_tls=True, tls_ca_file=certificates.ca)
        with (
            Producer(
                "g", name_server=broker.name_server, use_tls=True, tls_verify=True
            ) as producer,
            pytest.raises(ConnectError, match="tls_ca_file"),
        ):
            producer.send(Message("t", b"x"), timeout=0.6)


def test_files_that_are_missing_keep_a_client_from_starting() -> None:
    producer = Producer("g", name_server="127.0.0.1:1", use_tls=True, tls_ca_file="/nowhere")
    with pytest.raises(ConfigError, match="tls_ca_file='/nowhere'"):
        producer.start()
    producer.shutdown()


def test_who_does_not_look_at_certificates_is_warned(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tls=ServerTls(cert_file=certificates.cert, key_file=certificates.key)) as (
        broker
    ):
        for use_tls in (True, False):
            with Producer("g", name_server=broker.name_server, use_tls=use_tls) as producer:
                producer.send(Message("t", b"x"))
    assert caplog.text.count("does not verify") == 1


def test_the_vip_channel_takes_all_but_pulls_and_heartbeats(
    requests: list[Seen],
) -> None:
    port = two_free_ports()
    with EmbeddedBroker(port=port, fast_listen_port=port - 2) as broker:
        exchange(broker.name_server, vip_channel_enabled=True)
    ports: dict[int, set[int]] = {port: set(), port - 2: set()}
    for seen in requests:
        if seen.port in ports:
            ports[seen.port].add(seen.command.code)
    assert ports[port] == {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    }
    assert ports[port - 2] >= {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }


def two_free_ports() -> int:
    """A port that is free, as is the one two below."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, ExitStack() as opened:
            port: int = first.getsockname()[1]
            with suppress(OSError):
                opened.enter_context(socket.create_server(("127.0.0.1", port - 2)))
                return port


@contextmanager
def without_vip_channel() -> Iterator[EmbeddedBroker]:
    """A broker, and nobody who listens on the port two below, all the while."""
    while True:
        with socket.socket() as taken, ExitStack() as opened:
            taken.bind(("127.0.0.1", 0))  # without listening: who connects is refused
            try:
                port = taken.getsockname()[1] + 2
                broker = opened.enter_context(EmbeddedBroker(port=port))
            except ConfigError:  # somebody has it
                continue
            yield broker
            return


def test_a_broker_without_a_vip_channel_is_told_of() -> None:
    with without_vip_channel() as broker:
        with (
            Producer("g", name_server=broker.name_server, vip_channel_enabled=True) as producer,
            pytest.raises(ConnectError) as raised,
        ):
            producer.send(Message("t", b"x"))
        host, _, port = broker.address.rpartition(":")
        assert f"{host}:{int(port) - 2}" in str(raised.value)
