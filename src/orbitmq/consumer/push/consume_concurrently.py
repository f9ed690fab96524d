"""Consuming concurrently: batches of a queue go to listeners as they come, many at once.

Messages that fail go back to their broker, which delivers them again later; how far a queue may be
committed is decided by the first message of it that is not done. Follows
ConsumeMessageConcurrentlyService and ProcessQueue.cleanExpiredMsg.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from orbitmq.clock import elapsed_ms
from orbitmq.consumer.hooks import ConsumeMessageContext
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.push.consume_service import ConsumeOwner, return_type
from orbitmq.consumer.push.listeners import ConsumeConcurrentlyContext, ConsumeStatus, Listener
from orbitmq.errors import OrbitMQError
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.message_view import MessageView, set_property_of_all
from orbitmq.wire.properties import CONSUME_START_TIME

log = logging.getLogger("orbitmq.consumer.consume")

_RETRY_HERE_SECONDS: Final = 5.0
_EXPIRED_DELAY_LEVEL: Final = 3
_EXPIRED_AT_ONCE: Final = 16

_offset_of = attrgetter("queue_offset")


class ConsumeConcurrently:
    """Has the messages of all queues of ``owner`` consumed."""

    def __init__(self, owner: ConsumeOwner) -> None:
        self._owner = owner
        self._running: set[ConsumeRequest] = set()

    def submit(self, task: PullTask, messages: Sequence[MessageView], *, dispatch: bool) -> None:
        """Cut ``messages`` into batches for their listeners (submitConsumeRequest)."""
        del dispatch  # every batch is dispatched
        size = self._owner.config.consume_batch_size
        for listener, group in self._by_listener(task, messages):
            requests = [
                ConsumeRequest(self, task, tuple(group[start : start + size]), listener)
                for start in range(0, len(group), size)
            ]
            with task.process_queue.lock:
                task.process_queue.submitted(request.first_offset for request in requests)
            self._owner.runner_of(listener).submit(requests)

    def context(self, queue: MessageQueue) -> ConsumeConcurrentlyContext:
        """What a listener may answer besides."""
        return ConsumeConcurrentlyContext(self._owner.namespace.unwrap_queue(queue))

    async def keep(self) -> None:
        """Send back what listeners sit on for too long, again and again."""
        while True:
            await asyncio.sleep(self._owner.config.consume_timeout_ms / 1000)
            await self.send_back_expired()

    async def send_back_expired(self) -> None:
        """Send back the first messages of queues whose listener works for too long on them."""
        if self._owner.message_model is MessageModel.BROADCASTING:
            return
        began_ms = elapsed_ms(self._owner.clock) - self._owner.config.consume_timeout_ms
        stuck: dict[PullTask, set[int]] = {}
        for request in list(self._running):
            if request.started_ms < began_ms:
                stuck.setdefault(request.task, set()).update(map(_offset_of, request.messages))
        for task, offsets in stuck.items():
            await self._send_back_stuck(task, offsets)

    def may_begin(self, request: ConsumeRequest) -> bool:
        """Whether the listener may have the messages; if so :meth:`finished` must follow."""
        process_queue = request.task.process_queue
        with process_queue.lock:
            return process_queue.begin(request.first_offset)

    def begin(self, request: ConsumeRequest) -> None:
        """What precedes the call; called where the listener runs."""
        hooks = self._owner.consume_hooks
        if hooks:
            request.told = hooks.before(request.task.queue, request.messages)
        request.started_ms = elapsed_ms(self._owner.clock)
        stamp = str(self._owner.clock.now_ms())
        set_property_of_all(request.messages, CONSUME_START_TIME, stamp)
        self._running.add(request)

    def finished(
        self, request: ConsumeRequest, status: ConsumeStatus, context: ConsumeConcurrentlyContext
    ) -> None:
        """Do what the listener said (processConsumeResult); called where it ran."""
        owner = self._owner
        now_ms = elapsed_ms(owner.clock)
        took_ms = now_ms - request.started_ms
        if request.told is not None:
            success = status is ConsumeStatus.SUCCESS
            owner.consume_hooks.after(
                request.told,
                "CONSUME_SUCCESS" if success else "RECONSUME_LATER",
                success=success,
                return_type=return_type(status, context, took_ms, owner.config.consume_timeout_ms),
            )
        failed = _failed(request.messages, status, context)
        ok = len(request.messages) - len(failed)
        owner.stats.consumed(request.task.queue.topic, ok, len(failed), took_ms, now_ms)
        if not failed:
            self._done(request, request.messages, now_ms)
        elif owner.message_model is MessageModel.BROADCASTING:
            log.warning("messages that failed are dropped, under BROADCASTING: %r", failed)
            self._done(request, request.messages, now_ms)
        else:
            level = context.delay_level_when_next_consume
            owner.thread.post(self._spawn_give_back, request, failed, level)

    def _by_listener(
        self, task: PullTask, messages: Sequence[MessageView]
    ) -> Iterator[tuple[Listener, Sequence[MessageView]]]:
        owner = self._owner
        if owner.one_listener(task):
            yield owner.listener_of(messages[0]), messages
        else:
            for listener, group in groupby(messages, owner.listener_of):
                yield listener, list(group)

    def _spawn_give_back(
        self, request: ConsumeRequest, failed: Sequence[MessageView], level: int
    ) -> None:
        self._owner.instance.spawn(self._give_back(request, failed, level))

    async def _give_back(
        self, request: ConsumeRequest, failed: Sequence[MessageView], level: int
    ) -> None:
        """Send ``failed`` back; those no broker takes are consumed again here, a little later."""
        sent = await asyncio.gather(*(self._sent_back(request, item, level) for item in failed))
        kept = {id(item) for item, went in zip(failed, sent, strict=True) if not went}
        gone = [item for item in request.messages if id(item) not in kept]
        self._done(request, gone, elapsed_ms(self._owner.clock))
        if kept:
            again = [item for item in failed if id(item) in kept]
            loop = asyncio.get_running_loop()
            loop.call_later(_RETRY_HERE_SECONDS, self._again, request.task, again)

    async def _sent_back(self, request: ConsumeRequest, message: MessageView, level: int) -> bool:
        process_queue = request.task.process_queue
        with process_queue.lock:
            if process_queue.dropped or not process_queue.contains(message):
                return True  # the queue's next owner has it, or it was stuck and sent back already
        try:
            await self._owner.send_back.send(message, level)
        except Exception as error:  # noqa: BLE001 - the listener may have changed the message
            log.warning("%r is consumed again here, no broker took it back: %r", message, error)
            message.reconsume_times += 1
            return False
        return True

    def _again(self, task: PullTask, messages: Sequence[MessageView]) -> None:
        if not task.process_queue.leaving:
            self.submit(task, messages, dispatch=True)

    def _done(self, request: ConsumeRequest, messages: Iterable[MessageView], now_ms: int) -> None:
        """Forget ``messages``, move the offset, and let the next ones come."""
        task = request.task
        process_queue = task.process_queue
        with process_queue.lock:
            offset = process_queue.remove(messages, now_ms)
            if offset >= 0 and not process_queue.dropped:
                self._owner.offsets.update(task.queue, offset, increase_only=True)
            idle = process_queue.end()
        self._running.discard(request)
        self._owner.progressed(task, idle=idle)

    async def _send_back_stuck(self, task: PullTask, offsets: Collection[int]) -> None:
        """Send back the first messages of a queue, for as long as they are among ``offsets``."""
        process_queue = task.process_queue
        for _ in range(_EXPIRED_AT_ONCE):
            with process_queue.lock:
                message = None if process_queue.dropped else process_queue.first_message()
            if message is None or message.queue_offset not in offsets:
                return
            log.warning(
                "a listener of group %s has had %r for more than %d ms, so it is sent back",
                self._owner.group,
                message,
                self._owner.config.consume_timeout_ms,
            )
            try:
                await self._owner.send_back.send(message, _EXPIRED_DELAY_LEVEL)
            except OrbitMQError as error:
                log.warning("%r was not sent back: %s", message, error)
                return
            with process_queue.lock:
                process_queue.remove([message], elapsed_ms(self._owner.clock))


class ConsumeRequest:
    """A batch for a listener."""

    __slots__ = ("_service", "listener", "messages", "started_ms", "task", "told")

    def __init__(
        self,
        service: ConsumeConcurrently,
        task: PullTask,
        messages: tuple[MessageView, ...],
        listener: Listener,
    ) -> None:
        self.task = task
        self.messages = messages
        self.listener = listener
        self.started_ms = 0
        self.told: ConsumeMessageContext | None = None
        self._service = service

    @property
    def first_offset(self) -> int:
        """The queue offset of its first message."""
        return self.messages[0].queue_offset

    @property
    def void(self) -> bool:
        """Whether the queue is gone."""
        return self.task.process_queue.dropped

    def run(self) -> None:
        """Have a plain function consume it."""
        service = self._service
        if service.may_begin(self):
            context = service.context(self.task.queue)
            status = ConsumeStatus.RECONSUME_LATER
            try:
                service.begin(self)
                status = self.listener.call(self.messages, context)
            finally:
                service.finished(self, status, context)

    async def run_async(self) -> None:
        """Have a coroutine function consume it; if that is cancelled, it failed."""
        service = self._service
        if service.may_begin(self):
            context = service.context(self.task.queue)
            status = ConsumeStatus.RECONSUME_LATER
            try:
                service.begin(self)
                status = await self.listener.call_async(self.messages, context)
            finally:
                service.finished(self, status, context)


def _failed(
    messages: Sequence[MessageView], status: ConsumeStatus, context: ConsumeConcurrentlyContext
) -> Sequence[MessageView]:
    """The messages that failed: those after the ack index, or all."""
    if status is ConsumeStatus.SUCCESS:
        ack_index = context.ack_index
        return () if ack_index is None else messages[max(ack_index + 1, 0) :]
    if status in (ConsumeStatus.COMMIT, ConsumeStatus.ROLLBACK):
        log.error("%s is only for orderly listeners; the messages are consumed again", status)
    return messages
