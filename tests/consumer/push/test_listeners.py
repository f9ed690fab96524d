"""Listeners: how functions are called, and what their answers mean."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from orbitmq.client.functions import is_coroutine_function
from orbitmq.consumer.push.listeners import (
    ConsumeConcurrentlyContext,
    ConsumeContext,
    ConsumeOrderlyContext,
    ConsumeStatus,
    Listener,
)
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView
from tests.consumer.records import messages

QUEUE = MessageQueue("orders", "broker-a", 0)
MESSAGES = tuple(messages([4, 5]))


def call(function: Callable[..., Any]) -> ConsumeStatus:
    context = ConsumeConcurrentlyContext(QUEUE)
    listener = Listener(function)
    if listener.is_async:
        return asyncio.run(listener.call_async(MESSAGES, context))
    return listener.call(MESSAGES, context)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (None, ConsumeStatus.SUCCESS),
        (True, ConsumeStatus.SUCCESS),
        (False, ConsumeStatus.RECONSUME_LATER),
        (ConsumeStatus.COMMIT, ConsumeStatus.COMMIT),
    ],
)
def test_what_a_listener_returns(answer: object, status: ConsumeStatus) -> None:
    async def later(_: Sequence[MessageView]) -> object:
        return answer

    assert call(lambda _: answer) is status
    assert call(later) is status


ERRORS = [
    ValueError("no such account"),
    SystemExit("no such account"),
    KeyboardInterrupt("no such account"),
    GeneratorExit("no such account"),
    asyncio.CancelledError("no such account"),
    BaseException("no such account"),
]


def run(function: Callable[..., Any], messages: Sequence[MessageView]) -> Any:
    """A plain function that answers what another gives."""
    return function(messages)


def throwing(error: BaseException, kind: str) -> Callable[..., Any]:
    """A listener of this kind that raises ``error``."""

    def throw(_: Sequence[MessageView]) -> None:
        raise error

    async def throw_later(_: Sequence[MessageView]) -> None:
        await asyncio.sleep(0)
        raise error

    kinds: dict[str, Callable[..., Any]] = {
        "plain": throw, "coroutine": throw_later, "awaitable": partial(run, throw_later)
    }  # fmt: skip
    return kinds[kind]


@pytest.mark.parametrize("kind", ["plain", "coroutine", "awaitable"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_a_listener_raises_is_a_failure_with_its_traceback_logged(
    error: BaseException, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert call(throwing(error, kind)) is ConsumeStatus.RECONSUME_LATER
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "2 messages" in record.getMessage()
    assert "offset 4" in record.getMessage()


def test_a_listener_that_is_cancelled_from_outside_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def wait(_: Sequence[MessageView]) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        context = ConsumeConcurrentlyContext(QUEUE)
        task = asyncio.create_task(Listener(wait).call_async(MESSAGES, context))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    loop = asyncio.new_event_loop()
    consuming = Listener(wait).call_async(MESSAGES, ConsumeConcurrentlyContext(QUEUE))
    task = loop.create_task(consuming)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    consuming.close()  # as of a task whose loop is gone
    assert not task.done()
    assert not caplog.records


def test_an_answer_of_another_type_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    assert call(lambda _: "ok") is ConsumeStatus.RECONSUME_LATER
    assert "not 'ok'" in caplog.text


def test_a_listener_gets_the_context_if_it_takes_two_arguments() -> None:
    seen: list[object] = []

    class Callable_:  # noqa: N801 - an object that is called
        def __call__(self, messages: object, context: ConsumeContext) -> None:
            seen.append(context)

        async def method(self, messages: object, context: ConsumeContext) -> None:
            seen.append(context)

    def with_default(messages: object, retries: int = 3) -> None:
        assert retries == 3

    def named(messages: object, context: ConsumeContext | None = None) -> None:
        seen.append(context)

    def variadic(*arguments: object) -> None:
        seen.append(arguments[1])

    functions: list[Callable[..., object]] = [
        Callable_(), Callable_().method, with_default, named, variadic, [0].append
    ]  # fmt: skip
    for function in functions:
        assert call(function) is ConsumeStatus.SUCCESS
    assert [type(context) for context in seen] == [ConsumeConcurrentlyContext] * 4


def test_objects_with_a_coroutine_call_are_awaited() -> None:
    class Handler:
        async def __call__(self, messages: object) -> bool:
            return False

    assert Listener(Handler()).is_async
    assert call(Handler()) is ConsumeStatus.RECONSUME_LATER


async def _consume(prefix: str, messages: Sequence[MessageView]) -> None:
    """A coroutine function that a listener may be made of."""


class _Consumer:
    async def __call__(self, messages: Sequence[MessageView]) -> None:
        """An object that is called like one."""


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (partial(_consume, "a"), True),
        (partial(_Consumer()), True),
        (_Consumer(), True),
        (_Consumer().__call__, True),
        (print, False),
        (partial(print, "a"), False),
    ],
)
def test_coroutine_functions_are_known_in_every_guise(
    function: Callable[..., Any], expected: bool
) -> None:
    assert is_coroutine_function(function) is expected
    assert Listener(function).is_async is expected


@pytest.mark.parametrize(
    ("answer", "status"),
    [(None, ConsumeStatus.SUCCESS), (False, ConsumeStatus.RECONSUME_LATER)],
)
def test_an_awaitable_that_a_plain_function_answers_is_awaited(
    answer: object, status: ConsumeStatus
) -> None:
    class Later:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return answer

    async def later() -> object:
        return answer

    assert call(lambda _: later()) is status
    assert call(lambda _: Later()) is status
    assert call(lambda _: asyncio.sleep(0, answer)) is status


def test_an_awaitable_without_a_loop_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    def closed(work: Any) -> ConsumeStatus:
        work.close()
        raise RuntimeError("Event loop is closed")

    context = ConsumeConcurrentlyContext(QUEUE)
    listener = Listener(lambda _: _consume("a", ()), closed)
    assert listener.call(MESSAGES, context) is ConsumeStatus.RECONSUME_LATER
    assert "Event loop is closed" in caplog.text


def no_arguments() -> None: ...
def three(messages: object, context: object, more: object) -> None: ...
def keyword(messages: object, *, retries: int) -> None: ...
def yields(messages: object) -> Any:
    yield messages


async def yields_later(messages: object) -> Any:
    yield messages


@pytest.mark.parametrize(
    "function",
    [
        no_arguments, three, keyword, yields, yields_later,
        partial(three, 1, 2, 3), _Consumer, "consume", None, [],
    ],
)  # fmt: skip
def test_what_cannot_be_called_with_messages_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match=r"function\(messages, context\)") as raised:
        Listener(function)
    assert raised.value.name == "listener"
    assert raised.value.value is function


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("ack_index", "3"),
        ("ack_index", 2**31),
        ("delay_level_when_next_consume", None),
        ("delay_level_when_next_consume", 1.5),
    ],
)
def test_what_a_context_cannot_be_told_is_refused_in_the_listener(
    attribute: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    def say(_: object, context: ConsumeContext) -> None:
        setattr(context, attribute, value)

    assert call(say) is ConsumeStatus.RECONSUME_LATER
    assert f"context.{attribute}={value!r} is not allowed" in caplog.text


def test_what_an_orderly_context_may_be_told() -> None:
    context = ConsumeOrderlyContext(QUEUE)
    for value in (-1, 5_000, None):
        context.suspend_current_queue_time_ms = value
        assert context.suspend_current_queue_time_ms == value
    with pytest.raises(ConfigError, match="context.suspend_current_queue_time_ms='soon'"):
        context.suspend_current_queue_time_ms = "soon"  # type: ignore[assignment]
