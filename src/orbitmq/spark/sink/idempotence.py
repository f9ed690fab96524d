"""deliveryGuarantee=idempotent: a write that is run again does not send what the topic has of it.

Brokers do not look for doubles, so the sink does. Before the first row that a task sends to a
broker it writes a note there (see :mod:`orbitmq.spark.sink.ledger`): which write this is, and where
the topic's queues end. A task that finds an earlier note of the same write, because Spark runs it
again, reads the queues from there on and leaves out the rows it meets. A batch whose answer is lost
is looked for in the same way before it is sent again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

import numpy as np

from orbitmq import codes
from orbitmq.errors import BrokerError, ConnectError, NetworkError
from orbitmq.spark.patience import Patient
from orbitmq.spark.sink.begins import Begin, Task, note_begin, settle
from orbitmq.spark.sink.frames import Frames, Numbers
from orbitmq.spark.sink.lanes import Batch, Lane, Lanes
from orbitmq.spark.sink.ledger import Ledger
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.queue_ends import queue_ends
from orbitmq.spark.sink.row_ids import CONTENT_DIGITS, RowIds
from orbitmq.spark.source.options import TOOLS_GROUP
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.wire.message_view import decode_records
from orbitmq.wire.properties import UNIQ_KEY

log = logging.getLogger("orbitmq.spark")

_NOT_STORED: Final = {
    codes.SYSTEM_BUSY,
    codes.MESSAGE_ILLEGAL,
    codes.NO_PERMISSION,
    codes.TOPIC_NOT_EXIST,
    codes.REQUEST_CODE_NOT_SUPPORTED,
}


class Idempotence:
    """What of a task's rows the brokers have; the ``guard`` of a Sender.

    ``by_row_key`` says that rows are told apart by their rowKey, whatever partition they are in.
    """

    def __init__(self, task: Task, options: WriteOptions, *, by_row_key: bool) -> None:
        self._task = task
        self._options = options
        scope = quote(task.write, safe=":/")
        self._scope = scope if by_row_key else f"{scope}:{task.partition}"
        self.ids = RowIds(self._scope)
        self._stored: dict[str, Counter[bytes]] = {}

    def open(self, topic: str, lanes: Lanes) -> None:
        """Note the begin on every broker of ``topic``, and read what earlier runs sent to it."""
        brokers = sorted({queue.broker_name for queue in lanes.queues})
        doing = f"looking what {topic} has of {self._task.write}"
        patient = Patient(doing, self._options.broker_wait_ms)
        stored: Counter[bytes] = Counter()
        for broker_name in brokers:
            own = [lane for lane in lanes.all if lane.queue.broker_name == broker_name]
            stored.update(patient(self._open, topic, own, brokers))
        if stored:
            log.warning("%d messages of %s are there already", stored.total(), self._task.write)
            self._stored[topic] = stored

    def unsent(self, topic: str, frames: Frames) -> Numbers | None:
        """The rows that no earlier run sent; of equal ones as many as it sent are left out."""
        stored = self._stored.get(topic)
        if not stored:
            return None
        unsent = []
        for index, row in enumerate(frames.ids):
            content = bytes(row[:CONTENT_DIGITS])
            if stored[content] > 0:
                stored[content] -= 1
            else:
                unsent.append(index)
        return np.array(unsent, np.int64)

    def is_open(self, error: NetworkError | BrokerError) -> bool:
        """Unless the broker was not reached, or said why it does not take the batch."""
        if isinstance(error, BrokerError):
            return error.code not in _NOT_STORED
        return not isinstance(error, ConnectError)

    def rest(self, lane: Lane, batch: Batch) -> Batch:
        """What of ``batch`` is not behind what was acknowledged in its queue."""
        self._settle(lane)
        number = lane.queue.queue_id
        end = self._ends(lane, [number])[number]
        stored = Counter(self._ids_between(lane, number, lane.next_offset, end))
        wanted = []
        for row in batch.ids():
            wanted.append(not stored[row])
            stored[row] -= bool(stored[row])
        rest = batch.only(wanted)
        found = batch.count - rest.count
        log.warning("%d of %d messages were stored without an answer", found, batch.count)
        lane.next_offset = end
        return rest

    def _open(self, topic: str, lanes: list[Lane], brokers: list[str]) -> Counter[bytes]:
        """How often one broker has which content of this write."""
        lane = lanes[0]
        ends = self._ends(lane, [one.queue.queue_id for one in lanes])
        for one in lanes:
            one.next_offset = ends[one.queue.queue_id]
        key = f"{self._scope}:{topic}"
        earlier = note_begin(self._ledger(lane), key, Begin.of(self._task, ends, brokers))
        if not earlier:
            return Counter()
        self._settle(lane)
        # A queue that a note does not have was made after it.
        begins = {
            number: min(begin.ends.get(number, 0) for begin in earlier)
            for number in ends.keys() | {*(n for begin in earlier for n in begin.ends)}
        }
        ends = self._ends(lane, begins)
        stored: Counter[bytes] = Counter()
        for number, begin_offset in begins.items():
            found = self._ids_between(lane, number, begin_offset, ends[number])
            stored.update(row[:CONTENT_DIGITS] for row in found)
        for one in lanes:
            one.next_offset = ends[one.queue.queue_id]
        return stored

    def _settle(self, lane: Lane) -> None:
        """Wait until all that was sent to the lane's broker until now can be read."""
        settle(self._ledger(lane), self._scope)

    def _ledger(self, lane: Lane) -> Ledger:
        options = self._options
        return Ledger(lane.address, lane.queue.broker_name, options.group, options.access)

    def _ends(self, lane: Lane, numbers: Iterable[int]) -> dict[int, int]:
        """Where queues of the lane's topic on its broker end."""
        return queue_ends(lane.address, lane.queue, numbers, self._options.access)

    def _ids_between(self, lane: Lane, number: int, begin: int, end: int) -> Iterator[bytes]:
        """The unique ids of this write's messages with these offsets."""
        if begin >= end:
            return
        topic, broker_name, _ = lane.queue
        access = self._options.access
        reader = RangeReader(topic, TOOLS_GROUP, "*", fail_on_data_loss=False, access=access)
        span = QueueRange(topic, broker_name, number, lane.address, begin, end)
        write = self.ids.write.decode()
        for _, data in reader.read([span]):
            for view in decode_records(data):
                unique = view.property(UNIQ_KEY) or ""
                if unique.startswith(write):
                    yield unique.encode()
