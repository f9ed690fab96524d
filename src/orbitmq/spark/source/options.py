"""The options of ``format("rocketmq")``: read once from Spark's strings, checked, documented."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from orbitmq.client.namespace import with_namespace
from orbitmq.errors import ConfigError
from orbitmq.filters.sql92 import compile_sql
from orbitmq.filters.tags import parse_tags
from orbitmq.net.blocking import OPEN, Access
from orbitmq.spark.option_values import (
    ACCESS_OPTIONS,
    Given,
    boolean,
    duration_ms,
    group_name,
    namespace_name,
    number,
    one_of,
    size_bytes,
)
from orbitmq.spark.patience import BROKER_WAIT_MS
from orbitmq.spark.source.boundaries import (
    EARLIEST,
    GROUP,
    LATEST,
    Boundary,
    parse_offsets,
    parse_time,
    parse_times,
)
from orbitmq.spark.source.choice import (
    Choice,
    parse_assign,
    parse_pattern,
    parse_topic,
    parse_topics,
)
from orbitmq.spark.source.planning import TaskLimits

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group every broker has for who only looks; reads without a group of their own use it."""

_CHOICES: Final = {
    "topic": parse_topic,
    "topics": parse_topics,
    "subscribePattern": parse_pattern,
    "assign": parse_assign,
}
"""What is read: one of these."""
_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_OF_STREAMS: Final = {
    "newQueueOffsets": "a batch meets no new queues",
    "minOffsetsPerTrigger": "a batch reads all",
    "maxOffsetsPerTrigger": "a batch reads all",
    "minBytesPerTrigger": "a batch reads all",
    "maxBytesPerTrigger": "a batch reads all",
    "maxTriggerDelay": "a batch does not wait",
    "idleWaitMs": "a batch does not wait",
}

_OF_BATCHES: Final = {
    **dict.fromkeys(_ENDS, "a stream has no end"),
    "pushFilters": "Spark hands no filters to streams",
}

