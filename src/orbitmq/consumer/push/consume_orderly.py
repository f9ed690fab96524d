"""Consuming in order: one listener at a time works through a queue, while its lock is held.

A message that fails stops its queue until it succeeds, or has failed too often. Follows
ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from orbitmq.client.runners import Turn
from orbitmq.clock import elapsed_ms
from orbitmq.consumer.hooks import ConsumeMessageContext
from orbitmq.consumer.process_queue import LOCK_INTERVAL_MS
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.push.consume_service import ConsumeOwner, return_type
from orbitmq.consumer.push.listeners import ConsumeOrderlyContext, ConsumeStatus, Listener
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.consumer.consume")

_MAX_RUN_MS: Final = 60_000
"""After this time in one queue the others have their turn (maxTimeConsumeContinuously)."""
_SOON_MS: Final = 10
_RELOCK_DELAY_MS: Final = 100
_NOT_LOCKED_DELAY_MS: Final = 3_000
_MIN_SUSPEND_MS: Final = 10
_MAX_SUSPEND_MS: Final = 30_000
_NO_LIMIT: Final = 2**31 - 1
_FIRST_LOCK_SECONDS: Final = 1.0
# A tuple, for to hash a member of an Enum costs ten times as much as to look at two.
_FAILED: Final = (ConsumeStatus.RECONSUME_LATER, ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT)


class OrderlyBatch(NamedTuple):
    """Messages a listener is to consume next."""

    messages: list[MessageView]
    listener: Listener
    context: ConsumeOrderlyContext
    started_ms: int
    told: ConsumeMessageContext | None


class ConsumeOrderly:
    """Has the messages of all queues of ``owner`` consumed in order."""

    def __init__(self, owner: ConsumeOwner) -> None:
        self._owner = owner
        self._clustering = owner.message_model is MessageModel.CLUSTERING
        limit = owner.config.max_reconsume_times
        self._max_reconsume_times = _NO_LIMIT if limit is None else limit

    def submit(self, task: PullTask, messages: list[MessageView], *, dispatch: bool) -> None:
        """Have somebody work through the queue, where nobody does."""
        if dispatch:
            self._run(task, self._owner.listener_of(messages[0]))

    def context(self, queue: MessageQueue) -> ConsumeOrderlyContext:
        """What a listener may answer besides."""
        return ConsumeOrderlyContext(self._owner.namespace.unwrap_queue(queue))

    async def keep(self) -> None:
        """Renew the locks of all queues, again and again (lockMQPeriodically)."""
        if self._clustering:
            await asyncio.sleep(_FIRST_LOCK_SECONDS)
            while True:
                await self._owner.lock_all()
                await asyncio.sleep(LOCK_INTERVAL_MS / 1000)

    def now_ms(self) -> int:
        """The time a run begins."""
        return elapsed_ms(self._owner.clock)

    # Called where the listener runs

    def next_batch(self, run: QueueRun) -> OrderlyBatch | None:
        """The next messages for ``run``, or None when it must end; then it is seen to the rest."""
        owner, task = self._owner, run.task
        process_queue = task.process_queue
        now_ms = elapsed_ms(owner.clock)
        with process_queue.lock:
            if process_queue.leaving:
                process_queue.consuming = False
                return None
            if self._clustering and not process_queue.holds_lock(now_ms):
                log.warning("%s is not locked any more, so it is not consumed", task.queue)
                owner.thread.post(self._lock_then_run, task, run.listener)
                return None
            if now_ms - run.started_ms > _MAX_RUN_MS:
                owner.thread.post(self._run_later, task, run.listener, _SOON_MS)
                return None
            size = owner.config.consume_batch_size
            if not owner.one_listener(task):
                size = 1
                first = process_queue.first_message()
                if first is not None and owner.listener_of(first) is not run.listener:
                    owner.thread.post(self._run, task, owner.listener_of(first))
                    return None
            messages = process_queue.take(size, now_ms)
            if not messages:
                return None
            process_queue.begin()
        told = owner.consume_hooks.before(task.queue, messages) if owner.consume_hooks else None
        return OrderlyBatch(messages, run.listener, self.context(task.queue), now_ms, told)

    def finished(self, run: QueueRun, batch: OrderlyBatch, status: ConsumeStatus) -> bool:
        """Do what the listener said (processConsumeResult); whether to go on with the queue."""
        context = batch.context
        self._count(run.task, batch, status)
        if status in _FAILED:
            self._owner.thread.post(self._spawn_failed, run.task, batch)
            return False
        rolled_back = False
        offset = -1
        process_queue = run.task.process_queue
        with process_queue.lock:
            if context.auto_commit:
                if status is not ConsumeStatus.SUCCESS:
                    log.warning("%s means SUCCESS where auto_commit is True", status)
                offset = process_queue.commit()
            elif status is ConsumeStatus.COMMIT:
                offset = process_queue.commit()
            elif status is ConsumeStatus.ROLLBACK:
                process_queue.rollback()
                rolled_back = True
            idle = self._end(run.task, offset)
        self._owner.progressed(run.task, idle=idle)
        if rolled_back:
            delay_ms = self._suspend_ms(context)
            self._owner.thread.post(self._run_later, run.task, batch.listener, delay_ms)
        return not rolled_back

    def _count(self, task: PullTask, batch: OrderlyBatch, status: ConsumeStatus) -> None:
        """Tell hooks and statistics of a call that ended."""
        owner = self._owner
        now_ms = elapsed_ms(owner.clock)
        took_ms = now_ms - batch.started_ms
        failed = status in _FAILED
        if batch.told is not None:
            told = ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if failed else status
            owner.consume_hooks.after(
                batch.told,
                told.name,
                success=status in (ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT),
                return_type=return_type(
                    status, batch.context, took_ms, owner.config.consume_timeout_ms
                ),
            )
        # COMMIT and ROLLBACK decide about messages that were counted when they came.
        done = not failed and (batch.context.auto_commit or status is ConsumeStatus.SUCCESS)
        count = len(batch.messages)
        owner.stats.consumed(
            task.queue.topic, count if done else 0, count if failed else 0, took_ms, now_ms
        )

    def _end(self, task: PullTask, offset: int) -> bool:
        """With the queue's lock: move the offset and end; whether a leaving queue is idle now."""
        if offset >= 0 and not task.process_queue.dropped:
            self._owner.offsets.update(task.queue, offset)
        return task.process_queue.end()

    # On the private loop

    def _run(self, task: PullTask, listener: Listener) -> None:
        self._owner.runner_of(listener).submit([QueueRun(self, task, listener)])

    def _run_later(self, task: PullTask, listener: Listener, delay_ms: int) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._run, task, listener)

    def _lock_then_run(self, task: PullTask, listener: Listener) -> None:
        self._owner.instance.spawn(self._relock(task, listener))

    async def _relock(self, task: PullTask, listener: Listener) -> None:
        """Ask for the lock once more, and see to the queue then (tryLockLaterAndReconsume)."""
        await asyncio.sleep(_RELOCK_DELAY_MS / 1000)
        locked = not task.process_queue.leaving and await self._owner.lock_again(task)
        self._run_later(task, listener, _SOON_MS if locked else _NOT_LOCKED_DELAY_MS)

    def _spawn_failed(self, task: PullTask, batch: OrderlyBatch) -> None:
        self._owner.instance.spawn(self._failed(task, batch))

    async def _failed(self, task: PullTask, batch: OrderlyBatch) -> None:
        """Consume the batch again after a pause, or give it up once it failed too often."""
        suspend = False
        for message in batch.messages:
            suspend = not await self._given_up(message) or suspend
        offset = -1
        process_queue = task.process_queue
        with process_queue.lock:
            if suspend:
                process_queue.consume_again(batch.messages)
            elif batch.context.auto_commit:
                offset = process_queue.commit()
            idle = self._end(task, offset)
        self._owner.progressed(task, idle=idle)
        if suspend:
            self._run_later(task, batch.listener, self._suspend_ms(batch.context))
        else:
            self._run(task, batch.listener)

    async def _given_up(self, message: MessageView) -> bool:
        """Whether ``message`` failed too often and is in the retry topic now, on its way out."""
        if message.reconsume_times >= self._max_reconsume_times:
            try:
                await self._owner.send_back.send_as_new(message)
            except Exception as error:  # noqa: BLE001 - the listener may have changed the message
                log.warning("%r failed too often, and was not given up: %r", message, error)
            else:
                return True
        message.reconsume_times += 1
        return False

    def _suspend_ms(self, context: ConsumeOrderlyContext) -> int:
        asked = context.suspend_current_queue_time_ms
        if asked is None or asked == -1:
            asked = self._owner.config.suspend_current_queue_time_ms
        return min(max(asked, _MIN_SUSPEND_MS), _MAX_SUSPEND_MS)


class QueueRun:
    """A listener's work through one queue (Java's ConsumeRequest)."""

    __slots__ = ("_service", "listener", "started_ms", "task")

    def __init__(self, service: ConsumeOrderly, task: PullTask, listener: Listener) -> None:
        self._service = service
        self.task = task
        self.listener = listener
        self.started_ms = 0

    @property
    def void(self) -> bool:
        """Whether the queue is gone."""
        return self.task.process_queue.dropped

    def run(self) -> None:
        """With a plain function."""
        self.started_ms = self._service.now_ms()
        while (batch := self._service.next_batch(self)) is not None:
            status = batch.listener.call(batch.messages, batch.context)
            if not self._service.finished(self, batch, status):
                return

    async def run_async(self) -> None:
        """With a coroutine function; if that is cancelled, it failed."""
        turn = Turn()
        self.started_ms = self._service.now_ms()
        while (batch := self._service.next_batch(self)) is not None:
            status = ConsumeStatus.RECONSUME_LATER
            try:
                status = await batch.listener.call_async(batch.messages, batch.context)
            finally:
                goes_on = self._service.finished(self, batch, status)
            if not goes_on:
                return
            await turn.end()
