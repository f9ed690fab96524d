"""Consuming one message at an operator's request, beside all that is consumed anyway.

What the listener answers is told to the operator, and nothing else follows from it: no offset
moves and nothing is sent back. Follows consumeMessageDirectly of both consume services.
"""

from __future__ import annotations

from orbitmq.clock import Clock
from orbitmq.consumer.push.listeners import (
    ConsumeContext,
    ConsumeOrderlyContext,
    ConsumeStatus,
    Listener,
)
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.running_info import CMResult, ConsumeMessageDirectlyResult

_ORDERLY = {
    ConsumeStatus.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeStatus.COMMIT: CMResult.CR_COMMIT,
    ConsumeStatus.ROLLBACK: CMResult.CR_ROLLBACK,
}
_CONCURRENT = {ConsumeStatus.SUCCESS: CMResult.CR_SUCCESS}


class DirectCall:
    """A job that has ``listener`` consume ``message``; ``result`` is there when it has."""

    void = False

    def __init__(
        self, listener: Listener, message: MessageView, context: ConsumeContext, clock: Clock
    ) -> None:
        self.result: ConsumeMessageDirectlyResult | None = None
        self._listener = listener
        self._messages = [message]
        self._context = context
        self._clock = clock

    def run(self) -> None:
        """With a plain function."""
        begin = self._clock.monotonic()
        self._end(self._listener.call(self._messages, self._context), begin)

    async def run_async(self) -> None:
        """With a coroutine function."""
        begin = self._clock.monotonic()
        self._end(await self._listener.call_async(self._messages, self._context), begin)

    def _end(self, status: ConsumeStatus, begin: float) -> None:
        context = self._context
        orderly = isinstance(context, ConsumeOrderlyContext)
        if context.raised is not None:
            result = CMResult.CR_THROW_EXCEPTION
        else:
            result = (_ORDERLY if orderly else _CONCURRENT).get(status, CMResult.CR_LATER)
        self.result = ConsumeMessageDirectlyResult(
            order=orderly,
            auto_commit=context.auto_commit if isinstance(context, ConsumeOrderlyContext) else True,
            consume_result=result,
            remark=context.raised,
            spent_time_mills=int((self._clock.monotonic() - begin) * 1000),
        )
