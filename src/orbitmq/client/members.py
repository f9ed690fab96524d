"""Who uses a client instance: its producers and consumers, and what brokers are told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from orbitmq.errors import ClientStateError
from orbitmq.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    TopicRouteData,
)

T = TypeVar("T")


class RegisteredConsumer(Protocol):
    """What an instance asks of a consumer (Java's ``MQConsumerInner``)."""

    @property
    def consume_type(self) -> ConsumeType:
        """Whether it polls or listens."""
        ...

    @property
    def message_model(self) -> MessageModel:
        """Whether its group shares the messages."""
        ...

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a group without offsets starts."""
        ...

    @property
    def unit_mode(self) -> bool:
        """Whether it belongs to a unit."""
        ...

    def subscriptions(self) -> Iterable[SubscriptionData]:
        """What it subscribes to; the routes of these topics are kept fresh."""
        ...

    async def rebalance(self) -> bool:
        """Balance the queues; False asks for another attempt soon."""
        ...

    def balance_soon(self) -> None:
        """Balance the queues at once: the group changed."""
        ...

    async def persist_offsets(self) -> None:
        """Store the offsets consumed so far."""
        ...


class RegisteredProducer(Protocol):
    """What an instance asks of a producer (Java's ``MQProducerInner``)."""

    def topics(self) -> Iterable[str]:
        """The topics it sends to; their routes are kept fresh."""
        ...

    def route_changed(self, topic: str, route: TopicRouteData) -> None:
        """Take over a new route."""
        ...


class Members:
    """The producers and consumers of one client instance, by group."""

    def __init__(self, client_id: str) -> None:
        self.producers: dict[str, RegisteredProducer] = {}
        self.consumers: dict[str, RegisteredConsumer] = {}
        self._client_id = client_id

    def add_producer(self, group: str, producer: RegisteredProducer) -> None:
        """Add a producer. ClientStateError when the group is taken."""
        self._add(self.producers, group, producer)

    def add_consumer(self, group: str, consumer: RegisteredConsumer) -> None:
        """Add a consumer. ClientStateError when the group is taken."""
        self._add(self.consumers, group, consumer)

    def topics(self) -> set[str]:
        """The topics they send to or subscribe to."""
        topics = {topic for producer in self.producers.values() for topic in producer.topics()}
        for consumer in self.consumers.values():
            topics.update(subscription.topic for subscription in consumer.subscriptions())
        return topics

    def heartbeat(self) -> HeartbeatData | None:
        """What brokers are told, None where there is nobody to tell of."""
        if not self.producers and not self.consumers:
            return None
        return HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self.producers],
            consumer_data_set=[
                ConsumerData(
                    group_name=group,
                    consume_type=consumer.consume_type,
                    message_model=consumer.message_model,
                    consume_from_where=consumer.consume_from_where,
                    subscription_data_set=list(consumer.subscriptions()),
                    unit_mode=consumer.unit_mode,
                )
                for group, consumer in self.consumers.items()
            ],
        )

    def _add(self, table: dict[str, T], group: str, member: T) -> None:
        if group in table:
            raise ClientStateError(
                f"group {group!r} is in use by another client of instance {self._client_id!r} in "
                "this process: choose another group or another instance_name"
            )
        table[group] = member
