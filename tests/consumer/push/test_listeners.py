"""Listeners: how functions are called, and what their answers mean."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from orbitmq.client.functions import is_coroutine_function
from orbitmq.consumer.push.listeners import (
    ConsumeConcurrentlyContext,
    ConsumeContext,
    ConsumeStatus,
    Listener,
)
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


def explode(_: Sequence[MessageView]) -> None:
    raise ValueError("no such account")


async def explode_later(_: Sequence[MessageView]) -> None:
    raise ValueError("no such account")


@pytest.mark.parametrize(
    "function", [explode, explode_later, lambda _: sys.exit("no such account")]
)
def test_what_a_listener_raises_is_a_failure_with_its_traceback_logged(
    function: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    assert call(function) is ConsumeStatus.RECONSUME_LATER
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "no such account" in caplog.text
    assert "2 messages" in record.getMessage()
    assert "offset 4" in record.getMessage()


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
