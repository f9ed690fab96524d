"""What the name servers tell a Spark driver or task: topics and their routes. Blocking requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import ConnectError, NetworkError, TopicNotFoundError, for_code
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.headers import GetRouteInfoRequestHeader
from orbitmq.wire.registration import TopicList

_NAME_SERVER_TIMEOUT_MS: Final = 3_000


def fetch_route(name_servers: Iterable[str], topic: str, access: Access = OPEN) -> TopicRouteData:
    """The topic's route, from the first name server that answers.

    Raises TopicNotFoundError when none knows the topic, ConnectError naming them all when none
    answers.
    """
    route = fetch_routes(name_servers, [topic], access)[topic]
    if isinstance(route, TopicNotFoundError):
        raise route
    return route


def fetch_routes(
    name_servers: Iterable[str], topics: Sequence[str], access: Access = OPEN
) -> dict[str, TopicRouteData | TopicNotFoundError]:
    """The routes of ``topics``, or the error of one that the name server does not know.

    From the first name server that answers; raises ConnectError naming them all when none does.
    """

    def ask(connection: BlockingConnection) -> dict[str, TopicRouteData | TopicNotFoundError]:
        headers = [
            GetRouteInfoRequestHeader(topic, accept_standard_json_only=True) for topic in topics
        ]
        answers = connection.exchange(
            [(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, b"") for header in headers],
            timeout_ms=_NAME_SERVER_TIMEOUT_MS,
        )
        found: dict[str, TopicRouteData | TopicNotFoundError] = {}
        for topic, answer in zip(topics, answers, strict=True):
            if answer.code == codes.SUCCESS:
                found[topic] = TopicRouteData.decode(answer.body)
                continue
            error = for_code(answer.code, answer.remark, connection.address, access.access_key)
            if not isinstance(error, TopicNotFoundError):
                raise error
            text = f"topic {topic!r} has no route: {error.remark}"
            found[topic] = TopicNotFoundError(error.code, text, connection.address)
        return found

    failures = []
    for address in name_servers:
        try:
            with CONNECTIONS.borrow(address, access) as connection:
                return ask(connection)
        except NetworkError as error:
            failures.append(str(error))
    raise _no_name_server(failures)


def fetch_topics(
    name_servers: Iterable[str], access: Access = OPEN
) -> tuple[frozenset[str], frozenset[str]]:
    """All topics the first name server that answers knows, and which of them are RocketMQ's own."""
    failures = []
    for address in name_servers:
        try:
            with CONNECTIONS.borrow(address, access) as connection:
                every = connection.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
                system = connection.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            return (
                TopicList.decode(every.body).topic_list,
                TopicList.decode(system.body).topic_list,
            )
        except NetworkError as error:
            failures.append(str(error))
    raise _no_name_server(failures)


def master_addresses(route: TopicRouteData) -> dict[str, str]:
    """The masters by broker name, of those that have one."""
    return {
        broker.broker_name: address
        for broker in route.broker_datas
        if (address := broker.master_address) is not None
    }


def _no_name_server(failures: Iterable[str]) -> ConnectError:
    return ConnectError(
        f"no name server answered, check nameServer and that they run: {'; '.join(failures)}"
    )
