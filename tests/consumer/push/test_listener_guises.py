"""Coroutines in every guise, hooks too: what a push consumer awaits, and what it refuses."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import (
    LISTENERS_THREAD,
    Inbox,
    committed,
    consume,
    make,
    make_async,
    send,
    threads,
)


class Handler:
    """An object that is called as a coroutine function."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox

    async def __call__(self, messages: Sequence[MessageView]) -> None:
        await asyncio.sleep(0)
        self.inbox(messages)


def in_every_guise(inbox: Inbox) -> dict[str, Callable[..., Any]]:
    handler = Handler(inbox)

    @functools.wraps(handler.__call__)
    def wrapper(*arguments: Any) -> Awaitable[None]:
        return handler(*arguments)

    return {
        "partial": functools.partial(consume, inbox),
        "object": handler,
        "bound": handler.__call__,
        "partial of an object": functools.partial(handler),
        "decorated": wrapper,
        "lambda": lambda messages: consume(inbox, messages),
    }


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("guise", in_every_guise(Inbox()))
def test_coroutines_in_every_guise_are_consumed(
    broker: EmbeddedBroker, producer: Producer, guise: str, orderly: bool
) -> None:
    inbox = Inbox()
    send(producer, range(20))
    with make(broker, in_every_guise(inbox)[guise], orderly=orderly) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(20) == list(range(20))
    assert committed(broker) == [5] * 4
    assert inbox.threads == {LISTENERS_THREAD}
    assert LISTENERS_THREAD not in threads()


@pytest.mark.parametrize("guise", ["lambda", "partial"])
def test_what_a_plain_function_answers_is_awaited_on_the_users_loop(
    broker: EmbeddedBroker, producer: Producer, guise: str
) -> None:
    inbox = Inbox()

    async def scenario() -> None:
        async with make_async(broker, in_every_guise(inbox)[guise]) as consumer:
            consumer.subscribe("orders")
            await asyncio.to_thread(inbox.wait, 20)

    send(producer, range(20))
    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert inbox.threads == {"MainThread"}
    assert committed(broker) == [5] * 4


async def coroutine_of_two(_one: object, _two: object) -> None: ...


async def coroutine_of_three(_one: object, _two: object, _three: object) -> None: ...


class AsyncHook:
    async def consume_message_before(self, _: object) -> None: ...
    async def consume_message_after(self, _: object) -> None: ...
    async def filter_message(self, _: object) -> None: ...


def test_what_cannot_be_called_is_refused_where_it_is_given(broker: EmbeddedBroker) -> None:
    def wrong(messages: object, context: object, retries: int) -> None: ...

    with pytest.raises(ConfigError, match=r"wrong.*messages, context"):
        make(broker, wrong)
    consumer = make(broker)
    with pytest.raises(ConfigError, match="wrong"):
        consumer.subscribe("orders", listener=wrong)
    with pytest.raises(ConfigError, match="wrong"):
        consumer.subscribe("orders")(wrong)
    with pytest.raises(ClientStateError, match="no listener"):
        consumer.start()
    hook: Any = AsyncHook()
    for refused in (
        functools.partial(make, broker, Inbox(), queue_listener=coroutine_of_three),
        functools.partial(consumer.register_consume_message_hook, hook),
        functools.partial(consumer.register_filter_message_hook, hook),
    ):
        with pytest.raises(ConfigError, match="coroutine function, which is not awaited here"):
            refused()
