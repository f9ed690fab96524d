"""A table in config/ that is damaged in any way gives way to its last version, and that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.codes import RequestCode
from orbitmq.wire.headers import UpdateConsumerOffsetRequestHeader
from tests.broker.remote import Client, Running, bodies, running

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "garbage": lambda content: b"\xff\xfe" + content[2:],
    "another form": lambda _: b"[1, 2]",
}
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


async def change(node: Running, client: Client, number: int) -> None:
    """Let every table change."""
    await client.heartbeat(f"g{number}", f"T{number}")
    await client.send(f"T{number}", b"now")
    await client.send(f"T{number}", b"later", properties={"DELAY": "1"})
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=f"g{number}", topic=f"T{number}", queue_id=0, commit_offset=1
    )
    await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    node.advance(1_000)
    assert node.broker.store.max_offset(f"T{number}", 0) == 2


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        *((table, "garbage") for table in TABLES),
        *(("topics.json", damage) for damage in DAMAGES if damage != "garbage"),
    ],
)
def test_the_last_version_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, damage: str
) -> None:
    async def main() -> None:
        for number in range(3):
            async with running(tmp_path) as node:
                await change(node, await node.connect(), number)
        file = tmp_path / "config" / table
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
        async with running(tmp_path) as node:
            assert table in caplog.text
            for number in range(2):
                assert node.broker.topics.get(f"T{number}") is not None
                assert node.broker.groups.find(f"g{number}") is not None
                assert node.broker.offsets.query(f"g{number}", f"T{number}", 0) == 1
            client = await node.connect()
            for number in range(3):
                await client.send(f"T{number}", b"next")
                found = bodies(await client.pull(f"T{number}"))
                assert set(found) == {b"now", b"later", b"next"}

    asyncio.run(main())
