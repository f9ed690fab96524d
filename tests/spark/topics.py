"""Topics to test with: made, filled and looked into without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from itertools import count
from typing import Any

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.net.blocking import BlockingConnection
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import CreateTopicRequestHeader
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import encode_properties

_names = count()


class Topic:
    """A topic of its own for a test, with ``queues`` queues."""

    def __init__(self, broker: EmbeddedBroker, queues: int = 2) -> None:
        self.name = f"topic-{next(_names)}"
        self.broker = broker
        self.resize(queues)

    def resize(self, queues: int) -> None:
        header = CreateTopicRequestHeader(
            topic=self.name, default_topic="TBW102", read_queue_nums=queues,
            write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        self.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def send(self, *bodies: str, key: str | None = "0", tags: str = "") -> None:
        """Send messages; of two queues the key '0' chooses the first and '1' the second."""
        properties = encode_properties({"TAGS": tags} if tags else {})
        with closing(Sender((self.broker.name_server,), "tests")) as sender:
            for body in bodies:
                sender.add(self.name, Outgoing(body.encode(), properties, key))
            sender.finish()

    def request(self, code: int, header: Any) -> RemotingCommand:
        """The broker's answer."""
        with closing(BlockingConnection(self.broker.address)) as connection:
            return connection.request(code, header)

    def by_queue(self) -> dict[int, list[MessageView]]:
        """All messages, by queue."""
        return stored(self.broker, self.name)

    def bodies(self) -> list[str]:
        """The bodies of all messages, sorted."""
        return sorted(view.body.decode() for views in self.by_queue().values() for view in views)

    def counted(self) -> Counter[str]:
        """How often each body is there."""
        return Counter(self.bodies())


def stored(broker: EmbeddedBroker, topic: str) -> dict[int, list[MessageView]]:
    """All messages of ``topic``, by queue."""
    client = TopicClient((broker.name_server,), topic)
    client.refresh()
    bounds = client.bounds(all_brokers=True)
    ranges = [QueueRange(*queue, client.address(queue), *bounds[queue]) for queue in bounds]
    found: dict[int, list[MessageView]] = defaultdict(list)
    for view in pulled(topic, (item for item in ranges if item.rows)):
        found[view.queue_id].append(view)
    return found


def pulled(topic: str, ranges: Iterable[QueueRange], tags: str = "*") -> list[MessageView]:
    """The messages in ``ranges`` that match ``tags``."""
    reader = RangeReader(topic, "TOOLS_CONSUMER", tags, fail_on_data_loss=True)
    return [view for _, data in reader.read(ranges) for view in decode_records(data)]
