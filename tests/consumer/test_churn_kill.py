"""Consumers of one group join, leave and are killed (SIGKILL) while messages flow."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from itertools import pairwise

import pytest

from orbitmq import EmbeddedBroker, MessageQueue
from orbitmq.testing.wait import wait_until
from tests.consumer.churn import MOST_CONSUMERS, QUEUES, TOPIC, flowing
from tests.consumer_program import ConsumerProgram, Received

EVENTS = 14
GROUP = "readers"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["concurrent", "orderly", "lite-pull"])
@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_when_consumers_die(mode: str, seed: int) -> None:
    choose = random.Random(seed)
    everyone: list[ConsumerProgram] = []
    killed = 0
    with flowing() as feed, ExitStack() as stack:
        name_server = feed.broker.name_server
        running: list[ConsumerProgram] = []

        def consumed() -> set[str]:
            return {row.key for member in everyone for row in member.messages}

        def reached(count: int) -> bool:
            return len(consumed()) >= count

        for _ in range(EVENTS):
            goal = len(consumed()) + 100
            event = choose.choice(["join", "join", "leave", "die"])
            if len(running) < 2 or (event == "join" and len(running) < MOST_CONSUMERS):
                program = ConsumerProgram(name_server, TOPIC, GROUP, mode)
                running.append(stack.enter_context(program))
                everyone.append(program)
            else:
                member = running.pop(choose.randrange(len(running)))
                if event == "leave":
                    member.stop()
                else:
                    member.kill()
                    killed += 1
                    expire_locks(feed.broker, member.client_id)
            wait_until(partial(reached, goal), f"{goal} messages, seed {seed}", timeout=90)
        feed.done.set()
        wait_until(lambda: reached(feed.sent + 1), f"all, seed {seed}", timeout=90)
        for member in running:
            member.stop()
    assert killed > 0
    if mode == "orderly":
        check_order(everyone, killed)


def expire_locks(broker: EmbeddedBroker, client_id: str) -> None:
    """What would be after 60 s: the dead one's locks have run out, those of the living not."""
    queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(QUEUES)]
    broker.call(lambda node: node.broker.locks.unlock(GROUP, queues, client_id))


def check_order(everyone: list[ConsumerProgram], killed: int) -> None:
    """No consumer sees a queue go back, unless it took the queue over from one that was killed."""
    for member in everyone:
        runs: dict[int, list[Received]] = {}
        for row in member.messages:
            runs.setdefault(row.queue, []).append(row)
        for rows in runs.values():
            backwards = sum(after.offset <= before.offset for before, after in pairwise(rows))
            assert backwards <= killed, rows
