"""The Spark source against brokers that ask who reads, and that take TLS only."""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

from orbitmq import EmbeddedBroker, ServerTls, TlsMode
from orbitmq.codes import RequestCode
from orbitmq.errors import ConfigError, NetworkError
from orbitmq.net.blocking import Access
from orbitmq.spark.sink.options import write_options
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.source.choice import Choice
from orbitmq.spark.source.options import ReadOptions, read_options
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.topic import TopicClient
from orbitmq.spark.source.watch import ArrivalWatch
from orbitmq.wire.message_view import decode_records
from tests.net.certificates import Certificates
from tests.net.seen import ACCOUNT, Seen, is_signed

KEYS = {"accessKey": "account", "secretKey": "secret", "securityToken": "token"}


def access_of(**options: str) -> Access:
    """What these options give a task, which gets them pickled."""
    given = {"nameServer": "127.0.0.1:1", "topic": "t", **options}
    access = read_options(given, streaming=False).access
    assert write_options(given).access == access
    copied: Access = pickle.loads(pickle.dumps(access))
    assert copied == access
    return access


def test_tasks_sign_and_speak_tls(certificates: Certificates, requests: list[Seen]) -> None:
    tls = ServerTls(cert_file=certificates.cert, key_file=certificates.key, mode=TlsMode.ENFORCING)
    access = access_of(**KEYS, useTls="true", tlsCaFile=certificates.ca)
    with EmbeddedBroker(tls=tls) as broker:
        servers = (broker.name_server,)

        def send(count: int) -> None:
            with closing(Sender(servers, "g", access)) as sender:
                for number in range(count):
                    sender.add("t", Outgoing(b"%d" % number, b""))
                sender.finish()

        send(20)
        topic = TopicClient(servers, "t", access)
        topic.refresh()
        bounds = topic.bounds(all_brokers=True)
        ends = {queue: bound.end for queue, bound in bounds.items()}
        assert sum(ends.values()) == 20
        reader = RangeReader("t", "g", "*", fail_on_data_loss=True, access=access)
        ranges = [QueueRange(*queue, topic.address(queue), 0, end) for queue, end in ends.items()]
        assert sum(len(decode_records(data, name)) for name, data in reader.read(ranges)) == 20
        topic.commit("g", ends)
        options = ReadOptions(name_servers=servers, choice=Choice(("t",)), group="g", access=access)
        with closing(ArrivalWatch(options)) as watch:
            assert not watch.wait(ends, topic.addresses, 50)
            send(1)
            assert watch.wait(ends, topic.addresses, 10_000)
        with pytest.raises(NetworkError), closing(Sender(servers, "g")) as plain:
            plain.add("t", Outgoing(b"x", b""))
    assert not {seen.command.code for seen in requests if not is_signed(seen.command)}
    codes = {seen.command.code for seen in requests}
    assert codes >= {RequestCode.PULL_MESSAGE, RequestCode.GET_TOPIC_STATS_INFO}


def test_options_are_those_of_other_clients() -> None:
    access = access_of(**KEYS)
    assert access.credentials is not None
    assert access.credentials.secret_key == ACCOUNT["secret_key"]
    assert access.tls is None
    assert access_of() == Access()
    locked = access_of(useTls="true", tlsCertFile="c", tlsKeyFile="k", tlsKeyPassword="p")
    assert locked.tls is not None
    assert (locked.tls.cert_file, locked.tls.key_file, locked.tls.key_password) == ("c", "k", "p")
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"accessKey": "a"}, "secretKey=None"),
        ({"useTls": "perhaps"}, "useTls='perhaps'.*true or false"),
        ({"tlsCaFile": "ca.pem"}, "tlsCaFile='ca.pem'"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        access_of(**options)
