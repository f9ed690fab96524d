"""What a Spark driver asks brokers about the queues of topics: bounds and times, group offsets.

All of it by blocking requests; the tasks' pulls are in pulling.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from orbitmq import codes
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ConfigError,
    ConnectError,
    NetworkError,
    for_code,
)
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection
from orbitmq.spark.patience import Patience
from orbitmq.spark.source.choice import Choice
from orbitmq.spark.source.offsets import Bounds, Offsets, Place, Queue
from orbitmq.spark.source.topic_queues import TopicQueues
from orbitmq.spark.source.topic_stats import read_ranges
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.wire.signing import Fields

log = logging.getLogger("orbitmq.spark")


class TopicClient(TopicQueues):
    """TopicQueues, and what their brokers tell about them."""

    def __init__(
        self,
        name_servers: tuple[str, ...],
        topics: Choice | str,
        access: Access = OPEN,
        namespace: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(name_servers, topics, access, namespace, clock)
        self.stored: dict[Queue, int] = {}
        """When the last message of each queue was stored (ms), as :meth:`bounds` last saw it."""
        self.deleted: set[Queue] = set()
        """The queues whose broker did not know their topic any more at the last :meth:`bounds`."""
        self._without_stats: set[str] = set()

    def bounds(self, *, all_brokers: bool) -> dict[Queue, Bounds]:
        """The bounds of every queue.

        Unless ``all_brokers`` must answer, the queues of one that does not are left out and a
        warning is logged. Raises ConfigError where a queue that was asked for is not there.
        """
        if all_brokers and self._away:
            raise ConnectError(
                f"brokers of {', '.join(self._routes)} are away, the name server knows no master "
                f"of: {', '.join(self._away)}"
            )
        if all_brokers and (missing := self.choice.missing(self.addresses.keys())):
            raise ConfigError("assign", ", ".join(missing), "queues that the topics have")
        found: dict[Queue, Bounds] = {}
        self.deleted = set()
        for address, places in self._by_address.items():
            try:
                with CONNECTIONS.borrow(address, self._access) as connection:
                    self._bounds_at(connection, places, found)
            except NetworkError as error:
                if all_brokers:
                    raise
                topics = ", ".join(sorted({place.topic for place in places}))
                count = sum(map(len, places.values()))
                log.warning("%d queues of %s wait: %s", count, topics, error)
        return found

    def all_bounds(self, wait_ms: int, required: Collection[Queue] = ()) -> dict[Queue, Bounds]:
        """The bounds of every queue as they are now; brokers are waited for up to ``wait_ms``.

        So are those of ``required`` queues that the name servers have forgotten, as they do when a
        broker dies. Name servers themselves are not waited for: where none answers, their address
        is more likely a wrong one.
        """
        self.refresh()
        patience = Patience("planning", wait_ms)
        while True:
            try:
                for queue in required:
                    self.address(queue)
                return self.bounds(all_brokers=True)
            except NetworkError as error:
                patience.wait_after(error)
                self.refresh()

    def first_stored(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """When the first message of each queue was stored (ms), of those that have one."""
        answers = self._ask_each(
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            {queue: self._queue_header(queue) for queue in queues},
        )
        times = {
            queue: answer.header(TimestampResponseHeader).timestamp
            for queue, answer in answers.items()
            if answer.code == codes.SUCCESS
        }
        return {queue: time for queue, time in times.items() if time > 0}

    def offsets_at(self, times: Mapping[Queue, int]) -> Offsets:
        """The offset of the first message stored at a queue's time (ms) or later, or its end."""
        answers = self._ask_each(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {
                queue: SearchOffsetRequestHeader(
                    self._wire(queue.topic), queue.queue_id, time, bname=queue.broker_name
                )
                for queue, time in times.items()
            },
        )
        return {
            # Brokers of 4.9 give the last message where all were stored before.
            queue: _END
            if self.stored.get(queue, times[queue]) < times[queue]
            else self._offset(answer, queue)
            for queue, answer in answers.items()
        }

    def group_offsets(self, group: str, queues: Collection[Queue]) -> Offsets:
        """The committed offsets of ``group``, of those queues that it has some of."""
        answers = self._ask_each(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {
                queue: QueryConsumerOffsetRequestHeader(
                    group, self._wire(queue.topic), queue.queue_id,
                    set_zero_if_not_found=False, bname=queue.broker_name,
                )
                for queue in queues
            },
        )  # fmt: skip
        return {
            queue: self._offset(answer, queue)
            for queue, answer in answers.items()
            if answer.code != codes.QUERY_NOT_FOUND
        }

    def commit(self, group: str, offsets: Offsets) -> Offsets:
        """Make ``offsets`` the group's; those that were told. A broker that refuses is logged.

        The group's offsets only mirror the query's, so a query does not fail for them. What a
        broker refuses it would refuse again, and it counts as told; what did not reach it does not.
        """
        told: Offsets = {}
        for address, queues in self._at_brokers(offsets).items():
            requests = [
                (
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    UpdateConsumerOffsetRequestHeader(
                        consumer_group=group,
                        topic=self._wire(queue.topic),
                        queue_id=queue.queue_id,
                        commit_offset=offsets[queue],
                        bname=queue.broker_name,
                    ),
                )
                for queue in queues
            ]
            try:
                with CONNECTIONS.borrow(address, self._access) as connection:
                    connection.request_all(requests)
            except (NetworkError, BrokerError) as error:
                log.warning("offsets of group %s were not committed: %s", group, error)
                if isinstance(error, NetworkError):
                    continue
            told |= {queue: offsets[queue] for queue in queues}
        return told

    def _bounds_at(
        self,
        connection: BlockingConnection,
        places: Mapping[Place, list[Queue]],
        found: dict[Queue, Bounds],
    ) -> None:
        """The bounds of queues on one broker: a request a topic, however many queues it has."""
        if connection.address in self._without_stats:
            self._bounds_one_by_one(connection, places, found)
            return
        requests = [
            (RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(self._wire(place.topic)), b"")
            for place in places
        ]
        answers = connection.exchange(requests)
        for queues, answer in zip(places.values(), answers, strict=True):
            if answer.code == codes.TOPIC_NOT_EXIST:
                self.deleted.update(queues)
            elif answer.code != codes.SUCCESS:
                log.info("%s tells no statistics: %s", connection.address, answer.remark)
                self._without_stats.add(connection.address)
                self._bounds_one_by_one(connection, places, found)
                return
            else:
                by_id = read_ranges(answer.body)
                for queue in queues:
                    offsets = by_id.get(queue.queue_id)
                    if offsets is None:  # never written
                        found[queue] = Bounds(0, 0)
                        continue
                    # A queue without messages may be said to begin at -1.
                    first = max(offsets.min_offset, 0)
                    found[queue] = Bounds(first, max(first, offsets.max_offset))
                    self.stored[queue] = offsets.last_update_timestamp

    def _bounds_one_by_one(
        self,
        connection: BlockingConnection,
        places: Mapping[Place, list[Queue]],
        found: dict[Queue, Bounds],
    ) -> None:
        """The same for who may not ask for statistics."""
        every = [queue for queues in places.values() for queue in queues]
        answers = connection.request_all(
            (code, self._queue_header(queue))
            for queue in every
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        )
        offsets = [max(answer.header(OffsetResponseHeader).offset, 0) for answer in answers]
        for queue, first, end in zip(every, offsets[0::2], offsets[1::2], strict=True):
            found[queue] = Bounds(first, max(first, end))

    def _ask_each(
        self, code: RequestCode, headers: Mapping[Queue, Fields]
    ) -> dict[Queue, RemotingCommand]:
        """The answers of the brokers of queues, whatever their codes."""
        answers: dict[Queue, RemotingCommand] = {}
        for address, queues in self._at_brokers(headers).items():
            with CONNECTIONS.borrow(address, self._access) as connection:
                got = connection.exchange([(code, headers[queue], b"") for queue in queues])
            answers.update(zip(queues, got, strict=True))
        return answers

    def _offset(self, answer: RemotingCommand, queue: Queue) -> int:
        if answer.code != codes.SUCCESS:
            address = self.addresses[queue]
            raise for_code(answer.code, answer.remark, address, self._access.access_key)
        return answer.header(OffsetResponseHeader).offset

    def _queue_header(self, queue: Queue) -> TopicQueueRequestHeader:
        return TopicQueueRequestHeader(
            self._wire(queue.topic), queue.queue_id, bname=queue.broker_name
        )


_END: Final = 2**63 - 1
"""After any message; whoever asks knows the queue's bounds."""
