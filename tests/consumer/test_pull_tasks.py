"""PullTask: the timing of the next pull, and what the consumer gets."""

from __future__ import annotations

from typing import cast

import pytest

from orbitmq import codes
from orbitmq.clock import elapsed_ms
from orbitmq.consumer.hooks import FilterMessageContext
from orbitmq.consumer.process_queue import PULL_EXPIRES_MS
from orbitmq.errors import (
    ConnectionLostError,
)
from orbitmq.filters.subscription import build_subscription
from orbitmq.testing.clock import ManualClock
from tests.consumer.pulling import MASTER, QUEUE, SETTINGS, Scene, play, records
from tests.consumer.records import offsets


def test_the_next_pull_leaves_before_the_messages_are_handed_over() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9), min_offset=3, max_offset=50)
        assert scene.pulled_from() == [7, 10]
        assert scene.consumer.messages == []
        await scene.settle()
        assert offsets(scene.consumer.messages) == [7, 8, 9]
        first = scene.consumer.messages[0]
        assert (first.broker_name, first.property("MIN_OFFSET")) == ("broker-a", "3")
        assert first.property("MAX_OFFSET") == "50"

    play(scenario)


@pytest.mark.parametrize("max_offset", [12, 50])
def test_an_answer_never_overtakes_the_one_before(max_offset: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9), max_offset=50)
        scene.broker.answer(codes.SUCCESS, 12, records(10, 11), max_offset=max_offset)
        await scene.settle()
        assert offsets(scene.consumer.messages) == [7, 8, 9, 10, 11]
        assert scene.pulled_from() == [7, 10, 12]

    play(scenario)


def test_before_an_end_is_told_the_messages_are_there() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9), max_offset=50)
        scene.broker.answer(codes.PULL_NOT_FOUND, 10)
        assert offsets(scene.consumer.messages) == [7, 8, 9]
        assert scene.consumer.nothing == [10]

    play(scenario)


@pytest.mark.parametrize("max_offset", [9, 10])
def test_at_the_end_of_a_queue_the_messages_go_first(max_offset: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9), max_offset=max_offset)
        assert offsets(scene.consumer.messages) == [7, 8, 9]
        assert scene.pulled_from() == [7, 10]

    play(scenario)


def test_without_room_for_more_it_leaves_afterwards() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.prefetch = False
        scene.consumer.delay_ms = 50
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        assert offsets(scene.consumer.messages) == [7]
        assert scene.pulled_from() == [7]
        scene.consumer.delay_ms = 0
        assert scene.fire() == 0.05
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_whoever_makes_room_wakes_the_task() -> None:
    async def scenario(scene: Scene) -> None:
        scene.task.wake()
        assert scene.pulled_from() == [7]  # it pulls already
        scene.consumer.delay_ms = 50
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        scene.consumer.delay_ms = 0
        scene.task.wake()
        assert scene.pulled_from() == [7, 7]
        assert scene.timers == []

    play(scenario)


def test_a_queue_held_back_for_minutes_does_not_expire() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.delay_ms = 50
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        clock = cast("ManualClock", scene.instance.clock)
        for _ in range(6):
            clock.advance(PULL_EXPIRES_MS // 5)
            scene.fire()
        assert scene.pulled_from() == [7]
        assert not scene.task.process_queue.pull_expired(elapsed_ms(clock))

    play(scenario)


def test_a_queue_expires_and_pulls_are_timed_whatever_the_wall_clock_says() -> None:
    async def scenario(scene: Scene) -> None:
        clock = cast("ManualClock", scene.instance.clock)
        clock.set_wall_clock(0)
        clock.advance(PULL_EXPIRES_MS)
        assert not scene.task.process_queue.pull_expired(elapsed_ms(clock))
        clock.advance(1)
        assert scene.task.process_queue.pull_expired(elapsed_ms(clock))
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        assert scene.task.pull_ms == PULL_EXPIRES_MS + 1

    play(scenario)


def test_an_interval_is_kept_after_messages_only() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        assert scene.pulled_from() == [7, 7]
        assert scene.fire() == 0.2
        assert scene.pulled_from() == [7, 7, 8]

    play(scenario, SETTINGS._replace(interval_ms=200))


@pytest.mark.parametrize("code", [codes.PULL_NOT_FOUND, codes.PULL_RETRY_IMMEDIATELY])
def test_nothing_found_moves_on_at_once(code: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(code, 20)
        assert scene.consumer.nothing == [20]
        assert scene.pulled_from() == [7, 20]

    play(scenario)


def test_messages_with_another_tag_of_the_same_hash_are_left_out() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription("orders", "AaAa", sub_version=6)
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        bodies = [records(7, properties={"TAGS": tag}) for tag in ("AaAa", "BBBB", "AaAa")]
        scene.broker.answer(codes.SUCCESS, 10, b"".join(bodies))
        await scene.settle()
        assert [message.tags for message in scene.consumer.messages] == ["AaAa", "AaAa"]
        scene.broker.answer(codes.SUCCESS, 11, records(10, properties={"TAGS": "BBBB"}))
        await scene.settle()
        assert scene.consumer.nothing == [7, 11]

    play(scenario)


def test_a_topic_not_subscribed_any_more_is_not_pulled() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = None
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        assert scene.pulled_from() == [7]
        assert scene.timers[0][0] == 3.0

    play(scenario)


def test_the_first_offset_is_asked_for_when_it_is_wanted() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.settle()
        assert scene.pulled_from() == [7]

    play(scenario, offset=-1)


def test_a_stopped_task_takes_no_answer() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        scene.task.stop()
        await scene.settle()
        scene.broker.answer(codes.SUCCESS, 9, records(8))
        await scene.settle()
        assert scene.consumer.messages == []
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_a_restarted_task_goes_on_elsewhere() -> None:
    async def scenario(scene: Scene) -> None:
        late = scene.broker.pulls[-1][2]
        scene.task.restart(70)
        assert scene.pulled_from() == [7, 70]
        late(ConnectionLostError("too late", MASTER))
        assert scene.timers == []
        scene.broker.answer(codes.SUCCESS, 71, records(70))
        await scene.settle()
        assert offsets(scene.consumer.messages) == [70]

    play(scenario)


def test_no_interval_is_kept_where_nothing_is_left_of_what_came() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription("orders", "AaAa", sub_version=6)
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        scene.broker.answer(codes.SUCCESS, 8, records(7, properties={"TAGS": "BBBB"}))
        assert scene.pulled_from() == [7, 7, 8]

    play(scenario, SETTINGS._replace(interval_ms=200))


def test_filter_hooks_have_their_say_after_the_tags() -> None:
    class Odd:
        def filter_message(self, context: FilterMessageContext) -> None:
            assert (context.consumer_group, context.message_queue) == ("readers", QUEUE)
            context.message_list[:] = [m for m in context.message_list if m.queue_offset % 2]

    class Broken:
        def filter_message(self, context: FilterMessageContext) -> None:
            raise ValueError("broken")

    async def scenario(scene: Scene) -> None:
        scene.consumer.filter_hooks.register(Broken())
        scene.consumer.filter_hooks.register(Odd())
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9))
        await scene.settle()
        assert offsets(scene.consumer.messages) == [7, 9]
        scene.broker.answer(codes.SUCCESS, 11, records(10))
        await scene.settle()
        assert scene.consumer.nothing == [11]

    play(scenario)


def test_how_long_a_pull_took_is_known_when_its_messages_come() -> None:
    async def scenario(scene: Scene) -> None:
        cast("ManualClock", scene.instance.clock).advance(12)
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        assert scene.task.pull_ms == 12

    play(scenario)
