"""Access control, TLS and the VIP channel, judged by Apache's brokers and clients."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import (
    AuthenticationError,
    ConsumeConcurrentlyContext,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    PushConsumer,
    ServerTls,
    TlsMode,
)
from tests.apache.cluster import ApacheBroker, ApacheNameServer
from tests.apache.conftest import release_or_skip
from tests.apache.exchanges import side_by_side
from tests.apache.jars import NEWEST, OLDEST, ApacheRelease
from tests.apache.java_clients import JavaProducer, JavaPushConsumer
from tests.apache.ports import held_port
from tests.apache.python_clients import PATIENT, new_producer
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.apache.cluster import ApacheCluster
    from tests.net.certificates import Certificates

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]

ACCOUNT = "orbitmq-tests"
SECRET = "not so secret"
PLAIN_ACL = f"""accounts:
- accessKey: {ACCOUNT}
  secretKey: {SECRET}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""
PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
USER = f'{{"username":"{ACCOUNT}","password":"{SECRET}"}}'
INNER_USER = '{"accessKey":"inner","secretKey":"inner secret"}'


@contextmanager
def guarded_cluster(release: ApacheRelease, directory: Path) -> Iterator[str]:
    """A broker that asks everybody who they are; its name server."""
    settings: dict[str, object] = {"aclEnable": True}
    if release.version == NEWEST:
        settings = {
            "authenticationEnabled": True,
            "authenticationProvider": f"{PROVIDERS}.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": USER,
            "innerClientAuthenticationCredentials": INNER_USER,
        }
    conf = directory / "broker-a" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    with ExitStack() as opened:
        server = opened.enter_context(ApacheNameServer(release, directory))
        opened.enter_context(ApacheBroker(release, server.address, directory, settings=settings))
        yield server.address


def exchange(topic: str, name_server: str, **settings: Any) -> None:
    """Send in every way, and consume with both kinds of consumer."""
    sent = {b"one", b"two", b"three", b"again", b"asynchronous"}
    with new_producer(f"{topic}-producers", name_server, **settings) as producer:
        producer.send(Message(topic, b"one", keys="k", tags="Täg"))
        producer.send([Message(topic, b"two"), Message(topic, b"three")])
        producer.send_oneway(Message(topic, b"again"))
        producer.send_async(Message(topic, b"asynchronous")).result(PATIENCE_SECONDS)
    settings |= {**PATIENT, "name_server": name_server}
    settings["consume_from_where"] = "CONSUME_FROM_FIRST_OFFSET"
    settings["poll_name_server_interval_ms"] = 1_000  # the topic of retries is new
    polled: set[bytes] = set()
    with LitePullConsumer(f"{topic}-pollers", **settings) as consumer:
        consumer.subscribe(topic)

        def poll() -> bool:
            polled.update(bytes(message.body) for message in consumer.poll(0.2))
            return polled >= sent

        eventually(poll, "the messages by lite pull", lambda: polled)
        consumer.commit_sync()
        offsets = [consumer.committed(queue) for queue in consumer.fetch_message_queues(topic)]
        assert sum(offset for offset in offsets if offset) == len(sent)
    pushed: list[bytes] = []

    def listen(messages: Sequence[Any], context: ConsumeConcurrentlyContext) -> bool:
        context.delay_level_when_next_consume = 1
        pushed.extend(bytes(message.body) for message in messages if message.reconsume_times)
        return all(message.reconsume_times for message in messages)

    with PushConsumer(f"{topic}-pushed", listen, **settings) as push:
        push.subscribe(topic)
        eventually(lambda: set(pushed) >= sent, "the messages by push, again", lambda: pushed)


def test_a_broker_that_asks_who_we_are_is_told(tmp_path: Path) -> None:
    releases = [release_or_skip(version) for version in (OLDEST, NEWEST)]
    side_by_side(partial(tell, release, tmp_path / release.version) for release in releases)


def tell(release: ApacheRelease, directory: Path) -> None:
    with guarded_cluster(release, directory) as name_server:
        exchange("guarded", name_server, access_key=ACCOUNT, secret_key=SECRET)
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "give access_key and secret_key"),
            (
                {"access_key": ACCOUNT, "secret_key": "x"},
                f"'{ACCOUNT}': check its secret_key",
            ),
        )
        for settings, remedy in wrong:
            with (
                new_producer("strangers", name_server, **settings) as producer,
                pytest.raises(AuthenticationError, match=remedy),
            ):
                producer.send(Message("guarded", b"x"))


def test_apaches_servers_are_reached_over_tls_and_the_vip_channel(
    apache_cluster: ApacheCluster,
) -> None:
    topic = apache_cluster.new_topic("encrypted")
    exchange(topic, apache_cluster.name_server, use_tls=True, vip_channel_enabled=True)


def test_javas_clients_reach_our_servers_over_tls_and_the_vip_channel(
    apache: ApacheRelease, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ServerTls(cert_file=certificates.cert, key_file=certificates.key, mode=TlsMode.ENFORCING)
    with (
        held_port(-2) as port,
        EmbeddedBroker(port=port, fast_listen_port=port - 2, tls=tls) as broker,
    ):
        monkeypatch.setenv(
            "JAVA_TOOL_OPTIONS",
            "-Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.client.authServer=true "
            f"-Dtls.client.trustCertPath={certificates.ca} "
            "-Dcom.rocketmq.sendMessageWithVIPChannel=true",
        )
        with JavaPushConsumer(apache, broker.name_server, "encrypted", "g") as consumer:
            consumer.wait_ready()
            with JavaProducer(apache, broker.name_server, "encrypted", 20) as producer:
                producer.finish()
            consumer.wait_count(20)
