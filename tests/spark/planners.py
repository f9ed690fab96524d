"""Planners of a query's batches, over a real topic or a broker that answers as a test says."""

from __future__ import annotations

import json
from typing import Any

from orbitmq import codes
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.planner import StreamPlanner
from orbitmq.wire.bodies import TopicOffset, TopicStatsTable
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import PullMessageRequestHeader, TopicRequestHeader
from tests.spark import topics
from tests.spark.fake_cluster import answer

Offset = dict[str, Any]


class Topic(topics.Topic):
    """A topic with the planners of its queries."""

    def planner(self, clock: Clock = SYSTEM_CLOCK, **options: str) -> StreamPlanner:
        return planner_of(self.broker.name_server, self.name, clock, **options)

    def read(self, start: Offset, end: Offset, tags: str = "*") -> list[str]:
        """What the batch between two offsets reads, as a restarted query would."""
        ranges = self.planner().ranges(start, end)
        return [view.body.decode() for view in topics.pulled(self.name, ranges, tags)]


def planner_of(
    name_server: str, topic: str, clock: Clock = SYSTEM_CLOCK, **options: str
) -> StreamPlanner:
    given = {
        "nameServer": name_server,
        "topic": topic,
        "startingOffsets": "earliest",
        "idleWaitMs": "0",
    }
    return StreamPlanner(read_options(given | options, streaming=True), clock)


def as_spark_keeps(offset: Offset) -> Offset:
    """The offset as it comes back from a checkpoint."""
    kept: Offset = json.loads(json.dumps(offset))
    return kept


class FakeTopic:
    """A broker with a queue from ``first`` to ``end``, and ``pulls`` answered as a test says.

    Its first message was stored at ``stored``, the last one a second later. Without ``tells_stats``
    it does not let anybody ask for a topic's statistics. Pulls are sent on to the broker of the id
    ``suggested``.
    """

    def __init__(self, first: int = 0, end: int = 5) -> None:
        self.first = first
        self.end = end
        self.stored = 1_000
        self.down = False
        self.deleted = False
        self.tells_stats = True
        self.suggested = 0
        self.requests: list[int] = []
        self.pulls: list[tuple[int, int]] = []
        self.asked: list[int] = []

    def __call__(self, command: RemotingCommand, connection: Connection) -> None:
        self.requests.append(command.code)
        if self.down:
            connection.close()
        elif command.code == RequestCode.GET_TOPIC_STATS_INFO:
            self._tell_stats(command, connection)
        elif command.code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            answer(command, connection, 0, {"timestamp": str(self.stored)})
        elif command.code == RequestCode.GET_MIN_OFFSET:
            answer(command, connection, 0, {"offset": str(self.first)})
        elif command.code == RequestCode.GET_MAX_OFFSET:
            answer(command, connection, 0, {"offset": str(self.end)})
        else:
            self.asked.append(command.header(PullMessageRequestHeader).queue_offset)
            code, following = self.pulls.pop(0)
            fields = {
                "nextBeginOffset": str(following),
                "minOffset": str(self.first),
                "maxOffset": str(self.end),
                "suggestWhichBrokerId": str(self.suggested),
            }
            answer(command, connection, code, fields)

    def _tell_stats(self, command: RemotingCommand, connection: Connection) -> None:
        if self.deleted:
            answer(command, connection, codes.TOPIC_NOT_EXIST)
        elif not self.tells_stats:
            answer(command, connection, codes.NO_PERMISSION)
        else:
            topic = command.header(TopicRequestHeader).topic
            offsets = TopicOffset(self.first, self.end, self.stored + 1_000)
            table = TopicStatsTable({MessageQueue(topic, "broker-0", 0): offsets})
            answer(command, connection, body=table.encode())
