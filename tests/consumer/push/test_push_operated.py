"""Operators and push consumers, with a broker between them that passes on what they say."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from orbitmq import Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.message import Message
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.admin_bodies import GetConsumerStatusBody, ResetOffsetBody
from orbitmq.wire.command import Header, RemotingCommand
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.running_info import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from tests.consumer.push.pushing import QUEUES, Inbox, committed, make, send


def ask_broker(consumer: PushConsumer, code: int, header: Header) -> RemotingCommand:
    """As an operator's tool asks; over the connection of ``consumer``, which is as good as any."""
    core = consumer._core
    address = core.instance.routes.master_address("broker-a")
    assert address is not None
    return core.thread.run(core.instance.request(address, code, header, timeout_ms=10_000))


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("by_broker", [False, True])
def test_a_group_is_reset_to_a_time_while_it_runs(
    clock: ManualClock, by_broker: bool, orderly: bool
) -> None:
    """By the broker, as those of RocketMQ 5 do, or by the consumers, as it was before."""
    inbox = Inbox()
    with (
        EmbeddedBroker(clock=clock, server_side_reset_offset=by_broker) as broker,
        Producer("makers", name_server=broker.name_server) as producer,
        make(broker, inbox, orderly=orderly) as consumer,
    ):
        send(producer, range(8))
        clock.advance(60_000)
        header = ResetOffsetRequestHeader(
            topic="orders", group="readers", timestamp=clock.now_ms(), is_force=True
        )
        send(producer, range(8, 12))
        consumer.subscribe("orders")
        assert inbox.wait(12) == list(range(12))
        offsets = consumer._core.offsets
        wait_until(lambda: all(offsets.get(queue) == 3 for queue in QUEUES))
        consumer._core.thread.run(consumer._core.persist_offsets())
        wait_until(lambda: committed(broker) == [3] * 4)
        answer = ask_broker(consumer, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert ResetOffsetBody.decode(answer.body).offset_table == dict.fromkeys(QUEUES, 2)
        inbox.wait(16)
        assert sorted(int(m.body) for m in inbox.messages[12:]) == [8, 9, 10, 11]
        send(producer, [12])
        inbox.wait(17)
    assert inbox.numbers()[-1] == 12


def test_what_consumers_tell_reaches_the_operator(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox = Inbox()
    send(producer, range(4))
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        inbox.wait(4)
        offsets = consumer._core.offsets
        wait_until(lambda: all(offsets.get(queue) == 1 for queue in QUEUES))
        client_id = consumer._core.instance.client_id
        status = GetConsumerStatusBody.decode(
            ask_broker(
                consumer,
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                GetConsumerStatusRequestHeader(topic="orders", group="readers"),
            ).body
        )
        assert status.consumer_table == {client_id: dict.fromkeys(QUEUES, 1)}
        info = ConsumerRunningInfo.decode(
            ask_broker(
                consumer,
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequestHeader(
                    consumer_group="readers", client_id=client_id, jstack_enable=True
                ),
            ).body
        )
        assert info.mq_table[QUEUES[0]].commit_offset == 1
        assert "orbitmq-client" in str(info.jstack)


def test_an_operator_has_a_stored_message_consumed_again(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    seen: list[tuple[bytes, str]] = []
    done = threading.Event()

    def listener(messages: Sequence[MessageView]) -> bool:
        seen.append((messages[0].body, threading.current_thread().name))
        done.set()
        return len(seen) == 1

    sent = producer.send(Message("orders", b"7"), queue=QUEUES[0])
    with make(broker, listener) as consumer:
        consumer.subscribe("orders")
        assert done.wait(10)
        answer = ask_broker(
            consumer,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="readers",
                client_id=consumer._core.instance.client_id,
                msg_id=sent.offset_message_id,
            ),
        )
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    assert result.consume_result is CMResult.CR_LATER
    assert seen == [(b"7", "consume-readers-1"), (b"7", "consume-readers-apart")]
