"""What a Spark driver asks a cluster about one topic: its queues, their bounds, group offsets.

All of it by blocking requests; the tasks' pulls are in pulling.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from orbitmq.client.routes import subscribe_queues
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, ConnectError, NetworkError, TopicNotFoundError
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access
from orbitmq.spark.offsets import Bounds, Offsets, Queue
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.headers import (
    GetRouteInfoRequestHeader,
    OffsetResponseHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger("orbitmq.spark")

_NAME_SERVER_TIMEOUT_MS = 3_000


def fetch_route(name_servers: Iterable[str], topic: str, access: Access = OPEN) -> TopicRouteData:
    """The topic's route, from the first name server that answers.

    Raises TopicNotFoundError when none knows the topic, ConnectError naming them all when none
    answers.
    """
    failures = []
    for address in name_servers:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            with CONNECTIONS.borrow(address, access) as connection:
                answer = connection.request(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_ms=_NAME_SERVER_TIMEOUT_MS
                )
            return TopicRouteData.decode(answer.body)
        except TopicNotFoundError as error:
            raise TopicNotFoundError(
                error.code, f"topic {topic!r} has no route: {error.remark}", address
            ) from error
        except NetworkError as error:
            failures.append(str(error))
    raise ConnectError(
        f"no name server answered, check nameServer and that they run: {'; '.join(failures)}"
    )


def master_addresses(route: TopicRouteData) -> dict[str, str]:
    """The masters by broker name, of those that have one."""
    return {
        broker.broker_name: address
        for broker in route.broker_datas
        if (address := broker.master_address) is not None
    }


class TopicClient:
    """The queues of ``topic`` that can be read, as the name servers last told."""

    def __init__(self, name_servers: tuple[str, ...], topic: str, access: Access = OPEN) -> None:
        self.topic = topic
        self.addresses: dict[Queue, str] = {}
        self._name_servers = name_servers
        self._access = access
        self._away: list[str] = []

    def refresh(self) -> None:
        """Ask for the topic's queues anew.

        A name server that does not answer, or does not know the topic any more, is logged as long
        as an earlier answer can serve; otherwise its error is raised.
        """
        try:
            route = fetch_route(self._name_servers, self.topic, self._access)
        except (NetworkError, TopicNotFoundError) as error:
            if not self.addresses:
                raise
            log.warning("going on with the last known queues of %s: %s", self.topic, error)
            return
        masters = master_addresses(route)
        queues = [Queue(*queue[1:]) for queue in subscribe_queues(self.topic, route)]
        # Only masters are read: a slave may lag, and what it lacks would look like lost messages.
        self.addresses = {
            queue: masters[queue.broker_name] for queue in queues if queue.broker_name in masters
        }
        self._away = sorted({queue.broker_name for queue in queues} - masters.keys())

    def address(self, queue: Queue) -> str:
        """Where ``queue`` is read. Raises ConnectError when the route names no such master."""
        try:
            return self.addresses[queue]
        except KeyError:
            raise ConnectError(
                f"{queue} of topic {self.topic!r} cannot be read now: the name server knows no "
                f"master of {queue.broker_name}"
            ) from None

    def bounds(self, *, all_brokers: bool) -> dict[Queue, Bounds]:
        """The bounds of every queue.

        Unless ``all_brokers`` must answer, the queues of one that does not are left out and a
        warning is logged.
        """
        if all_brokers and self._away:
            raise ConnectError(
                f"brokers of topic {self.topic!r} are away, the name server knows no master of: "
                f"{', '.join(self._away)}"
            )
        found: dict[Queue, Bounds] = {}
        for address, queues in self._by_broker(self.addresses):
            try:
                found.update(self._bounds_at(address, queues))
            except NetworkError as error:
                if all_brokers:
                    raise
                log.warning("%d queues of %s wait: %s", len(queues), self.topic, error)
        return found

    def commit(self, group: str, offsets: Offsets) -> None:
        """Make ``offsets`` the group's. A broker that refuses or fails is logged.

        The group's offsets only mirror the query's, so a query does not fail for them.
        """
        for address, queues in self._by_broker(offsets):
            requests = [
                (
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    UpdateConsumerOffsetRequestHeader(
                        consumer_group=group,
                        topic=self.topic,
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

    def _bounds_at(self, address: str, queues: list[Queue]) -> dict[Queue, Bounds]:
        requests = [
            (code, TopicQueueRequestHeader(self.topic, queue.queue_id, bname=queue.broker_name))
            for queue in queues
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        with CONNECTIONS.borrow(address, self._access) as connection:
            answers = connection.request_all(requests)
        # A queue without messages may be said to begin at -1.
        offsets = [max(answer.header(OffsetResponseHeader).offset, 0) for answer in answers]
        return {
            queue: Bounds(first, max(first, end))
            for queue, first, end in zip(queues, offsets[0::2], offsets[1::2], strict=True)
        }

    def _by_broker(self, queues: Mapping[Queue, object]) -> Iterator[tuple[str, list[Queue]]]:
        known = [(self.addresses[queue], queue) for queue in queues if queue in self.addresses]
        for address, pairs in groupby(sorted(known), key=lambda pair: pair[0]):
            yield address, [queue for _, queue in pairs]
