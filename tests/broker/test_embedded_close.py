"""How an embedded broker ends: closed with or without success, and in a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import StoreError
from tests.broker.remote import SMALL_STORE
from tests.broker.test_embedded import ask

FORKING = """
import os, sys
from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.errors import ClientStateError, StoreError
from tests.broker.remote import SMALL_STORE
from tests.store.support import draft

broker = EmbeddedBroker(sys.argv[1], store_config=SMALL_STORE).start()
address = broker.name_server
with Producer("p", name_server=address) as producer:
    producer.send(Message("T", b"before"))
store = broker.call(lambda node: node.broker.store)
if os.fork() == 0:
    broker.close()
    broker.close()
    for use in (lambda: broker.name_server, lambda: broker.call(print), broker.run_due):
        try:
            use()
        except ClientStateError:
            pass
        else:
            print("used by the child", flush=True)
    for use in (lambda: store.append(draft(b"child")), lambda: store.delete_topic("T")):
        try:
            use()
        except StoreError:
            pass
        else:
            print("changed by the child", flush=True)
    store.write()
    store.close()
    sys.stdin.read()  # lives on
    os._exit(0)
with Producer("p2", name_server=address) as producer:
    producer.send(Message("T", b"after"))
print(broker.address.split(":")[1], flush=True)
if sys.argv[2] == "close":
    broker.close()
    print("closed", flush=True)
    os._exit(0)
os.kill(os.getpid(), 9)
"""


@contextmanager
def forked(store: Path, end: str) -> Iterator[int]:
    """The port of a broker that has ended since, while its forked child lives."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(store), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": "src:."},
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        line = process.stdout.readline()
        assert line.strip().isdigit(), line
        process.wait(timeout=30)
        yield int(line)
        process.stdin.close()  # ends the child
        assert process.stdout.read() == ("closed\n" if end == "close" else "")
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_forked_child_keeps_neither_store_nor_port_and_changes_nothing(
    tmp_path: Path, end: str
) -> None:
    with (
        forked(tmp_path, end) as port,
        EmbeddedBroker(tmp_path, port=port, store_config=SMALL_STORE) as broker,
    ):
        sizes = broker.call(
            lambda node: [node.broker.store.max_offset("T", queue_id) for queue_id in range(8)]
        )
        assert sum(sizes) == 2


def test_a_close_that_cannot_save_its_tables_says_which(tmp_path: Path) -> None:
    threads = threading.active_count()
    broker = EmbeddedBroker(tmp_path, store_config=SMALL_STORE).start()
    ask(broker, b"kept")
    broker.call(lambda node: node.broker.offsets.commit("g", "T", 0, 1))
    (tmp_path / "config" / "consumerOffset.json.tmp").mkdir()  # no file can be made there now
    with pytest.raises(StoreError, match=r"consumer offsets could not be saved in .*config"):
        broker.close()
    broker.close()
    assert threading.active_count() == threads
    (tmp_path / "config" / "consumerOffset.json.tmp").rmdir()
    with broker:  # it was stopped, and its store given back
        assert ask(broker) == [b"kept"]


def test_a_close_that_cannot_bring_the_store_to_the_disk_raises(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, store_config=SMALL_STORE).start()
    ask(broker, b"x")
    (tmp_path / "checkpoint").unlink(missing_ok=True)
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(StoreError, match="cannot close the store"):
        broker.close()
    broker.close()
    (tmp_path / "checkpoint").rmdir()
    with broker:
        assert ask(broker) == [b"x"]


def test_a_broker_whose_disk_works_has_no_flush_failure() -> None:
    with EmbeddedBroker() as broker:
        assert broker.flush_failure == ""
