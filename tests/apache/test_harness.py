"""The harness itself: Apache's clients against Apache's own cluster, before they judge ours."""

from __future__ import annotations

import socket
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.apache import remoting
from tests.apache.conftest import release_or_skip
from tests.apache.exchanges import wait_shared
from tests.apache.group_state import describe_group
from tests.apache.jars import OLDEST, ApacheMissingError, ApacheRelease, find_release
from tests.apache.java_clients import (
    JavaConsumer,
    JavaLitePullConsumer,
    JavaProducer,
    JavaPushConsumer,
    body_of,
)
from tests.apache.orbit import OrbitCluster
from tests.apache.ports import held_port
from tests.marked_program import ProgramError
from tests.patience import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.apache.cluster import ApacheCluster
    from tests.apache.orbit import Cluster

COUNT = 200

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def check_all_received(consumer: JavaConsumer, producer: JavaProducer) -> None:
    consumer.wait_count(COUNT)
    consumer.stop()
    assert sorted(message[:4] for message in consumer.messages) == sorted(producer.sent)
    assert all(zlib.crc32(body_of(message.key)) == message.crc for message in consumer.messages)


def test_java_clients_get_from_apaches_broker_what_they_sent(
    apache: ApacheRelease, apache_cluster: ApacheCluster
) -> None:
    server, topic = apache_cluster.name_server, apache_cluster.new_topic()
    with JavaProducer(apache, server, topic, COUNT, in_flight=16) as producer:
        producer.finish()
    with JavaPushConsumer(apache, server, topic, "harness-push") as push:
        check_all_received(push, producer)
    with JavaLitePullConsumer(apache, server, topic, "harness-lite-pull") as lite_pull:
        check_all_received(lite_pull, producer)


def test_sharded_messages_reach_an_orderly_listener_in_their_order(
    apache: ApacheRelease, apache_cluster: ApacheCluster
) -> None:
    server, topic = apache_cluster.name_server, apache_cluster.new_topic(queues=4)
    with JavaProducer(apache, server, topic, COUNT, shards=8, tags="A,B") as producer:
        producer.finish()
    with JavaPushConsumer(
        apache, server, topic, "harness-orderly", orderly=True, tags="A", batch=8
    ) as consumer:
        consumer.wait_count(COUNT // 2)
        consumer.stop()
    numbers = [int(message.key[1:]) for message in consumer.messages]
    for shard in range(0, 8, 2):
        assert [n for n in numbers if n % 8 == shard] == list(range(shard, COUNT, 8))
    assert {message.tag for message in consumer.messages} == {"A"}


def test_a_program_that_fails_shows_its_output(apache: ApacheRelease) -> None:
    with (
        JavaProducer(apache, "127.0.0.1:1", "nowhere", 1) as producer,
        pytest.raises(ProgramError, match="RemotingConnectException"),
    ):
        producer.finish()


def test_nobody_waits_for_a_consumer_that_ended(apache: ApacheRelease) -> None:
    with (
        JavaPushConsumer(apache, "127.0.0.1:1", "nowhere", "harness-nobody") as consumer,
        pytest.raises(ProgramError, match=r"ended by itself[^$]*RemotingConnectException"),
    ):
        wait_shared(8, consumer)


def test_a_group_is_described_by_its_members_and_brokers(
    apache: ApacheRelease, cluster: Cluster
) -> None:
    """Looking who has the locks leaves them as they were."""
    server, topic = cluster.name_server, cluster.new_topic("described", 2, brokers=2)
    group = f"{topic}-group"
    first, second = cluster.brokers
    with JavaPushConsumer(apache, server, topic, group, orderly=True) as consumer:
        me = consumer.wait_ready()
        eventually(lambda: len(consumer.queues) == 4, "all queues", lambda: consumer.queues)
        theirs = [{"topic": topic, "brokerName": first.name, "queueId": 2}]
        strange = {"consumerGroup": group, "clientId": "him", "mqSet": theirs}
        remoting.call(first.address, remoting.LOCK_QUEUES, body=remoting.encode(strange))
        for _ in range(2):
            locks = remoting.lock_holders(first.address, first.name, group, topic, 4, [me])
            # Queues that the topic does not have are locked by Apache's brokers alone.
            free = "somebody else" if isinstance(cluster, OrbitCluster) else "nobody"
            assert locks == {0: me, 1: me, 2: "somebody else", 3: free}
        assert remoting.consumer_ids(second.address, group) == [me]
        told = describe_group(cluster, topic, group, 2, [consumer])
    queues = [f"{name}/{number}" for name in (first.name, second.name) for number in range(2)]
    assert f"tells that it has {' '.join(queues)}\n" in told
    assert f"tells that it wants {' '.join(queues)}\n" in told
    assert f"answers that it has {[f'{queue} locked' for queue in queues]}\n" in told
    assert f"{second.name} has the members ['{me}']\n" in told
    assert f"{second.name} has the locks {{0: '{me}', 1: '{me}'}}" in told
    assert "ended: 0" in describe_group(cluster, topic, group, 2, [consumer])


def test_a_held_port_is_for_a_server_alone() -> None:
    with held_port(-2, 1) as port:
        for held in (port - 2, port, port + 1):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", held))
        with socket.create_server(("127.0.0.1", port)):  # which reuses addresses
            socket.create_connection(("127.0.0.1", port)).close()
        with socket.socket() as early:
            assert early.connect_ex(("127.0.0.1", port)) != 0


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for missing in ("java", "javac", "mvn"):
        with pytest.raises(ApacheMissingError, match=f"^{missing} is not on the PATH"):
            find_release()
        program = tmp_path / missing
        program.touch(mode=0o755)


def test_what_is_missing_skips_or_fails_as_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ORBITMQ_REQUIRE_APACHE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="java is not on the PATH"):
        release_or_skip(OLDEST)
    monkeypatch.setenv("ORBITMQ_REQUIRE_APACHE", "1")
    with pytest.raises(pytest.fail.Exception, match="java is not on the PATH"):
        release_or_skip(OLDEST)
