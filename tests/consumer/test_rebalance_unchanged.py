"""Rebalances that find all as it was: nothing is worked out again, and nothing is overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.allocate import AllocateAveragely
from orbitmq.consumer import rebalance as module
from orbitmq.consumer.process_queue import PULL_EXPIRES_MS
from orbitmq.consumer.rebalance import Rebalance
from orbitmq.errors import ConnectError
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from tests.consumer.rebalancing import ORDERS, RETRIES, Cluster, Owner, rebalancing

queues = st.sets(st.sampled_from([*ORDERS, RETRIES]), max_size=3)
steps = st.one_of(
    st.just(("nothing", None)),
    st.tuples(st.just("ids"), st.lists(st.sampled_from(["me", "you", "him"]), unique=True)),
    st.tuples(st.just("queues"), st.integers(0, len(ORDERS))),
    st.tuples(st.just("topics"), st.sets(st.sampled_from(["orders", RETRIES.topic, "unborn"]))),
    st.tuples(st.just("answer"), st.none() | st.lists(st.sampled_from([*ORDERS, RETRIES]))),
    st.tuples(st.just("refuse"), queues),
    st.tuples(st.just("pulled"), queues),
    st.tuples(st.just("gone"), queues),
    st.tuples(st.just("leaving"), queues),
    st.tuples(st.just("later"), st.integers(0, PULL_EXPIRES_MS)),
    st.tuples(st.just("unreachable"), st.booleans()),
)


class Fickle(AllocateAveragely):
    """A strategy that may change its mind, and keeps what it answers."""

    def __init__(self) -> None:
        self.answer: list[MessageQueue] | None = None

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if self.answer is None:
            return super().__call__(group, client_id, queues, client_ids)
        return self.answer


class Scene:
    """A consumer that is balanced again and again while everything around it changes."""

    def __init__(self, *, broadcasting: bool, expire: bool) -> None:
        self.cluster, self.owner = Cluster(), Owner(["orders", RETRIES.topic])
        self.cluster.topics[RETRIES.topic] = [RETRIES]
        self.strategy = Fickle()
        strategy = None if broadcasting else self.strategy
        self.rebalance = Rebalance(self.cluster, "readers", self.owner, strategy, expire=expire)

    def change(self, what: str, value: Any) -> None:
        owner, cluster = self.owner, self.cluster
        if what == "ids":
            cluster.ids = value
        elif what == "queues":
            cluster.topics["orders"] = ORDERS[:value]
        elif what == "topics":
            owner.topics = sorted(value)
        elif what == "answer":
            if self.strategy.answer is None or value is None:
                self.strategy.answer = value
            else:
                self.strategy.answer[:] = value
        elif what == "refuse":
            owner.refuse = value
        elif what == "later":
            cast("ManualClock", cluster.clock).advance(value)
            owner.now_ms += value
        elif what == "unreachable":
            cluster.route_error = ConnectError("no name server") if value else None
        for queue in value & owner.held.keys() if what in {"pulled", "gone", "leaving"} else ():
            if what == "pulled":
                owner.held[queue].process_queue.last_pull_ms = owner.now_ms
            elif what == "gone":
                del owner.held[queue]
            else:
                owner.held[queue].process_queue.leaving = True

    def balance(self) -> tuple[object, ...]:
        """Whether that succeeded, and all there is to see afterwards."""
        owner = self.owner
        balanced = asyncio.run(self.rebalance.run())
        held = {queue: each.process_queue for queue, each in owner.held.items()}
        return (
            balanced,
            {queue: (each.leaving, each.last_pull_ms) for queue, each in held.items()},
            (owner.taken, owner.lost, owner.changes, self.cluster.heartbeats),
            (self.rebalance._known, self.rebalance._told, self.rebalance._looks),
        )


@given(broadcasting=st.booleans(), expire=st.booleans(), changes=st.lists(steps, max_size=12))
def test_a_balance_that_is_remembered_changes_no_outcome(
    broadcasting: bool, expire: bool, changes: list[tuple[str, Any]]
) -> None:
    remembering, forgetful = (Scene(broadcasting=broadcasting, expire=expire) for _ in range(2))
    for what, value in [("nothing", None), *changes]:
        for scene in (remembering, forgetful):
            scene.change(what, value.copy() if isinstance(value, list | set) else value)
        for _ in range(2):
            forgetful.rebalance._balances.clear()
            assert remembering.balance() == forgetful.balance()


def test_what_is_as_it_was_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[str] = []

    def noted(topic: str, *args: Any, **options: Any) -> module.Plan:
        plans.append(topic)
        return plan(topic, *args, **options)

    plan = module.plan
    monkeypatch.setattr(module, "plan", noted)
    cluster, owner, rebalance = rebalancing(Owner(["orders", RETRIES.topic]))
    cluster.topics[RETRIES.topic] = [RETRIES]
    for _ in range(3):
        assert asyncio.run(rebalance.run())
    # Retries came after orders, whose balance is of what was held by then.
    assert plans == ["orders", RETRIES.topic, "orders"]
    cluster.ids = ["me", "you"]
    for _ in range(2):
        assert asyncio.run(rebalance.run())
    assert plans[3:] == ["orders", RETRIES.topic]
    owner.held[ORDERS[0]].process_queue.leaving = True
    asyncio.run(rebalance.run())
    assert plans[5:] == ["orders"]
