"""Tracing: a producer tells a topic of RocketMQ's which messages it sent, when, and how.

With ``enable_trace`` a hook around every send makes the records (``wire/trace.py``), and a
TraceDispatcher sends them. Follows SendMessageTraceHookImpl and EndTransactionTraceHookImpl, but
that each message of a batch has a record of its own, and is found by its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from orbitmq.clock import Clock
from orbitmq.message import Message, SendStatus
from orbitmq.producer.hooks import EndTransactionContext, MessageType, SendMessageContext
from orbitmq.producer.trace_dispatcher import Traced
from orbitmq.wire.trace import SentMessage

_DEFAULT_REGION: Final = "DefaultRegion"


class SendTraceHook:
    """Makes the records of sends; called on the private loop."""

    def __init__(self, append: Callable[[Traced], None], clock: Clock) -> None:
        self._append = append
        self._clock = clock

    def send_message_before(self, context: SendMessageContext) -> None:
        """Note when it left."""
        context.trace_context = self._clock.now_ms()

    def send_message_after(self, context: SendMessageContext) -> None:
        """Tell of what was stored; nothing of a failure, as Java, nor where brokers want none."""
        result, began_ms = context.send_result, context.trace_context
        if result is None or not result.trace_on or not isinstance(began_ms, int):
            return
        cost_ms = self._clock.now_ms() - began_ms
        offset_ids = result.offset_message_id.split(",")
        for number, (message, message_id) in enumerate(_sent(context)):
            sent = SentMessage(
                context.message_queue.topic,
                message_id,
                message.tags,
                message.keys,
                context.broker_addr,
                context.message_type,
            )
            records = sent.published(
                context.producer_group,
                result.region_id or _DEFAULT_REGION,
                began_ms,
                cost_ms,
                body_length=len(message.body),
                offset_message_id=offset_ids[min(number, len(offset_ids) - 1)],
                success=result.status is SendStatus.SEND_OK,
            )
            self._append(Traced(sent.topic, records, frozenset(sent.find_by())))


class EndTransactionTraceHook:
    """Makes the records of transactions that end."""

    def __init__(self, append: Callable[[Traced], None], clock: Clock) -> None:
        self._append = append
        self._clock = clock

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Note how it ended."""
        sent = SentMessage(
            context.topic,
            context.message_id,
            context.tags,
            context.keys,
            context.broker_addr,
            MessageType.TRANSACTION_COMMIT,
        )
        records = sent.transaction_ended(
            context.producer_group,
            context.region_id or _DEFAULT_REGION,
            self._clock.now_ms(),
            transaction_id=context.transaction_id,
            state=context.transaction_state,
            from_check=context.from_transaction_check,
        )
        self._append(Traced(sent.topic, records, frozenset(sent.find_by())))


def _sent(context: SendMessageContext) -> Iterator[tuple[Message, str]]:
    """Each message and its id."""
    given = context.message
    messages = [given] if isinstance(given, Message) else given
    return zip(messages, context.message_ids, strict=False)
