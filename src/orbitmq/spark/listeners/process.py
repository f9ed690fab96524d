"""``process``: listeners, the same functions as of a push consumer, in the tasks of a stream.

A micro-batch is done when each of its messages succeeded or was taken back by a broker; then Spark
writes its commit. What was taken back comes again through the group's retry topic, which is read
beside the stream, until it goes to the dead-letter queue.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

from orbitmq.client.namespace import Namespace
from orbitmq.codes import RequestCode
from orbitmq.consumer.config import PushConfig, PushSettings, make_consumer_config
from orbitmq.consumer.hooks import ConsumeMessageHook
from orbitmq.consumer.push.listeners import Listener, ListenerFunction
from orbitmq.errors import ConfigError, NetworkError, TopicNotFoundError
from orbitmq.names import check_group, retry_topic
from orbitmq.net.blocking import CONNECTIONS, Access
from orbitmq.spark.cluster import ClusterSettings
from orbitmq.spark.listeners.figures import LocalFigures, RemoteFigures
from orbitmq.spark.listeners.task_consumer import (
    OPTIONAL_COLUMNS,
    REQUIRED_COLUMNS,
    Consumed,
    consume_rows,
)
from orbitmq.spark.source.routes import fetch_route
from orbitmq.wire.bodies import ClusterInfo, ConsumerData, HeartbeatData, MessageModel
from orbitmq.wire.running_info import ConsumeStatusInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("orbitmq.spark")

Recorder: TypeAlias = "Callable[[DataFrame, Sequence[Consumed]], None]"
_CONSUMED: Final = "topic string, ok long, failed long, calls long, took_ms long"
_QUEUE: Final = ("topic", "brokerName", "queueId")
_ROUTE_SECONDS: Final = 30


class ListenerQuery:
    """A stream whose messages listeners consume; ``query`` is Spark's, to await or to stop."""

    def __init__(
        self,
        query: StreamingQuery,
        figures: LocalFigures | RemoteFigures,
        namespace: Namespace,
    ) -> None:
        self.query = query
        self._figures = figures
        self._namespace = namespace

    def consume_status(self, topic: str) -> ConsumeStatusInfo:
        """How fast listeners consume ``topic``, in all tasks; updated as micro-batches end.

        What comes again counts for the group's retry topic. With Spark Connect this asks the
        server.
        """
        return self._figures.status(self._namespace.wrap(topic))


def process(
    stream: DataFrame,
    listener: ListenerFunction,
    *,
    group: str,
    checkpoint: str | Path,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    tasks: int | None = None,
    hooks: Sequence[ConsumeMessageHook] = (),
    **settings: Unpack[PushSettings],
) -> ListenerQuery:
    """Have the messages of ``stream``, of ``format("rocketmq")``, consumed by ``listener``.

    The listener is what a :class:`orbitmq.PushConsumer` takes: ``function(messages)`` or
    ``function(messages, context)``, plain or ``async``. It runs in Spark's tasks, in each of them
    ``consume_threads`` at once, or with ``orderly=True`` one at a time for each queue. What fails
    goes back with its delay level and comes again, through ``%RETRY%group``, which this reads too;
    after ``max_reconsume_times`` it goes to ``%DLQ%group``. A micro-batch that is interrupted is
    consumed again: at least once, as ever.

    Args:
        stream: has the columns topic, brokerName, queueId, queueOffset and body at least; what else
            a listener sees of a message is what the stream has of it. Rows that were filtered out
            are not consumed, columns of one's own are not seen.
        listener: what consumes messages.
        group: whose retry topic and dead-letter queue are used. Give the stream the same ``group``
            as an option, for tools to see its lag.
        checkpoint: the directory of Spark's checkpoint.
        trigger: arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.
        query_name: the name of Spark's query.
        tasks: over how many tasks a micro-batch is spread. Default: as it is read; in order, as
            many as Spark has cores.
        hooks: called around the listener, in the tasks; they are pickled.
        settings: of a push consumer (PushConfig), ``name_server`` among them. Those about pulling
            and sharing queues have no effect.

    Raises:
        ConfigError: a column is missing, or a setting may not be.
        NetworkError, BrokerError: the cluster does not answer, or refuses the group.
    """
    config = make_consumer_config(PushConfig, settings)
    if config.message_model is not MessageModel.CLUSTERING:
        raise ConfigError("message_model", config.message_model, "CLUSTERING: nothing else is here")
    Listener(listener)  # so that a function that cannot be one is told here
    namespace = Namespace.of(config)
    full_group = namespace.wrap(group)
    check_group(full_group)
    messages = _with_retries(_message_columns(stream), full_group, config, settings)
    figures: LocalFigures | RemoteFigures
    if _is_remote(stream):
        figures = RemoteFigures(stream.sparkSession, str(checkpoint))
        record: Recorder = figures.keeper.record
    else:
        figures = LocalFigures()
        record = figures.record
    if tasks is None and config.orderly:
        tasks = _cores(stream)
    writer = messages.writeStream.foreachBatch(
        _batch_function(
            _task_function(group, listener, tuple(hooks), settings),
            tasks,
            orderly=config.orderly,
            record=record,
        )
    ).option("checkpointLocation", str(checkpoint))
    if query_name:
        writer = writer.queryName(query_name)
    if trigger:
        writer = writer.trigger(**trigger)
    return ListenerQuery(writer.start(), figures, namespace)