READ_NAMES: Final = (
    "nameServer",
    "profile",
    "namespace",
    *_CHOICES,
    "tags",
    "sql",
    "group",
    *_STARTS,
    "startingOffsetsByTimestampStrategy",
    *_OF_BATCHES,
    "failOnDataLoss",
    *_OF_STREAMS,
    "maxTasks",
    "minPartitions",
    "maxRecordsPerPartition",
    "splitQueues",
    "brokerWaitMs",
    "includeProperties",
    *ACCESS_OPTIONS,
)


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """How much one micro-batch of a stream takes, of all queues together."""

    min_offsets: int | None = None
    """minOffsetsPerTrigger: a micro-batch waits until there are as many, or max_delay_ms."""
    max_offsets: int | None = None
    """maxOffsetsPerTrigger. Default: no limit."""
    min_bytes: int | None = None
    """minBytesPerTrigger, by the size of the next messages, as max_bytes."""
    max_bytes: int | None = None
    """maxBytesPerTrigger: about how many bytes of records. Brokers do not tell how many bytes lie
    between two offsets, so messages are reckoned to be as large as the next few are."""
    max_delay_ms: int = 900_000
    """maxTriggerDelay: how long after the last one a micro-batch comes in any case that is smaller
    than the least. Default: 15 minutes."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to read; each field is the option of that name."""

    name_servers: tuple[str, ...]
    """nameServer: ``host:port`` of the name servers, joined by ``;``. profile: where this and other
    options come from that are not given, see :mod:`orbitmq.spark.profiles`."""
    namespace: str | None = None
    """namespace: of the topics and the group, which are named without it."""
    choice: Choice
    """topic; topics: several, joined by ``,``; subscribePattern: a regular expression that the
    whole name of a topic matches, new ones being found while a stream runs; assign: queues as JSON.
    One of these is required."""
    tags: frozenset[str] | None = None
    """tags: only messages of these, joined by ``||``. Default ``*``, all."""
    expression: str = "*"
    """The option tags or sql as the broker wants it."""
    expression_type: str = "TAG"
    """SQL92 with the option sql: only messages whose properties meet this condition."""
    group: str | None = None
    """group: the consumer group that the offsets of a streaming query are committed to, for
    RocketMQ's tools to see its lag. Where the query begins does not depend on it, but with
    startingOffsets=group."""
    starting_offsets: Boundary = EARLIEST
    """startingOffsets: earliest (default of a batch), latest (default of a stream), group, ``-100``
    for the last of each queue, ``-10m`` for the last ten minutes, or JSON. startingTimestamp: the
    first message stored then or later. startingOffsetsByTimestamp: the same by queue, as JSON. A
    query that finds a checkpoint goes on from there instead."""
    late_start_is_error: bool = False
    """startingOffsetsByTimestampStrategy: ``latest`` (default) or ``error`` for a queue without a
    message of startingTimestamp or later."""
    ending_offsets: Boundary = LATEST
    """endingOffsets, endingTimestamp, endingOffsetsByTimestamp: likewise; latest by default. Batch
    only."""
    push_filters: bool = False
    """pushFilters: whether Spark's own filters on queueId, queueOffset, storeTimestamp, tags and
    keys decide what is read; see :mod:`orbitmq.spark.source.pushdown`. Batch only."""
    new_queue_offsets: Literal["earliest", "latest"] = EARLIEST
    """newQueueOffsets: where queues and topics are read from that appear while a stream runs, or
    while it is stopped: earliest (default) or latest."""
    admission: Admission = Admission()
    """minOffsetsPerTrigger, maxOffsetsPerTrigger, minBytesPerTrigger, maxBytesPerTrigger,
    maxTriggerDelay. Streams only."""
    fail_on_data_loss: bool = True
    """failOnDataLoss: whether to stop when messages to be read are gone, or go on without them."""
    tasks: TaskLimits = TaskLimits()
    """maxTasks: how many tasks read at the same time at most; default: the driver's CPU count.
    minPartitions: how many there are at least. maxRecordsPerPartition: how many offsets one reads
    at most. splitQueues: whether several tasks may share a queue; default true in a batch, false
    in a stream unless one of the two before is given."""
    idle_wait_ms: int = 1000
    """idleWaitMs: how long, at most, an idle stream waits for messages before it tells Spark that
    there are none. A message ends the wait. 0 does not wait. Streams only."""
    broker_wait_ms: int = BROKER_WAIT_MS
    """brokerWaitMs: how long a task waits for a broker that does not answer, such as one that is
    started again, before it fails. Counted from the last answer."""
    include_properties: bool = False
    """includeProperties: whether to read all columns, msgId, offsetMsgId, flag, reconsumeTimes and
    properties among them, where the query names no schema. Default false: they take time."""
    access: Access = OPEN
    """accessKey, secretKey, securityToken: who signs the requests, for brokers with ACL on.
    useTls (default false), tlsCaFile, tlsCertFile, tlsKeyFile, tlsKeyPassword: how connections are
    encrypted; the files are PEM, at the same path on the driver and every executor."""

    @property
    def reading_group(self) -> str:
        """The group to pull with."""
        return self.group or TOOLS_GROUP

    def wire_topic(self, topic: str) -> str:
        """The name by which brokers know ``topic``."""
        return with_namespace(self.namespace, topic)


