"""Spark's workers acknowledge their tasks at once, and look through no imports for garbage."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import weakref
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from orbitmq.spark import prompt
from orbitmq.spark.data_source import RocketMQDataSource
from orbitmq.spark.prompt import ImportedObjects, Prompt, acknowledge_at_once
from orbitmq.spark.sink.options import write_options
from orbitmq.spark.sink.writer import RocketMQStreamWriter, RocketMQWriter
from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.reader import RocketMQReader
from orbitmq.spark.source.schema import READ_SCHEMA
from orbitmq.spark.source.stream_reader import RocketMQStreamReader

OPTIONS = {"nameServer": "127.0.0.1:9876", "topic": "T"}
BODY = StructType([StructField("body", BinaryType())])

only_linux = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK"
)


@pytest.fixture
def late() -> Iterator[socket.socket]:
    """A connection whose acknowledgments are put off."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0],
    ):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not quick(one)
        yield one


def quick(one: socket.socket) -> int:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


@only_linux
@pytest.mark.parametrize(
    "made",
    [
        RocketMQDataSource(OPTIONS),
        RocketMQReader(READ_SCHEMA, read_options(OPTIONS, streaming=False)),
        RocketMQStreamReader(READ_SCHEMA, read_options(OPTIONS, streaming=True)),
        RocketMQWriter(BODY, write_options(OPTIONS), overwrite=False),
        RocketMQStreamWriter(BODY, write_options(OPTIONS)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_what_a_worker_unpickles_has_it_acknowledge(late: socket.socket, made: Prompt) -> None:
    again = pickle.loads(pickle.dumps(made))
    assert quick(late)
    assert again.__dict__.keys() == made.__dict__.keys()


@only_linux
def test_other_sockets_stay_as_they_are(late: socket.socket) -> None:
    socket.setdefaulttimeout(5)
    try:
        local, other = socket.socketpair()
        with local, other, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            local.setblocking(True)
            late.setblocking(True)
            assert acknowledge_at_once() >= 2  # both ends of the connection
            assert os.get_blocking(local.fileno())
            assert os.get_blocking(late.fileno())
            assert datagrams.fileno() >= 0
    finally:
        socket.setdefaulttimeout(None)


def test_where_linux_is_not_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "_QUICK_ACK", None)
    assert acknowledge_at_once() == 0


class Cycle:
    """Only a collection finds that nobody needs it."""

    def __init__(self) -> None:
        self.itself = self


def collected(cycle: weakref.ref[Cycle]) -> bool:
    gc.collect()
    return cycle() is None


@pytest.fixture
def reused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker that serves one task after another, and collects garbage only between them."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("reused")
def test_what_the_first_tasks_leave_is_not_looked_through_again() -> None:
    imported = ImportedObjects()
    for _ in range(2):
        known = weakref.ref(Cycle())
        imported.leave_out_of_collections()
        assert not collected(known)


@pytest.mark.usefixtures("reused")
def test_what_later_tasks_leave_is_collected() -> None:
    imported = ImportedObjects()
    for _ in range(2):
        imported.leave_out_of_collections()
    for _ in range(3):
        later = weakref.ref(Cycle())
        imported.leave_out_of_collections()
        assert collected(later)


def test_a_process_that_is_no_reused_worker_collects_as_ever() -> None:
    known = weakref.ref(Cycle())
    imported = ImportedObjects()
    imported.leave_out_of_collections()
    assert collected(known)


@pytest.mark.usefixtures("reused")
def test_what_a_worker_unpickles_has_imports_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "_IMPORTED", ImportedObjects())
    gc.unfreeze()
    pickle.loads(pickle.dumps(RocketMQStreamWriter(BODY, write_options(OPTIONS))))
    assert gc.get_freeze_count() > 1000
