"""What runs beside everything else: its failure is told, and it ends when told to."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.client.background import Background


def test_what_fails_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise KeyError("lost")

    async def scenario() -> None:
        background = Background(fail(), "the upkeep of g")
        await background.stop()
        background = Background(fail(), "the upkeep of h")
        while not caplog.records:  # noqa: ASYNC110 - only a turn or two of the loop
            await asyncio.sleep(0)
        await background.stop()

    with caplog.at_level(logging.ERROR, "orbitmq.client"):
        asyncio.run(scenario())
    (record,) = caplog.records
    assert record.getMessage().startswith("the upkeep of h ended by an error")
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


def test_stopping_waits_until_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async def scenario() -> None:
        background = Background(forever(), "the upkeep of g")
        await asyncio.sleep(0)
        await background.stop()
        assert ended == [True]

    asyncio.run(scenario())
    assert caplog.records == []
