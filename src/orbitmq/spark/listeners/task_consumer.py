"""A push consumer inside a Spark task: the messages come from rows, all else is as ever.

What pulls, shares queues and keeps offsets is left out, for Spark does that. What consumes is the
push consumer's own: threads and coroutines, order, retries, hooks and statistics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from orbitmq.client.background import Background
from orbitmq.client.instance import ClientInstance
from orbitmq.client.loop import loop_thread
from orbitmq.clock import elapsed_ms
from orbitmq.codes import (
    PULL_NOT_FOUND,
    PULL_OFFSET_MOVED,
    PULL_RETRY_IMMEDIATELY,
    SUCCESS,
    RequestCode,
)
from orbitmq.consumer.config import PushSettings
from orbitmq.consumer.hooks import ConsumeMessageHook
from orbitmq.consumer.parts import PushArguments
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.consumer.push.core import PushCore
from orbitmq.consumer.push.listeners import ListenerFunction
from orbitmq.consumer.retries import SendBack
from orbitmq.errors import ConnectError
from orbitmq.message import MessageQueue
from orbitmq.spark.source.offsets import Queue
from orbitmq.spark.source.pulling import pull_header
from orbitmq.wire.ids import host_bytes
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from orbitmq.wire.record import Draft, encode_record

log = logging.getLogger("orbitmq.spark")

REQUIRED_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "body")
OPTIONAL_COLUMNS: Final = {
    "msgId": None,
    "tags": None,
    "keys": None,
    "flag": 0,
    "bornTimestamp": 0,
    "storeTimestamp": 0,
    "reconsumeTimes": 0,
    "properties": (),
}
"""What a message has of a column that is not there, or null."""

_HELD: Final = 1000
"""More messages are not taken out of Spark's hands while listeners have so many to do."""
_REMIND_SECONDS: Final = 10
_NOWHERE: Final = host_bytes("0.0.0.0", 0)  # noqa: S104 - the columns do not tell


class Consumed(NamedTuple):
    """What listeners did with messages of a topic: calls that ended, and how long they took."""

    topic: str
    ok: int
    failed: int
    calls: int
    took_ms: int


def consume_rows(
    batches: Iterable[Any],
    group: str,
    listener: ListenerFunction,
    hooks: Iterable[ConsumeMessageHook],
    settings: PushSettings,
) -> list[Consumed]:
    """Have the rows of Arrow record batches consumed; returns when nothing is left to do.

    Each message succeeded then, or was taken back by a broker.
    """
    core = TaskConsumer(group, listener, hooks, settings)
    thread = loop_thread()
    thread.run(core.start())
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, _HELD):
                messages = messages_of(batch.slice(start, _HELD))
                thread.run(core.consume(messages))
        thread.run(core.settled())
    finally:
        thread.run(core.shutdown(0))
    return core.stats.totals()


