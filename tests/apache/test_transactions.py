"""Transactions between Apache's clients and brokers and ours, and stores that change hands.

What a message's key begins with says how its transaction ends: "commit", "rollback", or "open",
behind which stands how its check ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from orbitmq import EmbeddedBroker, LocalTransactionState, Message, TransactionProducer
from tests.apache.cluster import ApacheCluster
from tests.apache.conftest import release_or_skip
from tests.apache.exchanges import side_by_side
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram, options
from tests.apache.orbit import OrbitBroker
from tests.apache.python_clients import PATIENT, PythonLitePullConsumer
from tests.apache.remoting import create_topic
from tests.patience import eventually

if TYPE_CHECKING:
    from orbitmq import MessageView
    from tests.apache.jars import ApacheRelease

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]

GROUP = "makers"
SOON: dict[str, Any] = {
    "transaction_timeout_ms": 500,
    "transaction_check_interval_ms": 300,
    "transaction_check_max": 1_000_000,  # however long a producer takes to answer
}
APACHE = {
    # 5.x writes its op messages every 3 s, and would ask about what has ended before that.
    "transactionTimeOut": 6_000,
    "transactionCheckInterval": 4_000,
    "transactionCheckMax": 10_000,
    "mappedFileSizeCommitLog": 1 << 30,  # as our store has it
}
ENDED = ["commit-0", "rollback-0", "commit-1", "rollback-1"]
OPEN = ["open-commit-0", "open-rollback-0", "open-commit-1"]
COMMITTED = {"commit-0", "commit-1", "open-commit-0", "open-commit-1"}


def state_of(key: str) -> LocalTransactionState:
    if key.startswith("commit"):
        return LocalTransactionState.COMMIT
    rolled_back = key.startswith("rollback")
    return LocalTransactionState.ROLLBACK if rolled_back else LocalTransactionState.UNKNOWN


class Maker:
    """Our producer of transactions; ``checked`` are the keys it was asked about.

    While it is ``ignorant`` it answers no check.
    """

    def __init__(self, name_server: str, topic: str, *, ignorant: bool = False) -> None:
        self.checked: set[str] = set()
        self._topic = topic
        self._ignorant = ignorant
        settings: dict[str, Any] = {**PATIENT, "send_timeout_ms": 60_000, "topics": (topic,)}
        self._producer = TransactionProducer(
            GROUP,
            lambda message, _: state_of(message.keys or ""),
            self._check,
            name_server=name_server,
            **settings,
        )

    def __enter__(self) -> Self:
        self._producer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._producer.shutdown()

    def send(self, *keys: str) -> None:
        for key in keys:
            message = Message(self._topic, key.encode(), tags="TagA", keys=key)
            result = self._producer.send_message_in_transaction(message)
            assert result.local_transaction_state is state_of(key)

    def _check(self, message: MessageView) -> LocalTransactionState:
        key = message.keys or ""
        if self._ignorant:
            return LocalTransactionState.UNKNOWN
        assert (message.topic, message.body) == (self._topic, key.encode())
        self.checked.add(key)
        return state_of(key.removeprefix("open-"))


@contextmanager
def received(name_server: str, topic: str, group: str) -> Iterator[Any]:
    """The keys that are delivered, as a function."""
    with PythonLitePullConsumer(name_server, topic, group) as consumer:
        yield lambda: {message.key for message in consumer.messages}


def wait_for(keys: Any, wanted: set[str]) -> None:
    eventually(lambda: keys() >= wanted, f"messages {sorted(wanted)}", keys)
    assert keys() == wanted


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_java_producers_of_transactions_on_our_broker(version: str) -> None:
    release = release_or_skip(version)
    with EmbeddedBroker(**SOON) as broker:
        values = {
            "nameServer": broker.name_server,
            "group": GROUP,
            "topic": "orders",
            "keys": ",".join(ENDED + OPEN),
        }
        create_topic(broker.name_server, broker.address, "orders")
        with (
            received(broker.name_server, "orders", "readers") as keys,
            JavaProgram(release, "TransactionProducer", options(values)) as producer,
        ):
            wait_for(keys, COMMITTED)
            eventually(
                lambda: {row[0] for row in producer.values("checked")} >= set(OPEN),
                "a check of each open one",
                producer.tail,
            )
            for key, transaction_id, topic, checks, body in producer.values("checked"):
                assert key in OPEN
                assert (topic, body) == ("orders", key)
                assert transaction_id
                assert int(checks) >= 1
            assert {row[1] for row in producer.values("sent")} == {
                "COMMIT_MESSAGE",
                "ROLLBACK_MESSAGE",
                "UNKNOW",
            }
            assert keys() == COMMITTED


def test_open_transactions_go_on_at_the_broker_that_takes_over(tmp_path: Path) -> None:
    """With both versions at once, once ours is killed, once Apache's."""
    old, new = release_or_skip(OLDEST), release_or_skip(NEWEST)
    side_by_side(
        [
            partial(hand_over, old, tmp_path / "old", ours_is_killed=True, theirs_is_killed=False),
            partial(hand_over, new, tmp_path / "new", ours_is_killed=False, theirs_is_killed=True),
        ]
    )


def hand_over(
    release: ApacheRelease, store: Path, *, ours_is_killed: bool, theirs_is_killed: bool
) -> None:
    with OrbitBroker("broker-a", store) as ours:
        create_topic(ours.name_server, ours.address, "orders", 4)
        with Maker(ours.name_server, "orders", ignorant=True) as maker:
            maker.send(*ENDED, *OPEN, "open-for-the-third")
        with received(ours.name_server, "orders", "first") as keys:
            wait_for(keys, {"commit-0", "commit-1"})
        if ours_is_killed:
            ours.kill()
    later = ["commit-2", "rollback-2", "open-commit-2", "open-rollback-2"]
    committed = COMMITTED | {"commit-2", "open-commit-2"}
    with ApacheCluster(release, APACHE, store=store) as theirs:
        with (
            Maker(theirs.name_server, "orders") as maker,
            received(theirs.name_server, "orders", "second") as keys,
        ):
            maker.send(*later)
            wait_for(keys, committed)
            asked = {*OPEN, "open-commit-2", "open-rollback-2", "open-for-the-third"}
            eventually(lambda: maker.checked >= asked, "a check of each", lambda: maker.checked)
            # What both versions forget when they end: 5.x has op messages of 3 s in memory.
            assert maker.checked <= asked | {*ENDED, *later}
            maker.send("open-commit-3")
        if theirs_is_killed:
            theirs.broker.kill()
        else:
            theirs.broker.stop()
    committed |= {"open-commit-3"}
    with (
        EmbeddedBroker(store, broker_name="broker-a", **SOON) as ours_again,
        Maker(ours_again.name_server, "orders") as maker,
        received(ours_again.name_server, "orders", "third") as keys,
    ):
        wait_for(keys, committed)
        eventually(
            lambda: maker.checked >= {"open-commit-3", "open-for-the-third"},
            "a check of each",
            lambda: maker.checked,
        )
