"""Routes are made and encoded once, and anew as soon as anything of them changes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.nameserver import route_bodies
from orbitmq.nameserver.route_bodies import RouteBodies
from orbitmq.nameserver.routes import BrokerId, Registration, RouteTable
from orbitmq.wire.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)

TOPICS = "ABC"


class Step(NamedTuple):
    kind: str
    address: str
    name: str
    broker_id: int
    topics: list[TopicConfig]
    version: int
    flag: bool


STEPS = st.builds(
    Step,
    st.sampled_from("register register register topic delete write unregister lose expire".split()),
    st.sampled_from(["h:1", "h:2"]),
    st.sampled_from(["b", "c"]),
    st.integers(0, 1),
    st.lists(
        st.builds(TopicConfig, st.sampled_from(TOPICS), st.integers(1, 2), perm=st.integers(4, 6)),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 1),
    st.booleans(),
)


def carry_out(routes: RouteTable, step: Step, now_ms: int) -> None:
    broker = BrokerId("cluster", step.address)
    topic = step.topics[0].topic_name
    if step.kind == "register":
        routes.register(
            Registration(broker, step.name, step.broker_id, acting_master=step.flag or None),
            step.topics,
            DataVersion(counter=step.version),
            step.address,
            now_ms,
            only_these=step.flag,
        )
    elif step.kind == "topic":
        routes.register_topic(topic, [QueueData(step.name, 3, step.version, 6)])
    elif step.kind == "delete":
        routes.delete_topic(topic, "cluster" if step.flag else None)
    elif step.kind == "write":
        routes.set_writable(step.name, writable=step.flag)
    elif step.kind == "unregister":
        routes.unregister(broker, step.name)
    elif step.kind == "lose":
        routes.disconnected(step.address)
    else:
        routes.expire(now_ms + 100_000)


@given(st.lists(STEPS, max_size=25))
def test_a_route_that_is_kept_is_the_route_there_is(steps: list[Step]) -> None:
    routes, bodies = RouteTable(), RouteBodies()
    for number, step in enumerate(steps):
        carry_out(routes, step, number * 10_000)
        for topic in TOPICS:
            kept = routes.route(topic)
            assert kept is routes.route(topic)
            if kept is not None:
                for standard in (False, True):
                    body = bodies.body(topic, kept, standard=standard)
                    assert body == kept.encode(standard=standard)
            routes._routes.clear()
            assert routes.route(topic) == kept


def route(topic: str, queues: int) -> TopicRouteData:
    broker = BrokerData("c", "b", {0: "h:1"})
    return TopicRouteData([QueueData("b", queues, queues, 6)], [broker])


def test_bodies_are_encoded_once_until_the_route_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[TopicRouteData] = []
    encode = TopicRouteData.encode

    def noted(body: TopicRouteData, *, standard: bool) -> bytes:
        encoded.append(body)
        return encode(body, standard=standard)

    monkeypatch.setattr(TopicRouteData, "encode", noted)
    bodies, first, second = RouteBodies(), route("T", 1), route("T", 2)
    for _ in range(3):
        assert b'"readQueueNums":1' in bodies.body("T", first, standard=False)
        assert b'{"0":"h:1"}' in bodies.body("T", first, standard=True)
    assert encoded == [first, first]
    for _ in range(3):
        assert b'"readQueueNums":2' in bodies.body("T", second, standard=False)
    assert encoded == [first, first, second]


def test_the_memory_of_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies, kept = RouteBodies(), route("T", 1)
    monkeypatch.setattr(route_bodies, "MOST_BYTES", 5 * len(kept.encode()))
    for number in range(100):
        name = f"T{number % 30}"
        assert bodies.body(name, kept, standard=False) == kept.encode()
        assert len(bodies._bodies) <= 5
        assert bodies._size == sum(len(body) for _, body in bodies._bodies.values())
