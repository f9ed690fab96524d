"""How far groups are behind, ready to be shown (mqadmin consumerProgress)."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from orbitmq.admin.asker import Asker
from orbitmq.admin.connections import consumer_connection, consumer_running_info
from orbitmq.admin.offsets import consume_stats
from orbitmq.admin.topics import list_topics
from orbitmq.errors import BrokerError, OrbitMQError, PartialFailureError
from orbitmq.message import MessageQueue
from orbitmq.names import RETRY_PREFIX
from orbitmq.wire.admin_bodies import ConsumerConnection, ConsumeStats
from orbitmq.wire.bodies import ConsumeType, MessageModel


class QueueProgress(msgspec.Struct, frozen=True):
    """How far a group is in a queue.

    ``broker_offset`` is the queue's end, ``consumer_offset`` what is consumed up to there,
    ``pull_offset`` what was pulled; ``last_timestamp`` is when the last message consumed was
    stored (ms; 0: none, or it is gone). ``client_id`` has the queue, None where that was not
    asked for or nobody has it.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int
    client_id: str | None = None

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int:
        """How many of them a consumer has pulled."""
        return self.pull_offset - self.consumer_offset


class ConsumerProgress(msgspec.Struct, frozen=True):
    """How far a group is in all its queues, in their order; ``tps`` messages a second."""

    group: str
    queues: list[QueueProgress]
    tps: float

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet."""
        return sum(queue.lag for queue in self.queues)

    @property
    def inflight(self) -> int:
        """How many of them consumers have pulled."""
        return sum(queue.inflight for queue in self.queues)


class GroupProgress(msgspec.Struct, frozen=True):
    """A group at a glance: how many consumers it has, of which kind, and how far it is behind.

    ``version`` is the lowest of its clients' (MQVersion's number), None where nobody is online, as
    ``consume_type`` and ``message_model`` are. ``lag`` is None where it has no offsets.
    ``failures`` are what could not be found out.
    """

    group: str
    count: int
    version: int | None
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    tps: float
    lag: int | None
    failures: dict[str, str] = {}


async def consumer_progress(
    ask: Asker, group: str, topic: str | None = None, *, client_ids: bool = False
) -> ConsumerProgress:
    """How far ``group`` is in ``topic``, or in all its topics.

    ``client_ids``: with which consumer has which queue; each of them is asked. Errors as
    :meth:`consume_stats`.
    """
    stats = await consume_stats(ask, group, topic)
    owners = await _owners(ask, group) if client_ids else {}
    queues = [
        QueueProgress(
            queue,
            ends.broker_offset,
            ends.consumer_offset,
            ends.pull_offset,
            ends.last_timestamp,
            owners.get(queue),
        )
        for queue, ends in stats.offset_table.items()
    ]
    return ConsumerProgress(group, queues, stats.consume_tps)


async def groups_progress(ask: Asker) -> list[GroupProgress]:
    """All groups that have ever been online, sorted, as :class:`GroupProgress`.

    A group that nobody can tell of is in the list too, with the reason.
    """
    groups = [
        topic.removeprefix(RETRY_PREFIX)
        for topic in await list_topics(ask)
        if topic.startswith(RETRY_PREFIX)
    ]
    return list(await asyncio.gather(*(_at_a_glance(ask, group) for group in groups)))


async def _at_a_glance(ask: Asker, group: str) -> GroupProgress:
    failures: dict[str, str] = {}
    stats: ConsumeStats | None = None
    online: ConsumerConnection | None = None
    try:
        stats = await consume_stats(ask, group)
    except PartialFailureError as error:
        stats = cast("ConsumeStats", error.result)
        failures |= {address: str(failure) for address, failure in error.failures.items()}
    except BrokerError:
        pass  # it has consumed nothing, or everyone for themselves
    except OrbitMQError as error:
        failures["consume stats"] = str(error)
    try:
        online = await consumer_connection(ask, group)
    except BrokerError:
        pass  # nobody is online
    except OrbitMQError as error:
        failures["consumer connection"] = str(error)
    clients = online.connection_set if online else []
    return GroupProgress(
        group,
        len(clients),
        min((client.version for client in clients), default=None),
        online.consume_type if online else None,
        online.message_model if online else None,
        stats.consume_tps if stats else 0.0,
        sum(ends.broker_offset - ends.consumer_offset for ends in stats.offset_table.values())
        if stats
        else None,
        failures,
    )


async def _owners(ask: Asker, group: str) -> dict[MessageQueue, str]:
    """Which consumer has which queue; nobody any, where none is online."""
    try:
        clients = (await consumer_connection(ask, group)).connection_set
    except BrokerError:
        return {}
    answers = await ask.each(
        [client.client_id for client in clients],
        lambda client_id: consumer_running_info(ask, group, client_id),
    )
    return answers.complete(
        {
            queue: client_id
            for client_id, info in answers.by_address.items()
            for queue in info.mq_table
        }
    )
