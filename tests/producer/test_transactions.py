"""The synchronous producer of transactions: how they end, and who is asked when they do not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from orbitmq import (
    ClientStateError,
    ConfigError,
    InvalidMessageError,
    LocalTransactionState,
    Message,
    MessageView,
    SendStatus,
    Transaction,
    TransactionMessage,
    TransactionProducer,
)
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.store.config import StoreConfig
from orbitmq.testing.clock import ManualClock
from tests.patience import eventually
from tests.producer.test_producer_broker import pull_all

COMMIT, ROLLBACK, UNKNOWN = LocalTransactionState
UNENDING: Final[dict[str, Any]] = {
    "client_timeout_ms": 1 << 30,
    "connection_idle_ms": 1 << 30,
    "transaction_check_max": 1 << 30,
    "store_config": StoreConfig(file_reserved_hours=1 << 20),
}
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[EmbeddedBroker]:
    """One that asks again and again, however far the clock is moved until it has its answer."""
    with EmbeddedBroker(clock=clock, **UNENDING) as running:
        yield running


@contextmanager
def transaction_producer(
    broker: EmbeddedBroker, execute: Any = None, check: Any = None, **settings: Any
) -> Iterator[TransactionProducer]:
    with TransactionProducer(
        "shop", execute, check, name_server=broker.name_server, **settings
    ) as producer:
        yield producer


def delivered(broker: EmbeddedBroker, topic: str = "orders") -> list[bytes]:
    return [message.body for queue in pull_all(broker, topic).values() for message in queue]


def has_ended(broker: EmbeddedBroker, count: int = 1) -> None:
    """Wait until so many ends have reached the broker."""
    eventually(
        lambda: broker.call(lambda node: node.broker.store.max_offset(OP, 0)) >= count,
        f"{count} ended transactions",
    )


def look_through(broker: EmbeddedBroker, clock: ManualClock) -> None:
    """Have the broker ask about what is open."""
    clock.advance(30_000)
    broker.run_due()
    while broker.call(lambda node: node.broker.transaction_checker.busy):
        broker.run_due()


def wait_for_member(broker: EmbeddedBroker, group: str = "shop") -> None:
    eventually(
        lambda: broker.call(lambda node: bool(node.broker.producers.groups.get(group))),
        f"a producer of {group}",
    )


def asked_until(broker: EmbeddedBroker, clock: ManualClock, count: int) -> None:
    """Look through open transactions until so many have ended.

    A producer that was asked may be slow to answer, so the broker asks until it has.
    """
    wait_for_member(broker)

    def ended() -> bool:
        look_through(broker, clock)
        return broker.call(lambda node: node.broker.store.max_offset(OP, 0)) >= count

    eventually(ended, f"{count} ended transactions")


class TestExecute:
    """send_message_in_transaction: the function's answer is the end."""

    def test_what_commits_is_delivered(self, broker: EmbeddedBroker) -> None:
        seen: list[tuple[TransactionMessage, object]] = []

        def execute(message: TransactionMessage, arg: object) -> LocalTransactionState:
            assert delivered(broker) == []
            seen.append((message, arg))
            return COMMIT

        message = Message("orders", b"x" * 5000, tags="a", keys="k")
        with transaction_producer(broker, execute) as producer:
            result = producer.send_message_in_transaction(message, 17)
            has_ended(broker)
        assert result.status is SendStatus.SEND_OK
        assert result.local_transaction_state is COMMIT
        ((given, arg),) = seen
        assert (given, arg) == (message, 17)
        assert given.transaction_id == result.transaction_id == result.message_id
        (stored,) = (m for queue in pull_all(broker, "orders").values() for m in queue)
        assert (stored.body, stored.tags, stored.keys) == (message.body, "a", "k")
        assert stored.message_id == result.message_id

    def test_a_coroutine_function_may_carry_it_out(self, broker: EmbeddedBroker) -> None:
        threads = set()

        async def execute(_: TransactionMessage, arg: Any) -> LocalTransactionState:
            threads.add(threading.current_thread().name)
            return LocalTransactionState[arg]

        with transaction_producer(broker, execute) as producer:
            for how in ("COMMIT", "ROLLBACK"):
                result = producer.send_message_in_transaction(Message("orders", b"x"), how)
                assert result.local_transaction_state.name == how
            has_ended(broker, 2)
        assert delivered(broker) == [b"x"]
        assert threads == {"transactions-shop"}

    @pytest.mark.parametrize("answer", [None, True, "COMMIT"])
    def test_what_answers_anything_else_is_unknown(
        self, broker: EmbeddedBroker, answer: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        with transaction_producer(broker, lambda _message, _arg: answer) as producer:
            result = producer.send_message_in_transaction(Message("orders", b"x"))
        assert result.local_transaction_state is UNKNOWN
        assert f"execute_local_transaction answered {answer!r}" in caplog.text
        assert delivered(broker) == []

    def test_what_raises_is_unknown_and_its_traceback_logged(
        self, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        def execute(_message: TransactionMessage, _arg: object) -> LocalTransactionState:
            raise ValueError("the database is away")

        with transaction_producer(broker, execute) as producer:
            result = producer.send_message_in_transaction(Message("orders", b"x"))
        assert result.local_transaction_state is UNKNOWN
        (record,) = (r for r in caplog.records if "execute_local_transaction failed" in r.message)
        assert record.exc_info is not None
        assert "the database is away" in str(record.exc_info[1])

    def test_an_interrupt_leaves_it_open(self, broker: EmbeddedBroker) -> None:
        def execute(_message: TransactionMessage, _arg: object) -> LocalTransactionState:
            raise KeyboardInterrupt

        with transaction_producer(broker, execute) as producer:
            with pytest.raises(KeyboardInterrupt):
                producer.send_message_in_transaction(Message("orders", b"x"))
            producer.send(Message("plain", b"behind it"))
        assert broker.call(lambda node: node.broker.store.max_offset(HALF, 0)) == 1
        assert broker.call(lambda node: node.broker.store.max_offset(OP, 0)) == 0

    def test_without_the_function_it_says_so(self, broker: EmbeddedBroker) -> None:
        with (
            transaction_producer(broker) as producer,
            pytest.raises(ClientStateError, match="execute_local_transaction"),
        ):
            producer.send_message_in_transaction(Message("orders", b"x"))
        assert broker.call(lambda node: node.broker.store.max_offset(HALF, 0)) == 0


class TestBlock:
    """The short form."""

    def test_leaving_commits(self, broker: EmbeddedBroker) -> None:
        with transaction_producer(broker) as producer:
            with producer.transaction(Message("orders", b"x")) as transaction:
                assert transaction.transaction_id == transaction.result.message_id
                assert delivered(broker) == []
            assert transaction.local_transaction_state is COMMIT
            has_ended(broker)
        assert delivered(broker) == [b"x"]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, StopIteration])
    def test_an_exception_rolls_back(
        self, broker: EmbeddedBroker, error: type[BaseException]
    ) -> None:
        with transaction_producer(broker) as producer:
            with pytest.raises(error), producer.transaction(Message("orders", b"x")):
                raise error
            has_ended(broker)
        assert delivered(broker) == []

    def test_it_may_be_rolled_back_without_one(self, broker: EmbeddedBroker) -> None:
        def pay(transaction: Transaction) -> None:
            transaction.roll_back()

        with transaction_producer(broker) as producer:
            with producer.transaction(Message("orders", b"x")) as transaction:
                pay(transaction)
            has_ended(broker)
        assert delivered(broker) == []

    def test_an_end_after_the_shutdown_is_logged(
        self, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        with (
            transaction_producer(broker) as producer,
            producer.transaction(Message("orders", b"x")),
        ):
            producer.shutdown()
        assert "is not told" in caplog.text


class TestCheck:
    """check_local_transaction: asked of whoever is there."""

    @pytest.mark.parametrize("is_async", [False, True])
    def test_an_open_one_ends_as_it_says(
        self, broker: EmbeddedBroker, clock: ManualClock, *, is_async: bool
    ) -> None:
        ids = []
        asked: dict[str, MessageView] = {}

        def check(message: MessageView) -> LocalTransactionState:
            assert message.transaction_id is not None
            asked[message.transaction_id] = message
            return COMMIT if message.body == b"commit" else ROLLBACK

        async def check_async(message: MessageView) -> LocalTransactionState:
            return check(message)

        with transaction_producer(
            broker, lambda *_: UNKNOWN, check_async if is_async else check
        ) as producer:
            for body in (b"commit", b"drop"):
                result = producer.send_message_in_transaction(Message("orders", body, keys="k"))
                ids.append(result.transaction_id)
            asked_until(broker, clock, 2)
        assert asked.keys() == set(ids)
        assert {(message.topic, message.keys) for message in asked.values()} == {("orders", "k")}
        assert set(delivered(broker)) == {b"commit"}

    @pytest.mark.parametrize("topics", [(), ("orders",)])
    def test_another_producer_of_the_group_answers_for_one_that_died(
        self, broker: EmbeddedBroker, clock: ManualClock, topics: tuple[str, ...]
    ) -> None:
        with transaction_producer(broker, lambda *_: UNKNOWN) as first:
            first.send_message_in_transaction(Message("orders", b"x"))
        with transaction_producer(broker, None, lambda _: COMMIT, topics=topics):
            asked_until(broker, clock, 1)
        assert set(delivered(broker)) == {b"x"}

    def test_what_raises_is_asked_again(
        self, broker: EmbeddedBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls = []

        def check(message: MessageView) -> LocalTransactionState:
            calls.append(message)
            if len(calls) == 1:
                raise ValueError("not yet")
            return COMMIT

        with transaction_producer(broker, lambda *_: UNKNOWN, check) as producer:
            producer.send_message_in_transaction(Message("orders", b"x"))
            asked_until(broker, clock, 1)
        assert set(delivered(broker)) == {b"x"}
        assert "check_local_transaction failed" in caplog.text

    def test_too_many_are_left_out(
        self, broker: EmbeddedBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        go_on = threading.Event()

        def check(_: MessageView) -> LocalTransactionState:
            go_on.wait()
            return ROLLBACK

        with transaction_producer(
            broker, lambda *_: UNKNOWN, check, check_request_hold_max=2
        ) as producer:
            for _ in range(3):
                producer.send_message_in_transaction(Message("orders", b"x"))
            wait_for_member(broker)

            def left_out() -> bool:
                look_through(broker, clock)
                return "is left out" in caplog.text

            eventually(left_out, "the third check")
            go_on.set()
            asked_until(broker, clock, 3)

    def test_nobody_who_knows_says_so(
        self, broker: EmbeddedBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        with transaction_producer(broker, lambda *_: UNKNOWN) as producer:
            producer.send_message_in_transaction(Message("orders", b"x"))
            wait_for_member(broker)

            def asked() -> bool:
                look_through(broker, clock)
                return "give it check_local_transaction" in caplog.text

            eventually(asked, "the question")

    def test_a_check_may_not_shut_its_producer_down(
        self, broker: EmbeddedBroker, clock: ManualClock
    ) -> None:
        errors: list[ClientStateError] = []

        def check(_: MessageView) -> LocalTransactionState:
            try:
                producer.shutdown()
            except ClientStateError as error:
                errors.append(error)
            return COMMIT

        with transaction_producer(broker, lambda *_: UNKNOWN, check) as producer:
            producer.send_message_in_transaction(Message("orders", b"x"))
            asked_until(broker, clock, 1)
        assert errors


class TestRefused:
    """What cannot be sent, or given."""

    @pytest.mark.parametrize(
        "message",
        [
            Message("orders", b"x", delay_level=3),
            Message("orders", b"x", delay_seconds=3),
            Message("orders", b"x", properties={"TIMER_DELAY_SEC": "3"}),
            [Message("orders", b"x")],
        ],
    )
    def test_delays_and_batches(self, broker: EmbeddedBroker, message: Any) -> None:
        with transaction_producer(broker, lambda *_: COMMIT) as producer:
            with pytest.raises(InvalidMessageError):
                producer.send_message_in_transaction(message)
            with pytest.raises(InvalidMessageError), producer.transaction(message):
                pytest.fail("the block is not entered")

    @pytest.mark.parametrize("function", [17, lambda: COMMIT, Message])
    def test_functions_that_cannot_be_called(self, function: Any) -> None:
        with pytest.raises(ConfigError, match="execute_local_transaction"):
            TransactionProducer("shop", function, name_server="127.0.0.1:1")
        with pytest.raises(ConfigError, match="check_local_transaction"):
            TransactionProducer("shop", None, function, name_server="127.0.0.1:1")


def test_a_namespace_stays_out_of_sight(broker: EmbeddedBroker, clock: ManualClock) -> None:
    topics = []

    def check(message: MessageView) -> LocalTransactionState:
        topics.append(message.topic)
        return COMMIT

    with TransactionProducer(
        "shop", lambda *_: UNKNOWN, check, name_server=broker.name_server, namespace="space"
    ) as producer:
        producer.send_message_in_transaction(Message("orders", b"x"))
        wait_for_member(broker, "space%shop")

        def ended() -> bool:
            look_through(broker, clock)
            return broker.call(lambda node: node.broker.store.max_offset(OP, 0)) >= 1

        eventually(ended, "the end")
    assert set(topics) == {"orders"}
    assert set(delivered(broker, "space%orders")) == {b"x"}


def test_hooks_hear_of_halves_and_ends(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[tuple[object, ...]] = []

    class Hook:
        def end_transaction(self, context: Any) -> None:
            seen.append((context.transaction_state, context.topic, context.message_id))

        def send_message_before(self, context: Any) -> None:
            seen.append((context.message_type.name,))

        def send_message_after(self, context: Any) -> None:
            pass

    with transaction_producer(broker, lambda *_: COMMIT) as producer:
        producer.register_end_transaction_hook(Hook())
        producer.register_send_message_hook(Hook())
        result = producer.send_message_in_transaction(Message("orders", b"x"))
        has_ended(broker)
    assert seen == [("TRANSACTION_HALF",), ("COMMIT_MESSAGE", "orders", result.message_id)]