def read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of a read, None where it is not known yet whether of a stream or a batch.

    Raises ConfigError, naming the option, its value and what may be.
    """
    given = Given(options, "reading", READ_NAMES)
    if streaming:
        for name, reason in _OF_BATCHES.items():
            given.refuse(name, f"{reason}; leave the option out")
    elif streaming is not None:
        for name, reason in _OF_STREAMS.items():
            given.refuse(name, f"{reason}; leave the option out")
    choice = _choice(given)
    expression, expression_type, tags = _filter(given)
    namespace = given.get("namespace", namespace_name, None)
    group = given.get("group", group_name, None)
    starting = _boundary(given, _STARTS, choice, LATEST if streaming else EARLIEST)
    if starting == GROUP and group is None:
        raise ConfigError("startingOffsets", GROUP, "give the option group, whose offsets they are")
    return ReadOptions(
        name_servers=given.name_servers(),
        namespace=namespace,
        choice=choice,
        tags=tags,
        expression=expression,
        expression_type=expression_type,
        group=group and with_namespace(namespace, group),
        starting_offsets=starting,
        late_start_is_error=given.get(
            "startingOffsetsByTimestampStrategy", one_of("latest", "error"), "latest"
        )
        == "error",
        ending_offsets=_boundary(given, _ENDS, choice, LATEST),
        push_filters=given.get("pushFilters", boolean, default=False),
        new_queue_offsets=given.get("newQueueOffsets", one_of(EARLIEST, LATEST), EARLIEST),
        admission=_admission(given),
        fail_on_data_loss=given.get("failOnDataLoss", boolean, default=True),
        tasks=_tasks(given, streaming=bool(streaming)),
        idle_wait_ms=given.get("idleWaitMs", number(0), 1000),
        broker_wait_ms=given.get("brokerWaitMs", number(0), BROKER_WAIT_MS),
        include_properties=given.get("includeProperties", boolean, default=False),
        access=given.access(),
    )


def _choice(given: Given) -> Choice:
    given.only_one(*_CHOICES)
    for name, parse in _CHOICES.items():
        if name in given:
            choice: Choice = given.get(name, parse, None)
            return choice
    raise ConfigError(
        "topic",
        None,
        'the option is required: .option("topic", ...), or topics, subscribePattern or assign',
    )


def _filter(given: Given) -> tuple[str, str, frozenset[str] | None]:
    """The expression for brokers, its type, and the tags that tasks compare themselves."""
    given.only_one("sql", "tags")
    if "sql" in given:
        return given.get("sql", _sql, ""), "SQL92", None
    return given.get("tags", str.strip, "*"), "TAG", given.get("tags", parse_tags, None)


def _boundary(
    given: Given, names: tuple[str, str, str], choice: Choice, default: Boundary
) -> Boundary:
    given.only_one(*names)
    time, times, offsets = names
    topic = choice.only_topic
    found: Boundary | None = given.get(time, parse_time, None)
    found = found or given.get(times, lambda text: parse_times(times, text, topic), None)
    return found or given.get(offsets, lambda text: parse_offsets(offsets, text, topic), default)


def _admission(given: Given) -> Admission:
    admission = Admission(
        min_offsets=given.get("minOffsetsPerTrigger", number(1), None),
        max_offsets=given.get("maxOffsetsPerTrigger", number(1), None),
        min_bytes=given.get("minBytesPerTrigger", size_bytes, None),
        max_bytes=given.get("maxBytesPerTrigger", size_bytes, None),
        max_delay_ms=given.get("maxTriggerDelay", duration_ms, 900_000),
    )
    for unit, least, most in (
        ("Offsets", admission.min_offsets, admission.max_offsets),
        ("Bytes", admission.min_bytes, admission.max_bytes),
    ):
        if least is not None and most is not None and least > most:
            raise ConfigError(f"min{unit}PerTrigger", least, f"no more than max{unit}PerTrigger")
    if "maxTriggerDelay" in given and admission.min_offsets is admission.min_bytes is None:
        given.refuse("maxTriggerDelay", "it has no effect without a least, minOffsetsPerTrigger")
    return admission


def _tasks(given: Given, *, streaming: bool) -> TaskLimits:
    least = given.get("minPartitions", number(1), 1)
    most_rows = given.get("maxRecordsPerPartition", number(1), None)
    splits = not streaming or least > 1 or most_rows is not None
    splits = given.get("splitQueues", boolean, splits)
    if not splits and most_rows is not None:
        given.refuse("splitQueues", "maxRecordsPerPartition splits queues; leave one of them out")
    return TaskLimits(
        most=given.get("maxTasks", number(1), _cpus()),
        least=least,
        most_rows=most_rows,
        split_queues=splits,
    )


def _sql(text: str) -> str:
    if ignored := compile_sql(text).ignored:
        raise ValueError(f"one whole condition: brokers would ignore {ignored!r}")
    return text


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
