"""Rebalance: what is taken and given up, with which reason, and what a failure leaves alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.allocate import (
    AllocateAveragely,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateStrategy,
)
from orbitmq.consumer.process_queue import PULL_EXPIRES_MS
from orbitmq.consumer.rebalance import Membership, Rebalance, names, plan
from orbitmq.errors import ConnectError, OrbitMQError, for_code
from orbitmq.message import MessageQueue
from tests.consumer.rebalancing import ORDERS, RETRIES, Cluster, HeldQueue, Owner, rebalancing

some_queues = st.sets(st.sampled_from(ORDERS))


@given(owned=some_queues, leaving=some_queues, stale=some_queues, assigned=some_queues)
def test_the_plan_leads_from_what_is_owned_to_what_is_assigned(
    owned: set[MessageQueue],
    leaving: set[MessageQueue],
    stale: set[MessageQueue],
    assigned: set[MessageQueue],
) -> None:
    now = 10 * PULL_EXPIRES_MS
    held = {queue: HeldQueue(0 if queue in stale else now) for queue in owned}
    for queue in leaving & owned:
        held[queue].process_queue.leaving = True
    held[RETRIES] = HeldQueue(0)  # of another topic
    lost, expired, gained = map(set, plan("orders", held, sorted(assigned), now, expire=True))
    staying = owned - leaving
    assert lost == staying - assigned
    assert expired == staying & assigned & stale
    assert gained == (assigned - owned) | expired


def test_lite_pull_queues_do_not_expire() -> None:
    held = {ORDERS[0]: HeldQueue(0)}
    assert plan("orders", held, [ORDERS[0]], 10**9, expire=False) == ([], [], [])


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (None, "first share"),
        (Membership(("a",), (ORDERS[0],)), "joined: b; the topic's queues went from 1 to 2"),
        (Membership(("a", "b", "c"), (ORDERS[0], ORDERS[1])), "left: c"),
        (Membership(("a", "b"), (ORDERS[0], ORDERS[5])), "the topic's queues changed"),
        (
            Membership(("a", "b", *"cdefghi"), (ORDERS[0], ORDERS[1])),
            "left: c, d, e, f, g and 2 more",
        ),
        (
            Membership(("a", "b"), (ORDERS[0], ORDERS[1])),
            "nothing changed since, but the queue was not held",
        ),
    ],
)
def test_the_reason_of_a_change(before: Membership | None, reason: str) -> None:
    now = Membership(("a", "b"), (ORDERS[0], ORDERS[1]))
    assert now.change_since(before) == reason


def test_queues_are_named_briefly() -> None:
    queues = [MessageQueue("t", broker, number) for broker in "ba" for number in (7, 0, 1, 2, 5)]
    assert names(queues) == "a/0-2,5,7 b/0-2,5,7"


def test_queues_move_as_consumers_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    cluster, owner, rebalance = rebalancing()
    with caplog.at_level(logging.INFO, "orbitmq.consumer.rebalance"):
        assert asyncio.run(rebalance.run())
        assert owner.taken == [dict.fromkeys(ORDERS, False)]
        cluster.ids = ["you", "me"]
        assert asyncio.run(rebalance.run())
        assert owner.lost == [set(ORDERS[4:])]
        cluster.ids = ["me"]
        assert asyncio.run(rebalance.run())
        assert owner.taken[1:] == [dict.fromkeys(ORDERS[4:], False)]  # "you" is gone: no hurry
    assert owner.changes == [("orders", 8, 8), ("orders", 8, 4), ("orders", 8, 8)]
    assert "gives up broker-a/4-7 to you (joined: you)" in caplog.text
    assert "takes broker-a/4-7 from you (left: you)" in caplog.text


def test_a_queue_that_a_running_consumer_gives_up_is_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, owner, rebalance = rebalancing()
    cluster.ids = ["him", "me", "you"]
    with caplog.at_level(logging.INFO, "orbitmq.consumer.rebalance"):
        asyncio.run(rebalance.run())
    # Of the 8, "him" has 0-2 and "you" 6-7; before I came, "him" had 0-3 and "you" 4-7.
    assert owner.taken == [dict.fromkeys(ORDERS[3:6], True)]
    assert "takes broker-a/3 from him (first share)" in caplog.text
    assert "takes broker-a/4-5 from you (first share)" in caplog.text


def test_a_queue_that_somebody_may_have_had_in_between_is_waited_for() -> None:
    cluster, owner, rebalance = rebalancing()
    cluster.ids = ["him", "me", "you"]
    asyncio.run(rebalance.run())
    cluster.ids = ["me", "she"]  # who may have come before "him" left, and had 0-2 for a moment
    asyncio.run(rebalance.run())
    assert owner.taken[1] == dict.fromkeys(ORDERS[:3], True)
    cluster.ids = ["me"]
    asyncio.run(rebalance.run())
    assert owner.taken[2] == dict.fromkeys(ORDERS[4:], False)


def test_nothing_is_touched_while_brokers_or_name_servers_do_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    cluster.ids = ConnectError("no broker")
    assert not asyncio.run(rebalance.run())
    assert not asyncio.run(rebalance.run())
    assert caplog.text.count("no broker") == 1
    cluster.ids = ["me", "you"]
    cluster.route_error = ConnectError("no name server")
    assert not asyncio.run(rebalance.run())
    assert owner.lost == []
    assert "no name server" in caplog.text


def test_a_consumer_the_broker_forgot_gives_up_its_queues_and_introduces_itself() -> None:
    cluster, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    cluster.ids = ["you"]  # who has all queues now
    assert not asyncio.run(rebalance.run())
    assert owner.held == {}
    assert cluster.heartbeats == 1


@pytest.mark.parametrize("known", [["you"], for_code(codes.SYSTEM_ERROR, "no such group")])
def test_a_broker_that_is_new_hears_of_the_consumer_before_it_is_asked_again(
    known: list[str] | OrbitMQError, caplog: pytest.LogCaptureFixture
) -> None:
    class Unaware(Cluster):
        async def heartbeat(self) -> None:
            self.ids = ["me", "you"]

    owner = Owner()
    cluster = Unaware()
    cluster.ids = known
    assert asyncio.run(Rebalance(cluster, "readers", owner, AllocateAveragely(), expire=True).run())
    assert sorted(owner.held) == ORDERS[:4]
    assert not caplog.text


def test_queues_that_could_not_be_taken_are_tried_again_soon() -> None:
    _, owner, rebalance = rebalancing()
    owner.refuse = {ORDERS[2]}
    assert not asyncio.run(rebalance.run())
    owner.refuse = set()
    assert asyncio.run(rebalance.run())
    assert owner.taken[1] == {ORDERS[2]: False}


def test_queues_of_topics_not_subscribed_any_more_are_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, owner, rebalance = rebalancing(Owner(["orders", RETRIES.topic]))
    cluster.topics[RETRIES.topic] = [RETRIES]
    asyncio.run(rebalance.run())
    owner.topics = []
    with caplog.at_level(logging.INFO, "orbitmq.consumer.rebalance"):
        assert asyncio.run(rebalance.run())
    assert owner.lost == [{*ORDERS, RETRIES}]
    assert "topic orders: gives up broker-a/0-7 (unsubscribed)" in caplog.text
    assert f"topic {RETRIES.topic}: gives up broker-a/0 (unsubscribed)" in caplog.text


def test_queues_that_left_the_topic_are_given_up_and_an_unreadable_topic_too() -> None:
    cluster, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    cluster.topics["orders"] = ORDERS[:6]
    asyncio.run(rebalance.run())
    assert owner.lost == [set(ORDERS[6:])]
    cluster.topics["orders"] = []
    asyncio.run(rebalance.run())
    assert owner.held == {}


def test_a_topic_that_does_not_exist_is_waited_for_eagerly_but_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, owner, rebalance = rebalancing(Owner(["orders", "unborn", RETRIES.topic]))
    outcomes = [asyncio.run(rebalance.run()) for _ in range(4)]
    assert not caplog.text, "the topic may be about to be created"
    outcomes += [asyncio.run(rebalance.run()) for _ in range(27)]
    assert outcomes == [False] * 30 + [True]
    assert caplog.text.count("waits for topic") == 1
    cluster.topics["unborn"] = [MessageQueue("unborn", "broker-a", 0)]
    asyncio.run(rebalance.run())
    assert MessageQueue("unborn", "broker-a", 0) in owner.held


def test_broadcasting_takes_every_queue_and_asks_for_no_ids() -> None:
    cluster, owner = Cluster(), Owner()
    cluster.ids = ConnectError("not to be asked")
    rebalance = Rebalance(cluster, "readers", owner, None, expire=True)
    assert asyncio.run(rebalance.run())
    assert owner.held.keys() == set(ORDERS)


def test_a_queue_nobody_pulled_for_two_minutes_is_taken_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    owner.held[ORDERS[3]].process_queue.last_pull_ms = -PULL_EXPIRES_MS - 1
    assert asyncio.run(rebalance.run())
    assert (owner.lost, owner.taken[1]) == ([{ORDERS[3]}], {ORDERS[3]: False})
    assert "please report" in caplog.text


def test_a_topic_whose_route_vanishes_keeps_its_queues_until_the_route_says_otherwise() -> None:
    cluster, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    orders = cluster.topics.pop("orders")
    assert not asyncio.run(rebalance.run())
    assert owner.held.keys() == set(ORDERS)
    cluster.topics["orders"] = orders[:2]  # made anew, with fewer queues
    assert asyncio.run(rebalance.run())
    assert owner.held.keys() == set(ORDERS[:2])


def test_a_broker_that_names_no_consumer_at_all_changes_nothing() -> None:
    cluster, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    cluster.ids = []
    assert not asyncio.run(rebalance.run())
    assert owner.held.keys() == set(ORDERS)
    assert cluster.heartbeats == 1


def test_configured_queues_are_taken_at_the_turn_of_their_topic() -> None:
    retries = MessageQueue("%RETRY%readers", "broker-a", 0)
    strategy = AllocateByConfig([ORDERS[5], ORDERS[1], ORDERS[5], MessageQueue("alien", "b", 0)])
    cluster, owner, rebalance = rebalancing(Owner(["orders", retries.topic]), strategy)
    cluster.topics[retries.topic] = [retries]
    cluster.ids = ["me", "you"]
    assert asyncio.run(rebalance.run())
    assert asyncio.run(rebalance.run())
    # Who else has them in their configuration cannot be known.
    assert owner.taken == [{ORDERS[5]: False, ORDERS[1]: False}]
    assert owner.changes == [("orders", 8, 2)]


def test_a_queue_that_could_not_be_had_keeps_its_reason_and_tells_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster, owner, rebalance = rebalancing()
    cluster.ids = ["me", "you"]
    asyncio.run(rebalance.run())
    cluster.ids = ["me"]
    owner.refuse = set(ORDERS[4:])  # still locked for "you"
    with caplog.at_level(logging.INFO, "orbitmq.consumer.rebalance"):
        assert not asyncio.run(rebalance.run())
        assert not asyncio.run(rebalance.run())
        assert len(owner.changes) == 1  # the first share
        assert caplog.text.count("broker-a/4-7 cannot be had yet (left: you)") == 1
        assert "takes" not in caplog.text
        owner.refuse = set()
        assert asyncio.run(rebalance.run())
    assert "takes broker-a/4-7 from you (left: you)" in caplog.text
    assert owner.changes[1:] == [("orders", 8, 8)]


def test_the_owner_is_told_of_the_queues_it_holds_not_of_those_it_waits_for() -> None:
    cluster, owner, rebalance = rebalancing()
    owner.refuse = set(ORDERS[4:])  # locked for one who is gone
    assert not asyncio.run(rebalance.run())
    assert owner.changes == [("orders", 8, 4)]
    cluster.ids = ["me", "you"]  # what it waited for is another's now
    assert asyncio.run(rebalance.run())
    owner.refuse = {ORDERS[4]}
    cluster.ids = ["me"]
    assert not asyncio.run(rebalance.run())
    assert owner.changes[1:] == [("orders", 8, 7)]


def test_a_topic_subscribed_again_starts_anew(caplog: pytest.LogCaptureFixture) -> None:
    cluster, owner, rebalance = rebalancing()
    asyncio.run(rebalance.run())
    owner.topics = []
    asyncio.run(rebalance.run())
    owner.topics = ["orders"]
    cluster.ids = ["him", "me"]
    with caplog.at_level(logging.INFO, "orbitmq.consumer.rebalance"):
        asyncio.run(rebalance.run())
    assert "takes broker-a/4-7 from him (first share)" in caplog.text
    assert owner.taken[1] == dict.fromkeys(ORDERS[4:], True)


def test_one_run_at_a_time() -> None:
    cluster, owner, rebalance = rebalancing()
    running = 0
    most = 0

    async def slow_ids(group: str, topic: str) -> list[str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return ["me"]

    cluster.consumer_ids = slow_ids  # type: ignore[method-assign]

    async def both() -> None:
        await asyncio.gather(rebalance.run(), rebalance.run())

    asyncio.run(both())
    assert most == 1
    assert len(owner.taken) == 1


def test_the_owners_of_many_queues_are_told_at_once() -> None:
    cluster, owner, rebalance = rebalancing(strategy=AllocateByConsistentHash())
    cluster.topics["orders"] = [MessageQueue("orders", "b", number) for number in range(20_000)]
    cluster.ids = ["me", *(f"other-{number}" for number in range(1_999))]
    asyncio.run(rebalance.run())
    (taken,) = owner.taken
    assert taken
    assert all(taken.values())


def test_a_strategy_that_fails_for_others_still_serves_us() -> None:
    class OnlyForMe(AllocateAveragely):
        def __call__(
            self,
            group: str,
            client_id: str,
            queues: Sequence[MessageQueue],
            client_ids: Sequence[str],
        ) -> list[MessageQueue]:
            if client_id != "me":
                raise KeyError("unknown room")
            return super().__call__(group, client_id, queues, client_ids)

    cluster, owner, rebalance = rebalancing(strategy=cast("AllocateStrategy", OnlyForMe()))
    cluster.ids = ["me", "you"]
    assert asyncio.run(rebalance.run())
    assert len(owner.held) == 4


def test_a_strategy_that_raises_leaves_the_queues_and_the_other_topics_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NotOrders(AllocateAveragely):
        def __call__(
            self,
            group: str,
            client_id: str,
            queues: Sequence[MessageQueue],
            client_ids: Sequence[str],
        ) -> list[MessageQueue]:
            if queues[0].topic == "orders" and len(client_ids) > 1:
                raise KeyError("unknown room")
            return super().__call__(group, client_id, queues, client_ids)

    cluster, owner, rebalance = rebalancing(Owner(["orders", RETRIES.topic]), NotOrders())
    cluster.topics[RETRIES.topic] = [RETRIES]
    assert asyncio.run(rebalance.run())
    cluster.ids = ["him", "me"]
    assert not asyncio.run(rebalance.run())
    assert not asyncio.run(rebalance.run())
    assert owner.held.keys() == set(ORDERS)  # "him" has the one queue for retries
    assert caplog.text.count("in __call__") == 1  # the traceback
    assert "its queues stay as they are: KeyError('unknown room')" in caplog.text