def messages_of(batch: Any) -> list[MessageView]:
    """The rows of a record batch as received messages."""
    names = [*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS]
    columns = [_values(batch, name) for name in names]
    messages = []
    for row in zip(*columns, strict=True):
        fields = dict(zip(names, row, strict=True))
        draft = Draft(
            topic=fields["topic"],
            queue_id=fields["queueId"],
            body=fields["body"],
            properties=encode_properties(_properties(fields)),
            tags_code=0,
            flag=fields["flag"],
            sys_flag=0,
            born_timestamp=fields["bornTimestamp"] // 1000,
            born_host=_NOWHERE,
            store_host=_NOWHERE,
            reconsume_times=fields["reconsumeTimes"],
        )
        record = encode_record(draft, fields["queueOffset"], 0, fields["storeTimestamp"] // 1000)
        messages += decode_records(record, fields["brokerName"])
    return messages


def _values(batch: Any, name: str) -> list[Any]:
    index = batch.schema.get_field_index(name)
    missing = OPTIONAL_COLUMNS.get(name)
    if index < 0:
        return [missing] * batch.num_rows
    column = batch.column(index)
    if name.endswith("Timestamp"):
        column = column.cast("int64")
    return [missing if value is None else value for value in column.to_pylist()]


def _properties(fields: Mapping[str, Any]) -> dict[str, str]:
    found = dict(fields["properties"])
    for column, name in (("tags", TAGS), ("keys", KEYS), ("msgId", UNIQ_KEY)):
        if fields[column]:
            found.setdefault(name, fields[column])
    return found


class Totals(ConsumeStats):
    """The figures of a task, added up."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._adding = threading.Lock()
        self._totals: dict[str, Consumed] = {}

    def consumed(self, topic: str, ok: int, failed: int, took_ms: int, now_ms: int) -> None:
        """A listener's call ended."""
        with self._adding:
            before = self._totals.get(topic, Consumed(topic, 0, 0, 0, 0))
            self._totals[topic] = Consumed(
                topic,
                before.ok + ok,
                before.failed + failed,
                before.calls + 1,
                before.took_ms + took_ms,
            )

    def totals(self) -> list[Consumed]:
        """What happened, by topic."""
        return list(self._totals.values())


class TaskConsumer(PushCore):
    """A push consumer that is handed messages, and belongs to its group only by name.

    Brokers do not hear of it, so that they give it no queues.
    """

    def __init__(
        self,
        group: str,
        listener: ListenerFunction,
        hooks: Iterable[ConsumeMessageHook],
        settings: PushSettings,
    ) -> None:
        arguments = cast("PushArguments", settings)
        super().__init__(group, arguments, listener=listener)
        self.stats: Totals = Totals(elapsed_ms(self.clock))
        self._progress = asyncio.Event()
        self._awaited = False
        for hook in hooks:
            self.consume_hooks.register(hook)

    # Life

    async def bring_up(self) -> None:
        """As a push consumer, but nobody hears of it."""
        self.instance = await ClientInstance.obtain(self.config, clock=self.clock)
        try:
            await self.set_up()
            if self._trace is not None:
                await self._trace.start()
        except BaseException:
            await self.listeners.stop()
            await self.instance.release()
            raise

    def new_send_back(self, max_reconsume_times: int) -> SendBack:
        """What goes back is read again first."""
        return ReadAgain(self.instance, self.group, max_reconsume_times, self.namespace)

    def started(self) -> None:
        """Begin the upkeep."""
        self._keeper = Background(self._service.keep(), f"the upkeep of a task of {self.group}")

    async def take_down(self) -> None:
        """Give up what is held; there is nothing if all went well."""
        self.lifecycle.begin_shutdown()
        for task in self.tasks.values():
            with task.process_queue.lock:
                task.process_queue.drop()
        if self._keeper is not None:
            await self._keeper.stop()
            self._keeper = None
        await self.listeners.stop()
        if self._trace is not None:
            await self._trace.shutdown()
        await self.instance.release()

    # Messages

    async def consume(self, messages: Iterable[MessageView]) -> None:
        """Have ``messages`` consumed, as soon as there are not too many before them."""
        await self._until(lambda: self._cached() < _HELD)
        for queue, some in groupby(messages, lambda item: item.message_queue):
            task = self.tasks.get(queue)
            if task is None:
                task = self.begin(queue)
                task.process_queue.lock_granted(elapsed_ms(self.clock))
            self.found(task, list(some))

    async def settled(self) -> None:
        """Wait until listeners did all there is to do."""
        await self._until(lambda: not self._cached())

    async def _until(self, condition: Callable[[], bool]) -> None:
        self._awaited = True  # before the first look, so that no progress after it is missed
        while not condition():
            self.listeners.remind(self._cached)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._progress.wait(), _REMIND_SECONDS)
            self._progress.clear()
        self._awaited = False

    def progressed(self, task: PullTask, *, idle: bool) -> None:
        """Messages are done; from any thread."""
        if self._awaited:
            self.thread.post(self._progress.set)

    # Spark gave this task its queues, and to nobody else meanwhile

    async def lock_all(self) -> None:
        """All are locked."""
        for task in self.tasks.values():
            task.process_queue.lock_granted(elapsed_ms(self.clock))

    async def lock_again(self, task: PullTask) -> bool:
        """It is."""
        task.process_queue.lock_granted(elapsed_ms(self.clock))
        return True


class ReadAgain(SendBack):
    """Reads a message that failed from its queue before it goes back.

    Rows need not have all of a message, and do not tell where it lies in its broker's log.
    """

    async def send(
        self, message: MessageView, delay_level: int, broker_name: str | None = None
    ) -> None:
        """As every consumer; one that is gone from its queue is sent as it is known here."""
        original = await self._original(message)
        if original is None:
            await super().send_as_new(message)
        else:
            await super().send(original, delay_level, broker_name)

    async def send_as_new(self, message: MessageView) -> None:
        """As every consumer in order."""
        await super().send_as_new(await self._original(message) or message)

    async def _original(self, message: MessageView) -> MessageView | None:
        """The message as stored; None where its queue does not have it any more."""
        queue = MessageQueue(message.stored_topic, message.broker_name, message.queue_id)
        await self._instance.topic_route(queue.topic)
        address = self._instance.routes.master_address(queue.broker_name)
        if address is None:
            raise ConnectError(f"broker {queue.broker_name} has no master", "")
        place = Queue(*queue)
        header = pull_header(queue.topic, self._group, "*", place, message.queue_offset)
        answer = await self._instance.invoke(address, RequestCode.PULL_MESSAGE, header)
        if answer.code not in _PULLED:
            raise self._instance.error_of(answer, address)
        found = decode_records(answer.body, queue.broker_name) if answer.code == SUCCESS else []
        if not found or found[0].queue_offset != message.queue_offset:
            log.warning("%r is gone from its queue, so it is sent anew", message)
            return None
        original = found[0]
        original.topic = message.topic
        original.reconsume_times = message.reconsume_times
        return original


_PULLED: Final = {SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED}
