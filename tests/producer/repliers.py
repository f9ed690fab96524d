"""Consumers that reply to requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orbitmq import Message, MessageView, Producer, PushConsumer, create_reply_message


@contextmanager
def replying(
    name_server: str, topic: str, answer: Callable[[MessageView], bytes | None]
) -> Iterator[list[MessageView]]:
    """A consumer that replies what ``answer`` says, or not at all; gives what it consumed."""
    consumed: list[MessageView] = []
    with Producer("repliers", name_server=name_server) as producer:

        def reply(messages: list[MessageView]) -> None:
            for message in messages:
                consumed.append(message)
                body = answer(message)
                if body is not None:
                    producer.send(create_reply_message(message, body))

        producer.send(Message(topic, b"the first makes the topic"))
        consumer = PushConsumer(
            "servants",
            reply,
            name_server=name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.subscribe(topic)
        with consumer:
            yield consumed
