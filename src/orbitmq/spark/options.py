"""The options of ``format("rocketmq")``: read once from Spark's strings, checked, documented."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from orbitmq.filters.tags import parse_tags
from orbitmq.net.blocking import OPEN, Access
from orbitmq.spark.offsets import EARLIEST, LATEST, Boundary, parse_boundary
from orbitmq.spark.option_values import (
    ACCESS_OPTIONS,
    Given,
    boolean,
    group_name,
    number,
    topic_name,
)
from orbitmq.spark.patience import BROKER_WAIT_MS

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group every broker has for who only looks; reads without a group of their own use it."""

READ_NAMES: Final = (
    "nameServer",
    "topic",
    "tags",
    "group",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "failOnDataLoss",
    "maxTasks",
    "idleWaitMs",
    "brokerWaitMs",
    "includeProperties",
    *ACCESS_OPTIONS,
)


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to read; each field is the option of that name."""

    name_servers: tuple[str, ...]
    """nameServer: ``host:port`` of the name servers, joined by ``;``."""
    topic: str
    """topic: what to read."""
    tags: frozenset[str] | None = None
    """tags: only messages of these, joined by ``||``. Default ``*``, all."""
    expression: str = "*"
    """The option tags as the broker wants it."""
    group: str | None = None
    """group: the consumer group that the offsets of a streaming query are committed to, for
    RocketMQ's tools to see its lag. Where the query begins does not depend on it."""
    starting_offsets: Boundary = EARLIEST
    """startingOffsets: earliest (default of a batch), latest (default of a stream) or JSON. A
    query that finds a checkpoint goes on from there instead."""
    ending_offsets: Boundary = LATEST
    """endingOffsets: latest (default), earliest or JSON. Batch only."""
    max_offsets_per_trigger: int | None = None
    """maxOffsetsPerTrigger: how many offsets one micro-batch takes at most, of all queues together.
    Default: no limit. Streams only."""
    fail_on_data_loss: bool = True
    """failOnDataLoss: whether to stop when messages to be read are gone, or go on without them."""
    max_tasks: int = 1
    """maxTasks: how many tasks read at the same time at most. Default: the driver's CPU count."""
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


def read_options(options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """The options of a read, None where it is not known yet whether of a stream or a batch.

    Raises ConfigError, naming the option, its value and what may be.
    """
    given = Given(options, "reading", READ_NAMES)
    if streaming:
        given.refuse("endingOffsets", "a stream has no end; leave the option out")
    elif streaming is not None:
        given.refuse("maxOffsetsPerTrigger", "a batch reads all; leave the option out")
        given.refuse("idleWaitMs", "a batch does not wait; leave the option out")
    expression = given.get("tags", str.strip, "*")
    begin = LATEST if streaming else EARLIEST
    return ReadOptions(
        name_servers=given.name_servers(),
        topic=given.required("topic", topic_name),
        tags=given.get("tags", parse_tags, None),
        expression=expression,
        group=given.get("group", group_name, None),
        starting_offsets=given.get("startingOffsets", _boundary("startingOffsets"), begin),
        ending_offsets=given.get("endingOffsets", _boundary("endingOffsets"), LATEST),
        max_offsets_per_trigger=given.get("maxOffsetsPerTrigger", number(1), None),
        fail_on_data_loss=given.get("failOnDataLoss", boolean, default=True),
        max_tasks=given.get("maxTasks", number(1), _cpus()),
        idle_wait_ms=given.get("idleWaitMs", number(0), 1000),
        broker_wait_ms=given.get("brokerWaitMs", number(0), BROKER_WAIT_MS),
        include_properties=given.get("includeProperties", boolean, default=False),
        access=given.access(),
    )


def _boundary(name: str) -> Callable[[str], Boundary]:
    return lambda text: parse_boundary(name, text)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
