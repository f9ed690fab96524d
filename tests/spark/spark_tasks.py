"""The writer's objects, driven as Spark does: made anew, pickled, and given a task's rows."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from orbitmq.errors import ConnectionLostError
from orbitmq.net.blocking import (
    OPEN,
    REQUEST_TIMEOUT_MS,
    Access,
    BlockingConnection,
    ConnectionCache,
)
from orbitmq.spark.sink import decisions, delivery, lease, ledger, sending, staging, writer
from orbitmq.spark.sink.lanes import Lane
from orbitmq.spark.sink.options import write_options
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.message_view import MessageView

SCHEMA = StructType().add("body", BinaryType()).add("shardingKey", StringType())


class Killed(BaseException):
    """The task's process ends here."""


class Query:
    """A streaming query with a sink; each batch is made of partitions of Arrow batches."""

    def __init__(
        self, patch: pytest.MonkeyPatch, schema: StructType = SCHEMA, **options: str
    ) -> None:
        self._patch = patch
        self._schema = schema
        self._options = options
        self._properties: dict[str, str] = {"sql.streaming.queryId": "q-1"}
        self.partition = 0
        patch.setattr(writer, "TaskContext", self)

    def get(self) -> Query:
        """TaskContext.get()."""
        return self

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties.get(name)

    def new_writer(self) -> writer.RocketMQStreamWriter:
        return writer.RocketMQStreamWriter(self._schema, write_options(self._options))

    def plan(self, batch_id: int) -> bytes:
        """The pickled writer of one run of a micro-batch."""
        self._properties["streaming.sql.batchId"] = str(batch_id)
        return pickle.dumps(self.new_writer())

    def task(self, plan: bytes, partition: int, batches: Iterable[Any]) -> WriterCommitMessage:
        """One attempt of a task, and its commit message as the driver gets it."""
        self.partition = partition
        message = pickle.loads(plan).write(iter(batches))
        return cast(WriterCommitMessage, pickle.loads(pickle.dumps(message)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """What Spark has done on the driver when all tasks have succeeded."""
        self.new_writer().commit(list(messages), batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """What it has done when one has not, or the commit failed."""
        self.new_writer().abort(list(messages), batch_id)


def rows(bodies: Iterable[str], key: str | None = None) -> Any:
    values = [body.encode() for body in bodies]
    keys = pa.array([key] * len(values), pa.string())
    return pa.RecordBatch.from_pydict({"body": pa.array(values, pa.binary()), "shardingKey": keys})


def killed_after(batches: Iterable[Any]) -> Iterator[Any]:
    """These batches, and then the process is gone."""
    yield from batches
    raise Killed


def killed_while_delivering(patch: pytest.MonkeyPatch, batches: int) -> None:
    """The driver is gone when it has sent some staged batches."""
    lane_of = delivery.Delivery._lane
    count = 0

    def lane(self: delivery.Delivery, topic: str, number: int) -> Lane:
        nonlocal count
        count += 1
        if count > batches:
            raise Killed
        return lane_of(self, topic, number)

    patch.setattr(delivery.Delivery, "_lane", lane)


class FlakyConnections(ConnectionCache):
    """Connections of which some break when an answer comes, with the answer lost."""

    def __init__(self, patch: pytest.MonkeyPatch, chance: float, seed: int = 0) -> None:
        super().__init__()
        for module in (sending, staging, decisions, lease, ledger):
            patch.setattr(module, "CONNECTIONS", self)
        self.broken = 0
        self._chance = chance
        self._random = random.Random(seed)

    def take(self, address: str, access: Access = OPEN) -> BlockingConnection:
        connection = super().take(address, access)
        if "receive" in vars(connection):
            return connection
        receive = connection.receive_ready

        def receive_ready() -> Iterator[RemotingCommand]:
            answers = list(receive())
            if answers and self._random.random() < self._chance:
                self.broken += 1
                connection.close()
                raise ConnectionLostError("the network broke", address)
            yield from answers

        one = connection.receive

        def one_or_none(timeout_ms: int = REQUEST_TIMEOUT_MS) -> RemotingCommand:
            answer = one(timeout_ms)
            if self._random.random() < self._chance / 20:
                self.broken += 1
                connection.close()
                raise ConnectionLostError("the network broke", address)
            return answer

        vars(connection).update(receive_ready=receive_ready, receive=one_or_none)
        return connection


class Asked:
    """A half message as a broker asks about it: of its own topic."""

    def __init__(self, view: MessageView, topic: str) -> None:
        self.topic = topic
        self.property = view.property
        self.message_id = view.message_id
