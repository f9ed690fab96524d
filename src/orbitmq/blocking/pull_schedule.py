"""The synchronous schedule service of pulls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Unpack

from orbitmq.blocking.face import Face
from orbitmq.blocking.pull_consumer import PullConsumer
from orbitmq.client.timeouts import patience_ms
from orbitmq.consumer.parts import PullScheduleArguments
from orbitmq.consumer.pull.schedule import CallbackT, PullScheduleCore, PullTaskCallback


class PullConsumerScheduleService(Face[PullScheduleCore]):
    """Calls a function again and again for each queue that is this consumer's share.

        service = PullConsumerScheduleService("readers", name_server="127.0.0.1:9876")

        @service.register_pull_task_callback("flights")
        def work(queue, context):
            consumer = context.pull_consumer
            offset = max(0, consumer.fetch_consume_offset(queue))
            result = consumer.pull(queue, "*", offset, 32)
            for message in result.messages: ...
            consumer.update_consume_offset(queue, result.next_begin_offset)
            context.pull_next_delay_ms = 0 if result.messages else 1000

        with service:
            service.wait()

    Calls for different queues run at the same time, in ``pull_thread_nums`` threads; for one queue
    one after the other. A callback that raises is logged and called again after 1 s. Calls begin
    and end with the queues in balance; a queue goes to another consumer, and :meth:`shutdown`
    returns, once the call under way has ended and its offset is saved. The arguments are as in
    :class:`orbitmq.PullConsumer`; settings are the fields of
    :class:`orbitmq.consumer.config.PullScheduleConfig`, checked here (ConfigError).
    """

    def __init__(self, group: str, **arguments: Unpack[PullScheduleArguments]) -> None:
        core = PullScheduleCore(group, arguments)
        super().__init__(core)
        self.pull_consumer = core.consumer = PullConsumer.over(core)
        self._ended = threading.Event()

    def register_pull_task_callback(
        self, topic: str, callback: PullTaskCallback | None = None
    ) -> Callable[[CallbackT], CallbackT]:
        """Have ``callback(queue, context)`` called for the queues of ``topic``.

        Also as a decorator of the callback. Before or after the start; another one for the same
        topic takes its place. ``context`` is a :class:`orbitmq.PullTaskContext`.
        """

        def register(function: CallbackT) -> CallbackT:
            self._core.register(topic, function, coroutine=False)
            return function

        if callback is not None:
            register(callback)
        return register

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the service is shut down; Ctrl-C interrupts. False after ``timeout`` s."""
        self._core.lifecycle.check_here()
        return self._ended.wait(timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Wait for the calls under way, save offsets, and leave the group.

        Calls that take longer than ``timeout`` seconds (``shutdown_timeout_ms``) are not waited
        for. Pulls under way in them end with ClientStateError. ClientStateError in a callback, for
        which it would wait.
        """
        self._service.refuse_shutdown_here()
        timeout_ms = patience_ms(timeout)
        try:
            self._shut_down(timeout_ms)
        finally:
            self._ended.set()
