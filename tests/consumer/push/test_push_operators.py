"""What operators ask of running consumers, sent as brokers send it: 220, 221, 307 and 309."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orbitmq import LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.consumer.operator_requests import describe_threads
from orbitmq.consumer.push.listeners import ConsumeOrderlyContext, ConsumeStatus
from orbitmq.errors import ClientStateError, NetworkError
from orbitmq.message import MessageQueue
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
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from tests.consumer.push.pushing import QUEUES, Inbox, committed, make, send
from tests.consumer.records import record


def ask(
    broker: EmbeddedBroker,
    code: int,
    header: Header,
    body: bytes = b"",
    *,
    group: str = "readers",
) -> RemotingCommand:
    """What the member of ``group`` answers to a request of its broker."""
    done: concurrent.futures.Future[RemotingCommand | NetworkError] = concurrent.futures.Future()

    def request(node: Any) -> None:
        (connection,) = node.broker.consumers.groups[group].members
        connection.request(code, header, body, timeout_ms=10_000, on_done=done.set_result)

    wait_until(lambda: broker.call(lambda node: group in node.broker.consumers.groups))
    broker.call(request)
    answer = done.result(10)
    assert isinstance(answer, RemotingCommand)
    return answer


def reset(broker: EmbeddedBroker, offset: int, queues: Sequence[MessageQueue]) -> None:
    header = ResetOffsetRequestHeader(topic="orders", group="readers", timestamp=0)
    body = ResetOffsetBody(dict.fromkeys(queues, offset)).encode()
    assert ask(broker, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body).code == 0


@pytest.mark.parametrize("orderly", [False, True])
def test_offsets_are_reset_while_messages_are_consumed(
    broker: EmbeddedBroker, producer: Producer, orderly: bool
) -> None:
    """What the listener still works on moves no offset when it ends after the reset."""
    begun, release = threading.Event(), threading.Event()
    inbox = Inbox()

    def listener(messages: Sequence[MessageView]) -> ConsumeStatus:
        if messages[0].body == b"30" and not release.is_set():
            begun.set()
            assert release.wait(20)
        return inbox(messages)

    send(producer, range(40), queue=1)
    with make(broker, listener, orderly=orderly, consume_threads=1) as consumer:
        consumer.subscribe("orders")
        assert begun.wait(10)
        core = consumer._core
        before = core.tasks[QUEUES[1]].process_queue
        reset_by = threading.Thread(target=reset, args=(broker, 10, [QUEUES[1]]))
        reset_by.start()
        wait_until(lambda: before.leaving and core.offsets.get(QUEUES[1]) == 10)
        release.set()
        reset_by.join(10)
        inbox.wait(31 + 30)
        wait_until(lambda: core.offsets.get(QUEUES[1]) == 40)
    numbers = [int(message.body) for message in inbox.messages]
    assert numbers == [*range(31), *range(10, 40)]
    assert committed(broker)[1] == 40


def test_only_the_queues_named_are_reset(broker: EmbeddedBroker, producer: Producer) -> None:
    inbox = Inbox()
    send(producer, range(40))
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        inbox.wait(40)
        reset(broker, 8, [QUEUES[2], QUEUES[2]._replace(topic="bills")])
        inbox.wait(42)
        wait_until(lambda: consumer._core.offsets.get(QUEUES[2]) == 10)
    assert sorted(int(m.body) for m in inbox.messages[40:]) == [34, 38]


def test_a_consumer_may_reset_itself_by_time(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    inbox = Inbox()
    send(producer, range(8))
    clock.advance(60_000)
    later = clock.now_ms()
    send(producer, range(8, 12))
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        inbox.wait(12)
        consumer.reset_offset_by_timestamp(later)
        inbox.wait(16)
    assert sorted(int(m.body) for m in inbox.messages[12:]) == [8, 9, 10, 11]
    with pytest.raises(ClientStateError):
        consumer.reset_offset_by_timestamp(later)


def test_local_offsets_are_reset_too(
    broker: EmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    inbox = Inbox()
    send(producer, range(4))
    settings = {"message_model": "BROADCASTING", "local_offset_dir": str(tmp_path)}
    with make(broker, inbox, **settings) as consumer:
        consumer.subscribe("orders")
        inbox.wait(4)
        reset(broker, 0, QUEUES)
        inbox.wait(8)


def test_the_progress_of_a_consumer_is_told(broker: EmbeddedBroker, producer: Producer) -> None:
    inbox = Inbox()
    send(producer, range(8))
    header = GetConsumerStatusRequestHeader(topic="orders", group="readers")
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        inbox.wait(8)
        offsets = consumer._core.offsets
        wait_until(lambda: all(offsets.get(queue) == 2 for queue in QUEUES))
        status = GetConsumerStatusBody.decode(ask(broker, code, header).body)
        assert status.message_queue_table == dict.fromkeys(QUEUES, 2)
        other = GetConsumerStatusRequestHeader(topic="orders", group="strangers")
        nothing = GetConsumerStatusBody.decode(ask(broker, code, other).body)
        assert nothing.message_queue_table == {}


def running_info(broker: EmbeddedBroker, *, jstack: bool = False) -> ConsumerRunningInfo:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="readers", client_id="", jstack_enable=jstack
    )
    answer = ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert answer.code == 0
    return ConsumerRunningInfo.decode(answer.body)


def test_how_a_push_consumer_runs(broker: EmbeddedBroker, producer: Producer) -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    def listener(messages: Sequence[MessageView]) -> bool:
        begun.release()
        assert release.wait(20)
        return messages[0].body != b"7"

    send(producer, range(8))
    with make(broker, listener, consume_threads=8, max_reconsume_times=0) as consumer:
        consumer.subscribe("orders", "t || u")
        for _ in range(8):
            assert begun.acquire(timeout=10)
        info = running_info(broker, jstack=True)
        assert (
            info.properties.items()
            >= {
                PROP_NAMESERVER_ADDR: f"{broker.name_server};",
                PROP_CONSUME_TYPE: "CONSUME_PASSIVELY",
                PROP_CONSUME_ORDERLY: "false",
                PROP_THREADPOOL_CORE_SIZE: "8",
                PROP_CONSUMER_START_TIMESTAMP: str(consumer._core.born_ms),
                "max_reconsume_times": "0",
            }.items()
        )
        assert info.properties[PROP_CLIENT_VERSION].startswith("OrbitMQ ")
        assert "name_server" not in info.properties
        topics = [(item.topic, item.sub_string) for item in info.subscription_set]
        assert topics == [("%RETRY%readers", "*"), ("orders", "t || u")]
        held = info.mq_table[QUEUES[3]]
        assert (held.cached_msg_count, held.cached_msg_min_offset, held.locked) == (2, 0, False)
        assert info.jstack is not None
        assert "consume-readers-1" in info.jstack
        assert "release.wait" in info.jstack
        assert info.user_consumer_info["queueFlowControlTimes"] == "0"
        release.set()
        wait_until(lambda: consumer.consume_status("orders").consume_failed_msgs == 1)
        wait_until(lambda: running_info(broker).mq_table[QUEUES[0]].commit_offset == 2)
        info = running_info(broker)
        assert info.jstack is None
        status = info.status_table["orders"]
        assert (status.consume_ok_tps, status.pull_tps) == (0.7, 0.8)  # of ten seconds at least
        assert status.consume_failed_msgs == 1
        assert consumer.running_info().properties == info.properties


def test_how_an_orderly_consumer_runs(broker: EmbeddedBroker, producer: Producer) -> None:
    begun, release = threading.Event(), threading.Event()

    def listener(messages: Sequence[MessageView]) -> None:
        begun.set()
        assert release.wait(20)

    send(producer, range(3), queue=0)
    with make(broker, listener, orderly=True, consume_batch_size=2) as consumer:
        consumer.subscribe("orders")
        assert begun.wait(10)
        info = running_info(broker)
        assert info.properties[PROP_CONSUME_ORDERLY] == "true"
        held = info.mq_table[QUEUES[0]]
        assert held.locked
        assert (held.transaction_msg_count, held.transaction_msg_max_offset) == (2, 1)
        assert (held.cached_msg_count, held.cached_msg_min_offset) == (1, 2)
        release.set()


def test_who_polls_is_asked_too(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, range(4))
    with LitePullConsumer(
        "readers",
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    ) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: consumer._core.assignment.cached == 4)
        info = running_info(broker)
        assert info.properties[PROP_CONSUME_TYPE] == "CONSUME_ACTIVELY"
        assert [info.mq_table[queue].cached_msg_count for queue in QUEUES] == [1, 1, 1, 1]
        answer = direct(broker, record(5))
        assert answer.code == 1
        assert answer.remark == "The Consumer Group <readers> not exist in this consumer"


def test_who_polls_goes_on_at_the_offset_it_is_set_to(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    """What was polled before the reset moves the offset no more."""
    send(producer, range(10), queue=1)
    with LitePullConsumer(
        "readers",
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    ) as consumer:
        consumer.subscribe("orders")
        assert [int(m.body) for m in consumer.poll(5)] == list(range(10))
        reset(broker, 7, [QUEUES[1]])
        wait_until(lambda: committed(broker)[1] == 7)
        assert [int(m.body) for m in consumer.poll(5)] == [7, 8, 9]
        consumer.commit()
    assert committed(broker)[1] == 10


def direct(
    broker: EmbeddedBroker, message: bytes, *, group: str = "readers", of: str | None = None
) -> RemotingCommand:
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=of or group, broker_name="broker-a"
    )
    return ask(broker, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, message, group=group)


def result(broker: EmbeddedBroker, message: bytes) -> ConsumeMessageDirectlyResult:
    answer = direct(broker, message)
    assert answer.code == 0
    return ConsumeMessageDirectlyResult.decode(answer.body)


def test_a_message_is_consumed_at_once_for_an_operator(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    """Although all threads are taken; the message comes as if it came again from its queue."""
    release = threading.Event()
    seen: list[tuple[str, str, int]] = []

    def listener(messages: Sequence[MessageView]) -> bool | None:
        (message,) = messages
        if message.body == b"0":
            assert release.wait(20)
            return None
        if message.body == b"bad":
            raise ValueError("no such account")
        seen.append((message.topic, message.broker_name, message.queue_offset))
        return message.body != b"later"

    send(producer, [0])
    with make(broker, listener, consume_threads=1) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: QUEUES[0] in consumer._core.tasks)
        retried = record(5, topic="%RETRY%readers", properties={"RETRY_TOPIC": "orders"})
        assert result(broker, retried).consume_result is CMResult.CR_SUCCESS
        assert result(broker, record(6, b"later")) == ConsumeMessageDirectlyResult(
            consume_result=CMResult.CR_LATER
        )
        bad = result(broker, record(7, b"bad"))
        assert bad.consume_result is CMResult.CR_THROW_EXCEPTION
        assert bad.remark is not None
        assert bad.remark.startswith("ValueError: no such account, ")
        assert "test_push_operators.py" in bad.remark
        assert seen == [("orders", "broker-a", 5), ("orders", "broker-a", 6)]
        assert consumer._core.offsets.get(QUEUES[0]) == 0
        release.set()


def test_an_orderly_listener_says_more(broker: EmbeddedBroker, producer: Producer) -> None:
    answers: dict[bytes, ConsumeStatus | bool] = {
        b"commit": ConsumeStatus.COMMIT,
        b"rollback": ConsumeStatus.ROLLBACK,
        b"suspend": ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    }

    async def listener(
        messages: Sequence[MessageView], context: ConsumeOrderlyContext
    ) -> ConsumeStatus | bool:
        await asyncio.sleep(0)
        context.auto_commit = messages[0].body == b"suspend"
        return answers[messages[0].body]

    send(producer, [1])
    with make(broker, listener, orderly=True) as consumer:
        consumer.subscribe("orders", "none of these")
        results = [result(broker, record(1, body)) for body in answers]
    assert [item.consume_result for item in results] == [
        CMResult.CR_COMMIT,
        CMResult.CR_ROLLBACK,
        CMResult.CR_LATER,
    ]
    assert [(item.order, item.auto_commit) for item in results] == [
        (True, False),
        (True, False),
        (True, True),
    ]


def test_what_cannot_be_done_is_answered(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, [1])
    with make(broker, Inbox()) as consumer:
        consumer.subscribe("orders")
        stranger = direct(broker, record(1), of="strangers")
        assert stranger.remark == "The Consumer Group <strangers> not exist in this consumer"
        damaged = direct(broker, b"no record")
        assert damaged.code == 1
        assert damaged.remark


def test_the_stacks_of_all_threads() -> None:
    begun, release = threading.Event(), threading.Event()

    def wait_for_the_test() -> None:
        begun.set()
        release.wait(10)

    thread = threading.Thread(target=wait_for_the_test, name="the-waiting-one")
    thread.start()
    assert begun.wait(10)
    stacks = describe_threads()
    release.set()
    thread.join()
    assert f"the-waiting-one{' ' * 25}TID: {thread.ident}\n" in stacks
    assert "in wait_for_the_test" in stacks
