"""Queries: 12 (messages by key) and 321 (entries of a consume queue)."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer
from orbitmq.broker.queries import KeyQuery
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler, refusal
from orbitmq.store.key_index import KeyMatches
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
)

log = logging.getLogger("orbitmq.broker")

_MOST_AT_ONCE: Final = 64
_NOT_FOUND: Final = "can not find message, maybe time range not correct"


class QueryHandlers:
    """Translates to and from :class:`~orbitmq.broker.queries.Queries`.

    Keys are looked up beside the loop, a bounded number at a time.
    """

    def __init__(self, broker: Broker) -> None:
        self._queries = broker.queries
        self._running = 0

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.QUERY_CONSUME_QUEUE: self._consume_queue,
        }

    def _query(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(QueryMessageRequestHeader)
        query = KeyQuery(
            header.topic,
            header.key,
            header.max_num,
            header.begin_timestamp,
            header.end_timestamp,
            (header.unique_key_query or "").lower() == "true",
            header.index_type or "",
        )
        self._queries.check(query)
        if self._running >= _MOST_AT_ONCE:
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"{self._running} queries by key are being carried out already: try again",
            )
        newest = self._queries.newest(query)
        self._running += 1

        def done(search: Future[KeyMatches]) -> None:
            self._running -= 1
            try:
                connection.send(*self._found(command, search.result()))
            except Exception as error:  # noqa: BLE001 - as the dispatcher does
                connection.send(refusal(command, connection, error))

        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, self._queries.find, query, newest).add_done_callback(done)
        return None

    def _found(self, command: RemotingCommand, matches: KeyMatches) -> list[bytes | memoryview]:
        records = self._queries.records(matches)
        if not records:
            empty = QueryMessageResponseHeader()
            return [encode_response(command, codes.QUERY_NOT_FOUND, empty, remark=_NOT_FOUND)]
        header = QueryMessageResponseHeader(
            index_last_update_timestamp=matches.last_timestamp,
            index_last_update_phyoffset=matches.last_offset,
        )
        size = sum(map(len, records))
        return [encode_response(command, codes.SUCCESS, header, body_length=size), *records]

    def _consume_queue(self, command: RemotingCommand, _connection: Connection) -> Answer:
        header = command.header(QueryConsumeQueueRequestHeader)
        body = self._queries.units(
            header.topic, header.queue_id, header.index, header.count, header.consumer_group
        )
        if body is None:  # as Java: success, and nothing but the remark
            place = f"{header.queue_id}@{header.topic}"
            remark = f"Index {header.index} of {place} is not exist!"
            return encode_response(command, codes.SUCCESS, remark=remark)
        return answer(command, body)
