"""Tracing: a consumer tells a topic of RocketMQ's which messages it consumed, when, and how.

With ``enable_trace`` a hook around every listener call makes the records (``wire/trace.py``), and
a TraceDispatcher sends them. Follows ConsumeMessageTraceHookImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.consumer.hooks import CONSUME_CONTEXT_TYPE, ConsumeMessageContext
from orbitmq.producer.trace_dispatcher import Traced
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import MSG_REGION, TRACE_SWITCH
from orbitmq.wire.trace import ConsumeTrace, ContextCode, TracedMessage

_NO_REGION: Final = "null"
"""What stands for the region that brokers of 4.9 do not tell: as the client of 4.9 writes it.
The client of 5.5 leaves such messages out."""


class TraceHook:
    """Makes the records; called where listeners run (ConsumeMessageTraceHookImpl)."""

    def __init__(self, append: Callable[[Traced], None], clock: Clock) -> None:
        self._append = append
        self._clock = clock

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Note who is about to consume what; messages whose trace switch is off are left out."""
        traced = [
            message for message in context.message_list if message.property(TRACE_SWITCH) != "false"
        ]
        if not traced:
            return
        region = traced[-1].property(MSG_REGION) or _NO_REGION
        trace = context.trace_context = ConsumeTrace.begin(
            context.consumer_group, region, self._clock.now_ms(), list(map(_traced, traced))
        )
        self._append(_to_send(trace, trace.before()))

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """Note how that ended, and how long a message took."""
        trace = context.trace_context
        if not isinstance(trace, ConsumeTrace):
            return
        now_ms = self._clock.now_ms()
        cost_ms = (now_ms - trace.timestamp_ms) // len(context.message_list)
        code = ContextCode[context.props.get(CONSUME_CONTEXT_TYPE, "SUCCESS")]
        self._append(_to_send(trace, trace.after(cost_ms, code, now_ms, success=context.success)))


def _to_send(trace: ConsumeTrace, records: str) -> Traced:
    return Traced(trace.messages[0].topic, records, frozenset(trace.keys()))


def _traced(message: MessageView) -> TracedMessage:
    return TracedMessage(message.topic, message.message_id, message.keys, message.reconsume_times)
