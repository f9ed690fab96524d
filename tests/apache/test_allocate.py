"""The allocation strategies beside Apache's own classes, over thousands of random groups.

Java and Python consumers of one group share its queues only if both work out the same: Apache's
classes answer each case too, and must agree on the share, its order, and what is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.allocate import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    allocate_all,
    java_order,
)
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue
from orbitmq.wire.ids import java_hash
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]

CASES = 4_000
ROOMS = ["hz", "sh", "bj", "sz"]
# Java sorts the last before the last but one.
INSTANCES = ["DEFAULT", "4711#81234", "消费者", "\ufb01", "\U0001f600"]
REFUSED = "IllegalArgumentException"


@pytest.fixture(params=[OLDEST, NEWEST])
def release(request: pytest.FixtureRequest) -> ApacheRelease:
    return release_or_skip(request.param)


def random_case(random: Random) -> dict[str, Any]:
    """A strategy and the group it divides for, as java/Allocation.java reads it."""
    rooms = random.sample(ROOMS, random.randint(1, 4))
    clients = random_clients(random, rooms)
    return {
        "strategy": random_strategy(random),
        "sort": random.random() < 0.8,
        "client": random_current(random, clients),
        "clients": clients,
        "queues": random_queues(random),
    }


def random_strategy(random: Random, kinds: str = "averagely circle hash machine-room") -> Any:
    kind = random.choice(kinds.split())
    if kind == "hash":
        # One case in thirty has a number that is refused, or no point on the ring at all.
        nodes = random.randint(-1, 0) if random.random() < 1 / 30 else random.randint(1, 50)
        return {"kind": kind, "nodes": nodes, "md5": random.random() < 0.7}
    if kind == "machine-room":
        if random.random() < 0.5:
            within = random_strategy(random, "averagely circle hash config machine-room")
            return {"kind": "nearby", "within": within}
        return {"kind": kind, "rooms": random.sample([*ROOMS, ""], random.randint(0, 4))}
    return {"kind": "config"} if random.random() < 0.1 else {"kind": kind}


def random_clients(random: Random, rooms: list[str]) -> list[str]:
    clients = [
        f"{random.choice(rooms)}-10.0.{random.randint(0, 9)}.{random.randint(0, 255)}@"
        f"{random.choice(INSTANCES)}"
        for _ in range(random.choice([0, 1, 2, 3, 5, 8, 13, random.randint(10, 60)]))
    ]
    if clients and random.random() < 0.15:
        clients += random.choices(clients, k=random.randint(1, 3))
    if random.random() < 0.03:
        clients.append("10.0.0.1@nowhere")
    return clients


def random_current(random: Random, clients: list[str]) -> str | None:
    if not clients or random.random() < 0.05:
        return random.choice([None, "", "hz-10.9.9.9@stranger", "10.9.9.9@nowhere"])
    return random.choice(clients)


def random_queues(random: Random) -> list[list[Any]]:
    topics = random.sample(["flights", "orders", "%RETRY%readers", "t"], random.randint(1, 3))
    brokers = [f"{random.choice(ROOMS)}@broker-{letter}" for letter in "abcd"]
    if random.random() < 0.2:
        brokers[random.randrange(4)] = random.choice(["broker-a", "hz@", "hz@a@", "@a", "hz@a@b"])
    queues = {
        (random.choice(topics), random.choice(brokers), random.randint(0, 20))
        for _ in range(random.choice([0, 1, 2, 4, 7, 16, random.randint(10, 60)]))
    }
    rows = [list(queue) for queue in sorted(queues)]
    random.shuffle(rows)
    return rows


def strategy_of(how: dict[str, Any], queues: list[MessageQueue]) -> AllocateStrategy:
    match how["kind"]:
        case "averagely":
            return AllocateAveragely()
        case "circle":
            return AllocateAveragelyByCircle()
        case "config":
            return AllocateByConfig([queue for queue in queues if queue.queue_id % 2 == 0])
        case "machine-room":
            return AllocateByMachineRoom(set(how["rooms"]))
        case "nearby":
            return AllocateMachineRoomNearby(
                lambda queue: before(queue.broker_name, "@"),
                lambda client: before(client, "-"),
                strategy_of(how["within"], queues),
            )
        case _ if how["md5"]:
            return AllocateByConsistentHash(how["nodes"])
        case _:
            return AllocateByConsistentHash(how["nodes"], java_hash)


def before(name: str, mark: str) -> str:
    head, found, _ = name.partition(mark)
    return head if found else ""


def our_answer(case: dict[str, Any]) -> list[Any] | str:
    """The name of the strategy and the share, as indexes of the queues given, or what is raised."""
    given = [MessageQueue(*row) for row in case["queues"]]
    queues, clients = list(given), list(case["clients"])
    if case["sort"]:
        queues.sort()
        clients.sort(key=java_order)
    try:
        strategy = strategy_of(case["strategy"], given)
        share = strategy("group", case["client"], queues, clients)
    except ConfigError:
        return REFUSED
    if case["client"] in clients:
        assert allocate_all(strategy, "group", queues, clients)[case["client"]] == share
    return [strategy.name, *map(given.index, share)]


def test_every_share_is_what_apaches_classes_give(release: ApacheRelease) -> None:
    random = Random(20)
    cases = [random_case(random) for _ in range(CASES)]
    with JavaProgram(release, "Allocation") as program:
        for case in cases:
            program.send_line(json.dumps(case))
        program.stop()
        answers = program.values("share")
    seen: Counter[str] = Counter()
    for case, answer in zip(cases, answers, strict=True):
        assert our_answer(case) == answer, case
        seen[answer if isinstance(answer, str) else answer[0]] += 1
    # Each strategy had its turn, and refusals are not the rule.
    assert len(seen) >= 10
    assert seen[REFUSED] < CASES / 3