def _message_columns(stream: DataFrame) -> DataFrame:
    """The columns messages are made of, by their own names."""
    there = {name.lower(): name for name in stream.columns}
    for name in REQUIRED_COLUMNS:
        if name.lower() not in there:
            raise ConfigError(
                "columns",
                ", ".join(stream.columns),
                f"listeners need {', '.join(REQUIRED_COLUMNS)}; do not drop {name}",
            )
    known = [*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS]
    return stream.select(*(stream[name].alias(name) for name in known if name.lower() in there))


def _with_retries(
    stream: DataFrame, group: str, config: PushConfig, settings: PushSettings
) -> DataFrame:
    """``stream`` and what comes again of it."""
    topic = retry_topic(group)
    make_retry_topic(config.name_servers, group, Access(config.credentials, config.tls))
    reader = stream.sparkSession.readStream.format("rocketmq")
    options = {"topic": topic, "nameServer": ";".join(config.name_servers), "group": group}
    # The stream beside it waits for messages; nothing here may wait for it in turn.
    options |= {"startingOffsets": "group", "idleWaitMs": "0"}
    for name in ClusterSettings.__annotations__:
        value = settings.get(name)
        if value is not None and name not in ("name_server", "namespace"):
            options[_camel_case(name)] = str(value).lower() if value is True else str(value)
    # What came again knows by its properties how often, and from which topic.
    retries = reader.options(**options, includeProperties="true").load()
    columns = retries.select(*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
    return stream.unionByName(columns, allowMissingColumns=True)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def make_retry_topic(name_servers: tuple[str, ...], group: str, access: Access) -> None:
    """Have the brokers make the group's retry topic, where there is none yet.

    They do when a consumer of the group makes itself known. Raises NetworkError or BrokerError.
    """
    topic = retry_topic(group)
    deadline = time.monotonic() + _ROUTE_SECONDS
    told = False
    while True:
        try:
            fetch_route(name_servers, topic, access)
            return
        except TopicNotFoundError:
            if time.monotonic() > deadline:
                raise
        if not told:
            told = True
            _introduce(name_servers, group, access)
        else:
            time.sleep(0.05)  # until the brokers told the name servers


def _introduce(name_servers: tuple[str, ...], group: str, access: Access) -> None:
    """Tell every master of a consumer of ``group`` that subscribes to nothing."""
    heartbeat = HeartbeatData(
        client_id=f"orbitmq-spark@{os.getpid()}", consumer_data_set=[ConsumerData(group)]
    )
    for address in _masters(name_servers, access):
        with CONNECTIONS.borrow(address, access) as connection:
            connection.request(RequestCode.HEART_BEAT, body=heartbeat.encode())


def _masters(name_servers: tuple[str, ...], access: Access) -> list[str]:
    failures: list[NetworkError] = []
    for name_server in name_servers:
        try:
            with CONNECTIONS.borrow(name_server, access) as connection:
                answer = connection.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        except NetworkError as error:
            failures.append(error)
            continue
        brokers = ClusterInfo.decode(answer.body).broker_addr_table.values()
        return [broker.master_address for broker in brokers if broker.master_address is not None]
    raise failures[-1]


def _cores(stream: DataFrame) -> int:
    if _is_remote(stream):
        return int(stream.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return stream.sparkSession.sparkContext.defaultParallelism


def _is_remote(stream: DataFrame) -> bool:
    """Whether by Spark Connect."""
    return type(stream).__module__.startswith("pyspark.sql.connect")


# These two make functions that Spark pickles: they keep nothing but their arguments.


def _batch_function(
    task: Callable[[Iterator[Any]], Iterator[Any]],
    tasks: int | None,
    *,
    orderly: bool,
    record: Recorder,
) -> Callable[[DataFrame, int], None]:
    def consume_batch(frame: DataFrame, batch_id: int) -> None:
        if orderly and tasks:
            frame = frame.repartition(tasks, *_QUEUE).sortWithinPartitions(*_QUEUE, "queueOffset")
        elif tasks:
            frame = frame.repartition(tasks)
        consumed = [Consumed(*row) for row in frame.mapInArrow(task, _CONSUMED).collect()]
        for one in consumed:
            log.debug("batch %d: %s", batch_id, one)
        record(frame, consumed)

    return consume_batch


def _task_function(
    group: str,
    listener: ListenerFunction,
    hooks: tuple[ConsumeMessageHook, ...],
    settings: PushSettings,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def consume_task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        consumed = consume_rows(batches, group, listener, hooks, settings)
        fields = [pa.array(column) for column in zip(*consumed, strict=True)]
        if fields:
            yield pa.RecordBatch.from_arrays(fields, names=list(Consumed._fields))

    return consume_task
