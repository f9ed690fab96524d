"""How a task reads its queues: large pulls, the next one always under way.

Each queue has one pull under way, several queues of a broker at a time, so neither the broker nor
the task waits for the other, and a broker that hands out few messages a pull (Apache's: 32) is
asked for several at once. What comes is handed on undecoded.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, DataLossError, NetworkError, for_code
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection
from orbitmq.spark.patience import BROKER_WAIT_MS, Patience
from orbitmq.spark.source.brokers import Brokers
from orbitmq.spark.source.offsets import Queue
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.records import cut_at
from orbitmq.wire.bodies import MASTER_ID
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader

log = logging.getLogger("orbitmq.spark")

MESSAGES_PER_PULL: Final = 4_000
BYTES_PER_PULL: Final = 1024 * 1024
QUEUES_AT_A_TIME: Final = 4
STALLS: Final = 8
"""How often a broker may have nothing at an offset although it said so: about 5 seconds."""

_SUSPEND = 2
_SUBSCRIPTION = 4


def pull_header(
    topic: str,
    group: str,
    expression: str,
    queue: Queue,
    offset: int,
    *,
    count: int = 1,
    suspend_ms: int = 0,
    expression_type: str = "TAG",
) -> PullMessageRequestHeader:
    """A pull that brings its own subscription, so the group needs no registered consumer.

    With ``suspend_ms`` the broker holds it so long while there is no message.
    """
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=_SUBSCRIPTION | (_SUSPEND if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        sub_version=0,
        subscription=expression,
        expression_type=expression_type,
        max_msg_bytes=BYTES_PER_PULL,
        bname=queue.broker_name,
    )


class _Cursor:
    """How far one range has been read."""

    __slots__ = ("broker_id", "end", "follows", "offset", "queue", "stalls")

    def __init__(self, item: QueueRange) -> None:
        self.queue = Queue(item.topic, item.broker_name, item.queue_id)
        self.offset = item.begin
        self.end = item.end
        self.stalls = 0
        self.broker_id = MASTER_ID  # of whom it is read next
        self.follows = True  # where the broker sends it

    def turn_back(self) -> None:
        """Read the rest from the master: only what that one lacks is lost."""
        self.broker_id = MASTER_ID
        self.follows = False

    @property
    def finished(self) -> bool:
        return self.offset >= self.end


class RangeReader:
    """Reads ranges of ``topic``: the messages that match ``expression``, pulled as ``group``.

    ``topic`` and ``group`` are named as brokers know them; ``expression_type`` is TAG or SQL92.
    Messages that are gone raise DataLossError, or are logged where ``fail_on_data_loss`` is false.
    With ``name_servers`` a broker that came back elsewhere is found, and a slave is read while the
    master suggests that.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        expression: str,
        *,
        fail_on_data_loss: bool,
        access: Access = OPEN,
        broker_wait_ms: int = BROKER_WAIT_MS,
        expression_type: str = "TAG",
        name_servers: Sequence[str] = (),
    ) -> None:
        self._topic = topic
        self._group = group
        self._expression = expression
        self._fail_on_data_loss = fail_on_data_loss
        self._access = access
        self._broker_wait_ms = broker_wait_ms
        self._expression_type = expression_type
        self._brokers = Brokers(name_servers, topic, access)

    def read(self, ranges: Iterable[QueueRange]) -> Iterator[tuple[str, bytes | memoryview]]:
        """Broker names and records, in order within each queue, until every range is read.

        A connection that fails is made again and the reading goes on; the error is raised after
        ``broker_wait_ms`` without anything.
        """
        for (broker_name, address), items in groupby(
            sorted(ranges), key=lambda item: (item.broker_name, item.address)
        ):
            cursors = [_Cursor(item) for item in items]
            for data in self._read_broker(broker_name, address, cursors):
                yield broker_name, data

    def _read_broker(
        self, broker_name: str, planned: str, cursors: list[_Cursor]
    ) -> Iterator[bytes | memoryview]:
        patience = Patience(f"reading {self._topic}", self._broker_wait_ms)
        while unfinished := [cursor for cursor in cursors if not cursor.finished]:
            broker_id = unfinished[0].broker_id
            here = [cursor for cursor in unfinished if cursor.broker_id == broker_id]
            if broker_id == MASTER_ID:
                address = self._brokers.master(broker_name, planned)
            else:
                address = self._brokers.slave(broker_name, broker_id) or planned
            try:
                with CONNECTIONS.borrow(address, self._access) as connection:
                    for data in self._pump(connection, here, broker_id):
                        patience.progressed()
                        yield data
            except (NetworkError, BrokerError) as error:
                if broker_id == MASTER_ID:
                    patience.wait_after(error)
                    self._brokers.ask()
                    continue
                log.info("%s is read from its master again: %s", broker_name, error)
                for cursor in here:
                    cursor.turn_back()

    def _pump(
        self, connection: BlockingConnection, cursors: list[_Cursor], broker_id: int
    ) -> Iterator[bytes | memoryview]:
        """Read each cursor to its end, or until another broker than ``broker_id`` is to be read."""
        waiting = deque(cursors)
        pulls: dict[int, _Cursor] = {}
        while waiting or pulls:
            while waiting and len(pulls) < QUEUES_AT_A_TIME:
                cursor = waiting.popleft()
                pulls[self._pull(connection, cursor)] = cursor
            answer = connection.receive()
            cursor = pulls.pop(answer.opaque)
            data = self._advance(cursor, answer, connection.address)
            if not cursor.finished and cursor.broker_id == broker_id:
                pulls[self._pull(connection, cursor)] = cursor
            if data:
                yield data

    def _pull(self, connection: BlockingConnection, cursor: _Cursor) -> int:
        header = pull_header(
            self._topic,
            self._group,
            self._expression,
            cursor.queue,
            cursor.offset,
            count=min(cursor.end - cursor.offset, MESSAGES_PER_PULL),
            expression_type=self._expression_type,
        )
        return connection.send(RequestCode.PULL_MESSAGE, header)

    def _advance(
        self, cursor: _Cursor, answer: RemotingCommand, address: str
    ) -> bytes | memoryview:
        """Move ``cursor`` behind what ``answer`` holds; the records of it that are wanted."""
        if answer.code not in _PULL_CODES:
            raise for_code(answer.code, answer.remark, address, self._access.access_key)
        header = answer.header(PullMessageResponseHeader)
        offset, following = cursor.offset, header.next_begin_offset
        if answer.code == codes.SUCCESS and following > offset:
            cursor.offset = following
            cursor.stalls = 0
            if cursor.follows:
                self._follow(cursor, header.suggest_which_broker_id)
            data: bytes | memoryview = answer.body
            return data if following <= cursor.end else cut_at(bytes(data), cursor.end)
        if cursor.broker_id != MASTER_ID:  # it lacks something, or does not let itself be read
            cursor.turn_back()
        elif answer.code == codes.PULL_RETRY_IMMEDIATELY and following > offset:
            if self._expression == "*":
                self._lose(cursor, following)
            cursor.offset = following
        elif answer.code == codes.PULL_OFFSET_MOVED and answer.remark == codes.OFFSET_RESET:
            # An operator reset the group; the query's own checkpoint is the truth.
            log.warning("%s: a reset of group %s changes nothing here", cursor.queue, self._group)
        elif answer.code == codes.PULL_OFFSET_MOVED:
            # Too small an offset leads to the first there is, too large a one back to the end.
            self._lose(cursor, following if following > offset else cursor.end)
        else:
            self._stall(cursor, header.max_offset)
        return b""

    def _follow(self, cursor: _Cursor, broker_id: int) -> None:
        """Read on where a broker suggests (``whichBrokerWhenConsumeSlowly``), if that is known."""
        if broker_id == MASTER_ID or self._brokers.slave(cursor.queue.broker_name, broker_id):
            cursor.broker_id = broker_id

    def _lose(self, cursor: _Cursor, following: int) -> None:
        following = min(following, cursor.end)
        text = f"{cursor.queue}: offsets {cursor.offset} to {following - 1} are gone"
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{text}; the broker removed them before they were read. "
                "Set failOnDataLoss=false to read on without them"
            )
        log.warning("data loss: %s", text)
        cursor.offset = following

    def _stall(self, cursor: _Cursor, max_offset: int) -> None:
        """The broker has nothing although it said so: give it a little time, then up."""
        cursor.stalls += 1
        if cursor.stalls < STALLS:
            time.sleep(0.01 * 2**cursor.stalls)
        elif max_offset <= cursor.offset:
            self._lose(cursor, cursor.end)
        else:
            raise NetworkError(f"{cursor.queue} gives nothing at offset {cursor.offset}")


_PULL_CODES: Final = {
    codes.SUCCESS,
    codes.PULL_NOT_FOUND,
    codes.PULL_RETRY_IMMEDIATELY,
    codes.PULL_OFFSET_MOVED,
}
