"""What the broker tells of its state: 28, 303, 315, 317, 328. Follows AdminBrokerProcessor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final, cast

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer, answer_table
from orbitmq.broker.runtime_info import runtime_info
from orbitmq.broker.stats_items import Snapshot
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler, refusal
from orbitmq.wire.admin_bodies import ConsumeStats
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.operator_bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStatsList,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from orbitmq.wire.operator_headers import (
    GetConsumeStatsInBrokerHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from orbitmq.wire.registration import KVTable

_TURN_SECONDS: Final = 0.005
"""How long the progress of all groups may be looked through before others have their turn."""
_MOST_AT_ONCE: Final = 4


class StatisticsHandlers:
    """Answers tools that watch the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._operating = broker.operating
        self._under_way = 0

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.VIEW_BROKER_STATS_DATA: self._view,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_consume_stats,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    def _runtime_info(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return answer(command, KVTable(runtime_info(self._broker)))

    def _view(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        header = command.header(ViewBrokerStatsDataRequestHeader)
        name, key = header.stats_name, header.stats_key
        found = self._broker.statistics.view(name, key, self._broker.now_ms())
        if found is None:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"The stats <{name[:100]}> <{key[:300]}> not exist: nothing was counted by it in "
                "the last day",
            )
        return answer(command, BrokerStatsData(*map(_item, found)))

    def _time_spans(self, command: RemotingCommand, connection: Connection) -> None:
        header = command.header(QueryConsumeTimeSpanRequestHeader)
        topic = self._broker.topics.get(header.topic)
        if topic is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {header.topic!r}")
        spans: list[QueueTimeSpan] = []

        def steps() -> Iterator[None]:
            for queue_id in range(topic.write_queue_nums):
                spans.append(self._time_span(header.group, header.topic, queue_id))
                yield

        def body() -> Answer:
            return answer_table(command, connection, QueryConsumeTimeSpanBody(spans), len(spans))

        self._in_turns(steps(), body, command, connection)

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._broker.store
        earliest = store.earliest_timestamp(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        consumed = self._broker.offsets.query(group, topic, queue_id) or 0
        delay_ms = 0
        if consumed < end:
            stored = store.store_timestamp_at(topic, queue_id, consumed)
            delay_ms = self._broker.clock.now_ms() - stored
        return QueueTimeSpan(
            MessageQueue(topic, self._broker.config.broker_name, queue_id),
            earliest,
            store.store_timestamp_at(topic, queue_id, end - 1),
            store.store_timestamp_at(topic, queue_id, consumed - 1) if consumed > 0 else earliest,
            delay_ms,
        )

    def _all_consume_stats(self, command: RemotingCommand, connection: Connection) -> None:
        """The progress of all groups, looked through in turns of the loop."""
        header = command.header(GetConsumeStatsInBrokerHeader)
        found: list[dict[str, list[ConsumeStats]]] = []
        self._in_turns(
            self._look_through(found, ordered_only=header.is_order),
            lambda: self._consume_stats_answer(command, connection, found),
            command,
            connection,
        )

    def _in_turns(
        self,
        steps: Iterator[None],
        result: Callable[[], Answer],
        command: RemotingCommand,
        connection: Connection,
    ) -> None:
        """Take ``steps``, letting others have their turns between, then answer with ``result``."""
        if self._under_way >= _MOST_AT_ONCE:
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"{self._under_way} long statistics are being made already: ask again when they "
                "are done",
            )
        self._under_way += 1
        self._go_on(steps, result, command, connection)

    def _go_on(
        self,
        steps: Iterator[None],
        result: Callable[[], Answer],
        command: RemotingCommand,
        connection: Connection,
    ) -> None:
        until = perf_counter() + _TURN_SECONDS
        try:
            for _ in steps:
                if connection.closed:
                    break
                if perf_counter() > until:
                    loop = asyncio.get_running_loop()
                    loop.call_soon(self._go_on, steps, result, command, connection)
                    return
            answered = result()
        except Exception as error:  # noqa: BLE001 - it is answered, and logged there
            answered = refusal(command, connection, error)
        self._under_way -= 1
        if answered is not None:
            connection.send(*([answered] if isinstance(answered, bytes) else answered))

    def _look_through(
        self, found: list[dict[str, list[ConsumeStats]]], *, ordered_only: bool
    ) -> Iterator[None]:
        """Add each group's progress to ``found``; a step is one of its topics."""
        broker, statistics = self._broker, self._broker.statistics
        for group in list(broker.groups.groups):
            stats: list[ConsumeStats] = []
            found.append({group: stats})
            for topic in self._operating.consumed_topics(group):
                known = broker.topics.get(topic)
                if known is not None and (known.order or not ordered_only):
                    progress = self._operating.progress(group, [topic])
                    tps = statistics.consume_tps(group, topic, broker.now_ms())
                    stats.append(ConsumeStats(progress, tps))
                yield

    def _consume_stats_answer(
        self,
        command: RemotingCommand,
        connection: Connection,
        found: list[dict[str, list[ConsumeStats]]],
    ) -> Answer:
        offsets = [
            offset
            for groups in found
            for stats in groups.values()
            for each in stats
            for offset in each.offset_table.values()
        ]
        body = ConsumeStatsList(
            found,
            f"{self._broker.ip}:{self._broker.port}",
            sum(offset.broker_offset - offset.consumer_offset for offset in offsets),
            sum(offset.pull_offset - offset.consumer_offset for offset in offsets),
        )
        return answer_table(command, connection, body, len(offsets))

    def _all_producers(self, command: RemotingCommand, connection: Connection) -> Answer:
        broker = self._broker
        to_wall_ms = broker.clock.now_ms() - broker.now_ms()
        data = {
            group: [
                ProducerInfo(
                    client.client_id,
                    cast("Connection", member).peer,
                    client.language if isinstance(client.language, str) else "OTHER",
                    client.version,
                    client.seen_ms + to_wall_ms,
                )
                for member, client in members.items()
            ]
            for group, members in broker.producers.groups.items()
        }
        entries = sum(map(len, data.values()))
        return answer_table(command, connection, ProducerTableInfo(data), entries)


def _item(snapshot: Snapshot) -> BrokerStatsItem:
    return BrokerStatsItem(snapshot.sum, snapshot.tps, snapshot.average)
