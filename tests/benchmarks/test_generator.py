"""The load generators do with a broker what they say they do."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks import crowd
from benchmarks.frames import Template, send_frame
from benchmarks.generator import carry_out
from benchmarks.plan import Plan
from orbitmq import EmbeddedBroker, descriptors
from orbitmq.wire.frames import FrameDecoder


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def stored(broker: EmbeddedBroker, topic: str, queues: int) -> list[int]:
    return broker.call(
        lambda node: [node.broker.store.max_offset(topic, queue) for queue in range(queues)]
    )


def test_filling_is_even(broker: EmbeddedBroker) -> None:
    carry_out(Plan("fill", broker.address, "filled", 384, topics=2, queues=3))
    assert [stored(broker, f"filled-{n}", 3) for n in range(2)] == [[64] * 3] * 2


@pytest.mark.parametrize(("mode", "size"), [("send", 0), ("send", 32), ("pull", 32)])
def test_requests_in_flight(broker: EmbeddedBroker, mode: str, size: int) -> None:
    carry_out(Plan("fill", broker.address, f"{mode}-{size}", 2048))
    plan = Plan(mode, broker.address, f"{mode}-{size}", size, 2, 4, 60.0, filled=2048, most=20)
    plan.pids = [os.getpid()]
    outcome = carry_out(plan)
    assert outcome.messages >= 20 * (size or 1)
    assert outcome.rate > 0
    assert outcome.cpu >= 0


def test_bodies_greater_than_a_read(broker: EmbeddedBroker) -> None:
    body = 1 << 16
    carry_out(Plan("fill", broker.address, "large", 512, body=body))
    plan = Plan("pull", broker.address, "large", 32, 1, 2, 60.0, filled=512, body=body, most=4)
    assert carry_out(plan).messages >= 4 * 32


def test_pulls_of_several_groups_are_committed(broker: EmbeddedBroker) -> None:
    carry_out(Plan("fill", broker.address, "grouped", 256))
    plan = Plan("pull", broker.address, "grouped", 32, seconds=60, filled=256, groups=3, most=30)
    carry_out(plan)
    committed = broker.call(
        lambda node: [
            any(node.broker.offsets.query(f"bench-pull-{n}", "grouped", at) == 0 for at in range(8))
            for n in range(3)
        ]
    )
    assert all(committed)


def test_an_error_ends_the_run(broker: EmbeddedBroker) -> None:
    with pytest.raises(RuntimeError, match="answered with an error"):
        carry_out(Plan("pull", broker.address, "no-such-topic", 32, filled=2048, most=1))


def test_too_few_messages_to_pull_are_told(broker: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match="too few for pulls of 32"):
        carry_out(Plan("pull", broker.address, "filled", 32, filled=8))


def test_what_consumers_wait_for_is_sent_and_pulled(broker: EmbeddedBroker) -> None:
    plan = Plan("mixed", broker.address, "mixed", connections=5, window=4, seconds=60.0)
    plan.most = 20
    outcome = carry_out(plan)
    assert outcome.messages >= 20
    topics = broker.call(lambda node: node.broker.store.topics())
    (topic,) = [topic for topic in topics if topic.startswith("mixed-")]
    assert sum(stored(broker, topic, 5)) >= outcome.messages


def test_latencies_at_a_rate(broker: EmbeddedBroker) -> None:
    carry_out(Plan("fill", broker.address, "steady", 0))
    outcome = carry_out(Plan("latency", broker.address, "steady", 400, seconds=0.5))
    half, most, _ = outcome.figures
    assert outcome.messages == 300
    assert 0 < half <= most
    assert sum(stored(broker, "steady", 8)) == 300


def test_many_connections(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "_AT_ONCE", 16)
    plan = Plan("connect", broker.address, "crowd", connections=60, pids=[os.getpid()])
    outcome = carry_out(plan)
    assert outcome.messages == 60
    assert outcome.seconds > 0
    assert len(outcome.figures) == 1


def test_a_held_pull_is_woken_alone(broker: EmbeddedBroker) -> None:
    plan = Plan("hold", broker.address, "held", 60, connections=4, seconds=0.1, pids=[os.getpid()])
    outcome = carry_out(plan)
    half, most, _ = outcome.figures
    assert outcome.messages >= 2
    assert 0 < half <= most


def test_a_limit_of_descriptors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "raise_limit", lambda: None)
    monkeypatch.setattr(descriptors, "limit", lambda: 1000)
    crowd.check_descriptors(700)
    with pytest.raises(OSError, match="800 connections are more than the 744 .* 'ulimit -n'"):
        crowd.check_descriptors(800)


def test_a_template_is_a_frame_with_another_number() -> None:
    template = Template(send_frame("flights", 3, body=b"x" * 9, opaque=123_456_789), 123_456_789)
    (command,) = FrameDecoder().feed(template.fill(7))
    assert command.opaque == 7
    assert command.body == b"x" * 9
