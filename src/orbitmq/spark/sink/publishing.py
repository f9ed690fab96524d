"""The queues of a topic to write to, as the name servers tell."""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.client.routes import publish_queues
from orbitmq.errors import TopicNotFoundError
from orbitmq.names import AUTO_CREATE_TOPIC
from orbitmq.net.blocking import Access
from orbitmq.spark.sink.lanes import Lane, Lanes
from orbitmq.spark.source.routes import fetch_route, master_addresses
from orbitmq.wire.bodies import TopicRouteData

NEW_TOPIC_QUEUES: Final = 4
"""How many queues a topic gets at most that the first message creates."""


def open_lanes(topic: str, name_servers: tuple[str, ...], access: Access) -> Lanes:
    """The queues of ``topic`` that can be written. Raises TopicNotFoundError when it has none."""
    route = _route(topic, name_servers, access)
    masters = master_addresses(route)
    queues = publish_queues(topic, route)
    if not queues:
        raise TopicNotFoundError(
            codes.TOPIC_NOT_EXIST,
            f"topic {topic!r} has no queue to write: its brokers are away or it is read-only",
        )
    return Lanes([Lane(queue, masters[queue.broker_name]) for queue in queues])


def _route(topic: str, name_servers: tuple[str, ...], access: Access) -> TopicRouteData:
    """The topic's route; that of a new one if brokers create topics when messages come."""
    try:
        return fetch_route(name_servers, topic, access)
    except TopicNotFoundError as missing:
        try:
            route = fetch_route(name_servers, AUTO_CREATE_TOPIC, access)
        except TopicNotFoundError:
            raise missing from None
    queue_datas = [
        msgspec.structs.replace(data, write_queue_nums=min(NEW_TOPIC_QUEUES, data.write_queue_nums))
        for data in route.queue_datas
    ]
    return msgspec.structs.replace(route, queue_datas=queue_datas)
