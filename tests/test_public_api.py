"""The faces of all clients are of one style: time-outs in seconds, closed as Python does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import aclosing, closing
from typing import Any

import pytest

import orbitmq
from orbitmq import (
    Admin,
    AsyncAdmin,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPullConsumerScheduleService,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ClientStateError,
    ConfigError,
    EmbeddedBroker,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PullConsumerScheduleService,
    PushConsumer,
    TransactionProducer,
)

BLOCKING = [
    Admin,
    Producer,
    TransactionProducer,
    LitePullConsumer,
    PushConsumer,
    PullConsumer,
    PullConsumerScheduleService,
]
ASYNC = [
    AsyncAdmin,
    AsyncProducer,
    AsyncTransactionProducer,
    AsyncLitePullConsumer,
    AsyncPushConsumer,
    AsyncPullConsumer,
    AsyncPullConsumerScheduleService,
]


def listen(messages: object) -> None:
    """Consume nothing."""


def make(face: Callable[..., Any], broker: EmbeddedBroker) -> Any:
    arguments = {"listener": listen} if "PushConsumer" in face.__name__ else {}
    group = () if "Admin" in face.__name__ else ("everyone",)
    return face(*group, name_server=broker.name_server, **arguments)


@pytest.mark.parametrize("face", [*BLOCKING, *ASYNC, EmbeddedBroker])
def test_calls_take_time_outs_in_seconds(face: type) -> None:
    for name, method in inspect.getmembers(face, inspect.isfunction):
        if not name.startswith("_"):
            wrong = [each for each in inspect.signature(method).parameters if "timeout_" in each]
            assert not wrong, f"{face.__name__}.{name}"


@pytest.mark.parametrize("pair", [*zip(BLOCKING, ASYNC, strict=True)])
def test_both_faces_have_the_same_calls(pair: tuple[type, type]) -> None:
    """But for what waits in another way: callbacks and futures, iteration, wait()."""
    others = {"close", "aclose", "send_async", "request_async", "pull_async", "wait"}
    blocking, asynchronous = ({name for name in dir(face) if name[0] != "_"} for face in pair)
    assert blocking ^ asynchronous <= others


@pytest.mark.parametrize("face", BLOCKING)
def test_closing_shuts_down(broker: EmbeddedBroker, face: type[Any]) -> None:
    with closing(make(face, broker)) as client:
        client.start()
    with pytest.raises(ClientStateError, match="shut down"):
        client.start()


@pytest.mark.parametrize("face", ASYNC)
def test_aclosing_shuts_down(broker: EmbeddedBroker, face: type[Any]) -> None:
    async def main() -> None:
        async with aclosing(make(face, broker)) as client:
            await client.start()
        with pytest.raises(ClientStateError, match="shut down"):
            await client.start()

    asyncio.run(main())


@pytest.mark.parametrize("face", [PushConsumer, PullConsumerScheduleService])
def test_a_shutdown_takes_seconds_and_none_too(broker: EmbeddedBroker, face: type[Any]) -> None:
    with make(face, broker) as consumer:
        with pytest.raises(ConfigError, match="timeout=-1.*seconds"):
            consumer.shutdown(timeout=-1)
        assert not consumer.wait(timeout=0), "it goes on"
        consumer.shutdown(timeout=0)
        assert consumer.wait(timeout=0)


def test_all_faces_are_looked_at() -> None:
    faces = {face.__name__ for face in [*BLOCKING, *ASYNC]}
    named = {
        name
        for name in orbitmq.__all__
        if name.endswith(("Admin", "Producer", "Consumer", "Service"))
    }
    assert faces == named
