"""Functions of the user's that would never run are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from orbitmq import LitePullConsumer, Message, Producer, PullConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client.functions import can_take, check_function, check_plain_function
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


async def later(*_: object) -> None: ...


def numbers(*_: object) -> Iterator[int]:
    yield 1


class Called:
    def __call__(self, *_: object) -> None: ...


class CalledLater:
    async def __call__(self, *_: object) -> None: ...


@pytest.mark.parametrize("function", [print, Called(), Called, partial(Called()), [].append])
def test_plain_functions(function: object) -> None:
    check_plain_function("callback", function, "a plain function")


@pytest.mark.parametrize(
    "function", [later, CalledLater(), partial(later, 1), partial(CalledLater())]
)
def test_coroutine_functions(function: object) -> None:
    check_function("callback", function, "a function")
    with pytest.raises(ConfigError, match="a plain function; this is a coroutine") as raised:
        check_plain_function("callback", function, "a plain function")
    assert raised.value.value is function
    assert raised.value.name == "callback"


@pytest.mark.parametrize("function", [None, "print", numbers, partial(numbers, 1)])
def test_what_is_no_function(function: object) -> None:
    with pytest.raises(ConfigError, match="a plain function"):
        check_plain_function("callback", function, "a plain function")


def test_how_many_arguments_a_function_can_take() -> None:
    def two(one: int, other: int = 2, *, named: int = 3) -> None: ...

    assert [can_take(two, count) for count in range(4)] == [False, True, True, False]
    assert can_take(print, 7)
    assert can_take(dict, 2)  # does not tell


def test_every_place_that_calls_what_it_is_given(broker: EmbeddedBroker) -> None:
    wanted: Any = later
    name_server = broker.name_server
    lite = LitePullConsumer("lite", name_server=name_server)
    pull = PullConsumer("pull", name_server=name_server)
    producer = Producer("makers", name_server=name_server)
    with producer, pull:
        places: list[Callable[[], object]] = [
            lambda: producer.send_async(Message("orders", b"x"), wanted),
            lambda: pull.pull_async(QUEUE, "*", 0, 1, wanted),
            lambda: pull.register_message_queue_listener("orders", wanted),
            lambda: PullConsumer("pull", name_server=name_server, queue_listener=wanted),
            lambda: LitePullConsumer("lite", name_server=name_server, queue_listener=wanted),
            lambda: lite.subscribe("orders", "*", wanted),
            lambda: lite.register_topic_message_queue_change_listener("orders", wanted),
        ]
        for place in places:
            with pytest.raises(ConfigError, match="later.*coroutine function"):
                place()
