"""Committed offsets survive a broker that is killed: all but those of the last interval."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitmq import codes
from orbitmq.broker.offsets import SEPARATOR
from orbitmq.codes import RequestCode
from orbitmq.store.config_file import ConfigFile
from orbitmq.wire.bodies import ConsumerOffsetSerializeWrapper
from tests.broker.remote import Client, connect

INTERVAL_MS = 100
BROKER = """
import sys, threading
from orbitmq.broker.embedded import EmbeddedBroker
with EmbeddedBroker(sys.argv[1], offset_save_interval_ms=int(sys.argv[2])) as broker:
    print(broker.address, flush=True)
    threading.Event().wait()
"""


@contextmanager
def broker(store: Path) -> Iterator[str]:
    """A broker in a process of its own, killed in the end; its address."""
    command = [sys.executable, "-c", BROKER, str(store), str(INTERVAL_MS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def saved(store: Path) -> int:
    """The offset in the file; -1 before the first."""
    content = ConfigFile(store / "config" / "consumerOffset.json").load()
    if content is None:
        return -1
    table = ConsumerOffsetSerializeWrapper.decode(content).offset_table
    return table["T" + SEPARATOR + "g"][0]


async def commit(client: Client, offset: int) -> None:
    answer = await client.call(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": str(offset)},
    )
    assert answer.code == codes.SUCCESS


async def committed(client: Client) -> int:
    answer = await client.call(
        RequestCode.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "T", "queueId": "0", "setZeroIfNotFound": "false"},
    )
    return int(answer.ext_fields["offset"]) if answer.code == codes.SUCCESS else -1


def test_a_killed_broker_loses_at_most_the_commits_of_an_interval(tmp_path: Path) -> None:
    async def commit_until_saved(address: str, offset: int, times: int) -> tuple[int, int]:
        """Commits one after the other while the file follows; the last saved and the last."""
        client = await connect(address)
        await client.send("T")
        await client.heartbeat("g", "T")
        assert await committed(client) <= offset
        seen = set[int]()
        async with asyncio.timeout(20):
            while len(seen) < times:
                offset += 1
                await commit(client, offset)
                seen.add(saved(tmp_path))
        client.close()
        return max(seen), offset

    async def recovered(address: str) -> int:
        client = await connect(address)
        offset = await committed(client)
        client.close()
        return offset

    last = 0
    for _ in range(3):
        with broker(tmp_path) as address:
            on_disk, last = asyncio.run(commit_until_saved(address, last, times=4))
        with broker(tmp_path) as address:
            assert on_disk <= asyncio.run(recovered(address)) <= last
