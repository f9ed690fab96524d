"""PullTask: what each failure leads to."""

from __future__ import annotations

import logging

import pytest

from orbitmq import codes
from orbitmq.client.routes import RouteTable
from orbitmq.consumer.hooks import FilterMessageContext
from orbitmq.errors import (
    ConnectError,
    ConnectionLostError,
    NetworkError,
    RequestTimeoutError,
)
from orbitmq.filters.subscription import build_subscription
from orbitmq.wire.command import RemotingCommand
from tests.consumer.pulling import MASTER, RETRY_QUEUE, SETTINGS, Scene, play, records
from tests.consumer.records import offsets


def test_a_first_offset_that_cannot_be_told_is_asked_for_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.first = ConnectError("no broker")
        await scene.settle()
        scene.consumer.first = 4
        assert scene.fire() == 3.0
        await scene.settle()
        assert scene.pulled_from() == [4]

    play(scenario, offset=-1)


def test_a_users_offset_store_that_raises_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.first = ZeroDivisionError("in the store")
        await scene.settle()
        assert "in the store" in caplog.text
        assert "again in 3000 ms" in caplog.text
        scene.consumer.first = 4
        assert scene.fire() == 3.0
        await scene.settle()
        assert scene.pulled_from() == [4]

    play(scenario, offset=-1)


class Spoiler:
    """A filter that leaves no list of messages, the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def filter_message(self, context: FilterMessageContext) -> None:
        self.calls += 1
        if self.calls == 1:
            context.message_list = None  # type: ignore[assignment]


@pytest.mark.parametrize("prefetch", [True, False])
def test_what_a_hook_spoilt_is_pulled_again(
    prefetch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.prefetch = prefetch
        scene.consumer.filter_hooks.register(Spoiler())
        scene.broker.answer(codes.SUCCESS, 9, records(7, 8))
        await scene.settle()
        assert "again in 3000 ms" in caplog.text
        assert scene.fire() == 3.0
        assert scene.pulled_from()[-1] == 7
        scene.broker.answer(codes.SUCCESS, 9, records(7, 8))
        await scene.settle()
        assert offsets(scene.consumer.messages) == [7, 8]

    play(scenario)


def test_what_the_consumer_could_not_take_is_pulled_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.prefetch = False
        scene.consumer.refuses = ZeroDivisionError("no room")
        scene.broker.answer(codes.SUCCESS, 9, records(7, 8))
        scene.consumer.refuses = None
        assert scene.fire() == 3.0
        assert scene.pulled_from() == [7, 7]

    play(scenario)


def test_a_greeting_that_fails_oddly_is_tried_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.instance.heartbeat_error = ZeroDivisionError("odd")
        scene.broker.give(RemotingCommand(code=codes.SUBSCRIPTION_NOT_EXIST, remark="who?"))
        await scene.settle()
        assert scene.fire() == 3.0
        assert scene.pulled_from() == [7, 7]

    play(scenario)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (ConnectionLostError("gone", MASTER), 3.0),
        (RemotingCommand(code=codes.SYSTEM_ERROR, remark="store is closed"), 3.0),
        (RemotingCommand(code=215, remark="flow control"), 0.02),
        (RemotingCommand(code=codes.SUCCESS), 3.0),  # no header
    ],
    ids=lambda value: str(getattr(value, "code", value)),
)
def test_a_failure_is_logged_and_tried_again_later(
    answer: RemotingCommand | NetworkError, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.give(answer)
        assert scene.fire() == seconds
        assert scene.pulled_from() == [7, 7]
        assert f"again in {seconds * 1000:.0f} ms" in caplog.text

    play(scenario)


def test_a_held_pull_that_is_never_answered_is_asked_again_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.give(RequestTimeoutError("no answer", MASTER))
        assert scene.pulled_from() == [7, 7]

    play(scenario)


def test_a_broker_that_does_not_know_us_is_greeted_and_asked_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        delays = []
        for _ in range(3):
            scene.broker.give(RemotingCommand(code=codes.SUBSCRIPTION_NOT_EXIST, remark="who?"))
            await scene.settle()
            delays.append(scene.fire())
        assert scene.instance.heartbeats == 3
        assert delays == [0.05, 0.1, 0.2]
        assert scene.pulled_from() == [7] * 4

    play(scenario)


def test_a_topic_the_broker_does_not_have_has_its_route_fetched_anew() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.give(RemotingCommand(code=codes.TOPIC_NOT_EXIST, remark="no topic"))
        await scene.settle()
        assert scene.instance.fetches == 1
        assert scene.timers[0][0] == 3.0

    play(scenario)


def test_failures_of_retry_topics_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription(RETRY_QUEUE.topic)
        with caplog.at_level(logging.DEBUG):
            scene.broker.give(ConnectionLostError("gone", MASTER))
        assert {item.levelno for item in caplog.records} == {logging.DEBUG}

    play(scenario, SETTINGS, RETRY_QUEUE)


def test_a_broker_no_route_names_is_looked_for() -> None:
    async def scenario(scene: Scene) -> None:
        scene.instance.routes = RouteTable()
        route, scene.instance.route = scene.instance.route, ConnectError("no name server")
        scene.broker.answer(codes.PULL_NOT_FOUND, 8)
        await scene.settle()
        scene.instance.route = route
        assert scene.fire() == 3.0
        await scene.settle()
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_a_broker_that_cannot_be_reached_is_tried_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.instance.connect_error = ConnectError("refused", MASTER)
        scene.broker.answer(codes.PULL_NOT_FOUND, 8)
        scene.instance.connect_error = None
        assert scene.fire() == 3.0
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_damaged_messages_are_pulled_again_and_those_prefetched_thrown_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9)[:-5])
        assert scene.pulled_from() == [7, 10]
        await scene.settle()
        scene.broker.answer(codes.SUCCESS, 11, records(10))
        await scene.settle()
        assert scene.consumer.messages == []
        assert scene.fire() == 3.0
        assert scene.pulled_from() == [7, 10, 7]
        assert "damaged" in caplog.text

    play(scenario)


def test_an_illegal_offset_is_the_consumers_to_judge(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.PULL_OFFSET_MOVED, 30, min_offset=30, max_offset=90)
        assert scene.pulled_from() == [7, 30]
        scene.consumer.go_on = False
        scene.broker.answer(codes.PULL_OFFSET_MOVED, 40)
        assert scene.consumer.illegal == [30, 40]
        assert scene.pulled_from() == [7, 30]
        assert "offset 7 is not in the queue, which has 30 to 90" in caplog.text

    play(scenario)


def test_a_broker_that_would_go_back_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 5, records(7))
        await scene.settle()
        assert "gave them from 7 on and would go on at 5" in caplog.text

    play(scenario)
