"""Plays an exchange to a broker, and writes down all that it answers.

    python -m tests.replay.player SEED DIRECTORY

The broker's store, `store`, and what each client got, `answers`, are in the directory at the end.
Time, addresses, chance and what a read brings are the exchange's, so that with one code they come
out the same each time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.server import BrokerServer
from orbitmq.net.connection import Connection
from orbitmq.store.config import StoreConfig
from orbitmq.testing.clock import ManualClock
from orbitmq.wire import ids
from tests.replay.exchange import CLIENTS, Step, exchange
from tests.waiting import until

HOST = ids.host_bytes("10.0.0.9", 10911)
STORE = StoreConfig(
    mapped_file_size=1 << 20,
    consume_queue_units=1000,
    flush_interval_ms=3_600_000,
    queue_flush_interval_ms=3_600_000,
    max_hash_slot_num=500,
    max_index_num=2_000,
)


class Client(asyncio.Transport):
    """A client's end: keeps what the broker writes."""

    def __init__(self, number: int, server: BrokerServer) -> None:
        super().__init__({"peername": (f"10.0.0.{number}", 5000 + number)})
        self.got = bytearray()
        self.connection: Connection = server._server._new_connection()
        self.connection.connection_made(self)

    def read(self, data: bytes) -> None:
        """Have the broker read ``data``, by as much as it has room for."""
        rest = memoryview(data)
        while rest and not self.connection.closed:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            self.connection.buffer_updated(count)
            rest = rest[count:]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.got += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


async def play(seed: int, directory: Path) -> None:
    """Play it all, and close the broker."""
    clock = ManualClock()
    random.seed(seed)
    generator = ids.UniqueIdGenerator(bytes(4), 1, lambda: clock.now_ms() * 1_000_000, bytes(4))
    vars(ids)["_process_generator"] = lambda: generator
    config = BrokerConfig(store_config=STORE)
    broker = Broker(config, directory / "store", HOST, clock)
    logging.disable()
    try:
        server = BrokerServer(broker)
        clients = [Client(number, server) for number in range(CLIENTS)]
        for step in exchange(seed):
            await take(step, clock, server, clients)
        (directory / "answers").write_bytes(b"".join(client.got for client in clients))
        settle(broker)
        await server.close()
    finally:
        broker.close()


async def take(step: Step, clock: ManualClock, server: BrokerServer, clients: list[Client]) -> None:
    """One step, and the end of its turn; what is done beside the loop is done before time moves."""
    if step.advance_ms or step.waits:  # queries are waited for, which tell how far the index is
        settle(server.broker)
    if step.advance_ms:
        clock.advance(step.advance_ms)
        server.run_due()
    before = len(clients[step.reads[0][0]].got) if step.waits else 0
    for number, data in step.reads:
        clients[number].read(data)
    for _ in range(3):  # the turn of the loop ends, and what that brought about
        await asyncio.sleep(0)
    server.broker.saved._writer.submit(int).result()
    if step.waits:
        number = step.reads[0][0]
        await until(lambda: len(clients[number].got) > before, "the answer")


def settle(broker: Broker) -> None:
    """Wait until all is in the key index: its files are named by the time they are made at."""
    assert broker.store.key_index is not None
    broker.store.key_index.find("any", "key", 1)


if __name__ == "__main__":
    asyncio.run(play(int(sys.argv[1]), Path(sys.argv[2])))
