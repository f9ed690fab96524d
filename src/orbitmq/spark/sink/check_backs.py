"""Answers to brokers that ask what became of half messages of exactly_once writes.

A broker asks any producer of the group that is connected. The answer is in the decisions on the
brokers themselves, so any process can give it, also when the driver is gone for good. One that was
decided and left unfinished is finished here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias, Unpack
from urllib.parse import unquote

from orbitmq.blocking.transaction_producer import TransactionProducer
from orbitmq.client.namespace import with_namespace
from orbitmq.producer.local_transactions import LocalTransactionState
from orbitmq.spark.cluster import ClusterSettings, cluster_of
from orbitmq.spark.sink.decisions import WRITE_PROPERTY, Decision, Decisions
from orbitmq.spark.sink.ledger import LEDGER_TOPIC, STAGING_TOPIC, Ledger
from orbitmq.spark.sink.options import PRODUCER_GROUP, WriteOptions
from orbitmq.spark.source.routes import fetch_route, master_addresses
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.spark")

TAKE_OVER_MS: Final = 60_000
"""How long after its decision a write is taken for one whose driver is gone."""
BROKER_WAIT_MS: Final = 5_000
OnAnswer: TypeAlias = Callable[[str, LocalTransactionState], None]
_REMEMBERED: Final = 10_000


class CheckBacks:
    """Says how the transaction of a half message ended.

    It is never to be committed: it stands for rows that are delivered as other messages are. So the
    answer is ROLLBACK when the write is done, or decided without them, and UNKNOWN until then.
    """

    def __init__(
        self,
        options: WriteOptions,
        *,
        take_over_ms: int | None = None,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self._options = options
        self._on_answer = on_answer
        self._take_over_ms = TAKE_OVER_MS if take_over_ms is None else take_over_ms
        self._done: set[str] = set()
        self._one_at_a_time = threading.Lock()

    def __call__(self, message: MessageView) -> LocalTransactionState:
        """The answer; errors mean that it is not known yet."""
        scope, _, tag = (message.property(WRITE_PROPERTY) or "").partition(" ")
        if not scope:
            log.warning("half message %s is of no Spark write", message.message_id)
            return LocalTransactionState.UNKNOWN
        with self._one_at_a_time:
            answer = self._answer(message.topic, scope, tag)
        if self._on_answer is not None:
            self._on_answer(unquote(scope), answer)
        return answer

    def _answer(self, topic: str, scope: str, tag: str) -> LocalTransactionState:
        if scope in self._done:
            return LocalTransactionState.ROLLBACK
        decisions = Decisions(self._options, unquote(scope))
        decision = self._find(topic, decisions)
        if decision is None:
            return LocalTransactionState.UNKNOWN
        if tag not in decision.tags:
            return LocalTransactionState.ROLLBACK
        if not decisions.is_done(decision):
            if time.time_ns() // 1_000_000 - decision.made_ms < self._take_over_ms:
                return LocalTransactionState.UNKNOWN
            log.warning("%s was decided and not finished: it is delivered now", decision.write)
            decisions.finish(decision, fresh=False)
        if len(self._done) >= _REMEMBERED:
            self._done.clear()
        self._done.add(scope)
        return LocalTransactionState.ROLLBACK

    def _find(self, topic: str, decisions: Decisions) -> Decision | None:
        options = self._options
        if topic != STAGING_TOPIC:
            topic = with_namespace(options.namespace, topic)
        masters = master_addresses(fetch_route(options.name_servers, topic, options.access))
        for name, address in masters.items():
            found = decisions.find(Ledger(address, name, options.group, options.access))
            if found is not None:
                return found
        return None


def answer_checks(
    group: str = PRODUCER_GROUP,
    *,
    take_over_ms: int | None = None,
    on_answer: OnAnswer | None = None,
    **settings: Unpack[ClusterSettings],
) -> TransactionProducer:
    """A producer that answers brokers about half messages of exactly_once writes while it runs.

    ::

        with answer_checks(name_server="127.0.0.1:9876"):
            query.awaitTermination()

    It may run anywhere, beside the driver or as a process of its own (``orbitmq answer-checks``);
    several may. ``settings`` say which cluster is meant, as those of clients.

    Args:
        group: the option group of the writes.
        take_over_ms: what was decided and not finished for so long, because the driver is gone, it
            delivers; longer than a driver needs to deliver a batch. Default: a minute.
        on_answer: called with the name of the write and each answer, in a thread of the producer's.
        settings: of the cluster.

    Raises:
        ConfigError: a setting may not be.
    """
    cluster = cluster_of(settings)
    # Notes are in no namespace, and where they are, brokers may ask.
    full_group = cluster.namespace.wrap(group)
    given: dict[str, Any] = dict(settings) | {"namespace": "", "topics": [LEDGER_TOPIC]}
    options = WriteOptions(
        name_servers=cluster.name_servers,
        namespace=cluster.namespace.name,
        group=full_group,
        access=cluster.access,
        broker_wait_ms=BROKER_WAIT_MS,
    )
    checks = CheckBacks(options, take_over_ms=take_over_ms, on_answer=on_answer)
    return TransactionProducer(full_group, check_local_transaction=checks, **given)
