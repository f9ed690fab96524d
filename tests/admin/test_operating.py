"""What else operators have done: recalls, checks again, modes, offsets of groups that are away."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq import (
    Admin,
    BrokerError,
    EmbeddedBroker,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageQueue,
    Producer,
    ServerTls,
    SubscriptionGroupConfig,
    TlsMode,
    TopicNotFoundError,
    TransactionProducer,
)
from orbitmq.errors import ConnectError
from orbitmq.names import HALF_TOPIC
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from tests.broker.test_timers import advance
from tests.net.certificates import Certificates
from tests.net.seen import ACCOUNT, Seen, is_signed

QUEUE = MessageQueue("flights", "broker-a", 0)
HALF_QUEUE = MessageQueue(HALF_TOPIC, "broker-a", 0)


def test_a_recalled_message_is_not_delivered(
    admin: Admin, broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    admin.create_topic("flights", 1)
    sent = [producer.send(Message("flights", body, delay_seconds=5)) for body in (b"0", b"1")]
    handle = sent[0].recall_handle
    assert handle is not None
    assert admin.recall_message("flights", handle, "broker-a") == sent[0].message_id
    advance(broker, clock, 5000)
    assert [message.body for message in admin.messages_from(QUEUE, 0)] == [b"1"]
    with pytest.raises(BrokerError, match="timestamp invalid"):
        admin.recall_message("flights", handle, "broker-a")
    with pytest.raises(BrokerError, match="recall handle is invalid"):
        admin.recall_message("flights", "none", broker.address)


def test_a_half_message_is_checked_again(
    admin: Admin, broker: EmbeddedBroker, producer: Producer
) -> None:
    admin.create_topic("flights", 1)
    with TransactionProducer(
        "shop",
        lambda _message, _argument: LocalTransactionState.UNKNOWN,
        lambda _message: LocalTransactionState.UNKNOWN,
        name_server=broker.name_server,
    ) as shop:
        shop.send_message_in_transaction(Message("flights", b"open"))
    (half,) = admin.messages_from(HALF_QUEUE, 0)
    admin.resume_check_half_message("flights", half)
    _, again = admin.messages_from(HALF_QUEUE, 0)
    assert (again.body, again.properties["REAL_TOPIC"]) == (b"open", "flights")
    assert again.properties["TRANSACTION_CHECK_TIMES"] == "0"
    producer.send(Message("flights", b"plain"))
    (plain,) = admin.messages_from(QUEUE, 0)
    with pytest.raises(BrokerError, match="is of topic flights and in no transaction"):
        admin.resume_check_half_message("flights", plain)


def test_how_a_group_gets_its_messages(admin: Admin, broker: EmbeddedBroker) -> None:
    admin.create_topic("flights", 1)
    admin.update_group(SubscriptionGroupConfig("mailers"))
    admin.set_message_request_mode("flights", "mailers", "POP", pop_share_queue_num=2)
    mode = broker.call(lambda node: node.broker.request_modes.table["flights"]["mailers"])
    assert (mode.mode, mode.pop_share_queue_num) == ("POP", 2)
    admin.set_message_request_mode("flights", "mailers", "PULL", broker="broker-a")
    mode = broker.call(lambda node: node.broker.request_modes.table["flights"]["mailers"])
    assert mode.mode == "PULL"
    with pytest.raises(TopicNotFoundError, match="no topic 'nowhere'"):
        admin.set_message_request_mode("nowhere", "mailers", "POP", broker="broker-a")


def test_offsets_of_topics_that_a_group_left_are_cloned_when_asked_for(
    admin: Admin, broker: EmbeddedBroker, producer: Producer
) -> None:
    for topic in ("flights", "trains"):
        admin.create_topic(topic, 1)
        producer.send(Message(topic, b"x"))
    admin.update_group(SubscriptionGroupConfig("mailers"))
    admin.update_group(SubscriptionGroupConfig("others"))
    admin.update_consume_offset("mailers", QUEUE, 1)
    with LitePullConsumer("mailers", name_server=broker.name_server) as consumer:
        consumer.subscribe("trains")
        wait_until(lambda: admin.subscription("mailers", "trains"))
        admin.clone_group_offset("mailers", "others")
        assert admin.consume_offset("others", QUEUE) is None
        admin.clone_group_offset("mailers", "others", offline=True)
        assert admin.consume_offset("others", QUEUE) == 1


def test_an_account_and_tls(certificates: Certificates, requests: list[Seen]) -> None:
    tls = ServerTls(cert_file=certificates.cert, key_file=certificates.key, mode=TlsMode.ENFORCING)
    with EmbeddedBroker(tls=tls) as broker:
        secure: dict[str, Any] = {"use_tls": True, "tls_ca_file": certificates.ca, **ACCOUNT}
        with Admin(name_server=broker.name_server, **secure) as admin:
            assert admin.create_topic("flights", 2) == [broker.address]
            assert admin.topic_route("flights").queue_datas[0].write_queue_nums == 2
            admin.put_kv("colours", "sky", "blue")
            assert "broker-a" in admin.cluster_info().broker_addr_table
        assert {command.code for command, _, _ in requests if not is_signed(command)} == set()
        with (
            Admin(name_server=broker.name_server, use_tls=True, tls_verify=True) as admin,
            pytest.raises(ConnectError, match="tls_ca_file"),
        ):
            admin.cluster_info()
