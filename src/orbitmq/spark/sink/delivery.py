"""Staged batches go to their topics: read from the broker that has them, and sent to its queues."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing

from orbitmq.errors import DataLossError
from orbitmq.message import MessageQueue
from orbitmq.spark.sink.lanes import Lane
from orbitmq.spark.sink.ledger import STAGING_TOPIC, Ledger
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.sending import Sender
from orbitmq.spark.sink.staged import StagedBatch, StagedList
from orbitmq.wire.message_view import MessageView


class Delivery:
    """Delivers on the broker of ``ledger``, one batch of a queue under way, as ``group``.

    It stops at the first error, as it is not known then what was stored: whoever goes on has to
    look for that. ``renew`` is called before each batch.
    """

    def __init__(
        self, ledger: Ledger, options: WriteOptions, group: str, renew: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._renew = renew
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._sender = Sender(options.name_servers, group, options.access, broker_wait_ms=0)

    def send(
        self, staged: StagedList, is_own: Callable[[MessageView], bool], present: Collection[bytes]
    ) -> None:
        """Send what is ``staged``, but for messages whose unique ids are ``present``.

        Raises DataLossError where what lies in the log is not what was staged.
        """
        batches = staged.staged
        with closing(self._ledger.read(batches["log_offset"].tolist(), STAGING_TOPIC)) as messages:
            for (row, at, count, kind, number), message in zip(
                batches.tolist(), messages, strict=True
            ):
                if message.physical_offset != at or not is_own(message):
                    raise DataLossError(
                        f"{self._ledger.address} has something else at {at} of its log than the "
                        f"rows for {staged.topic} that were staged there"
                    )
                self._renew()
                batch = StagedBatch(message.body, count, kind, row)
                rest = batch.without(present) if present else batch
                if rest.count:
                    self._sender.deliver(self._lane(staged.topic, number), rest)

    def finish(self) -> None:
        """Wait until every batch is acknowledged."""
        self._sender.finish()

    def close(self) -> None:
        """Keep the connections."""
        self._sender.close()

    def _lane(self, topic: str, number: int) -> Lane:
        lane = self._lanes.get((topic, number))
        if lane is None:
            queue = MessageQueue(topic, self._ledger.broker_name, number)
            lane = self._lanes[topic, number] = Lane(queue, self._ledger.address)
        return lane
