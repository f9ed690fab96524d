"""Replies: messages that are pushed at once to the client that asked, and stored where wanted.

Knows neither sockets nor header letters. Follows ReplyMessageProcessor, but that a reply is staged
before it is pushed, so that its answer need not wait for two things.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from orbitmq.broker.clients import ProducerTable
from orbitmq.broker.sending import Placed, Sending, SendRequest
from orbitmq.wire.properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    decode_properties,
    encode_properties,
)

log = logging.getLogger("orbitmq.broker")

_ConnectionT = TypeVar("_ConnectionT", bound=Hashable)


class Reply(NamedTuple, Generic[_ConnectionT]):
    """A reply that was taken in. There is a ``refusal``, in Apache's words, or a ``requester``."""

    queue_id: int
    placed: Placed | None
    """Where it is stored, unless it is not."""
    client_id: str
    requester: _ConnectionT | None
    properties: str
    """With the time it was pushed."""
    refusal: str = ""


class Replying(Generic[_ConnectionT]):
    """Takes in replies. ``store`` says whether they are stored too."""

    def __init__(
        self, sending: Sending, producers: ProducerTable[_ConnectionT], *, store: bool
    ) -> None:
        self._sending = sending
        self._producers = producers
        self.store = store

    def take_in(
        self, request: SendRequest, body: bytes, born_host: bytes, now_ms: int
    ) -> Reply[_ConnectionT]:
        """Find who waits for a reply, and stage it. Raises BrokerError when it is refused."""
        queue_id = self._sending.queue_for(request, len(body))
        properties = decode_properties((request.properties or "").encode())
        client_id = properties.get(REPLY_TO_CLIENT, "")
        requester = self._producers.find(client_id) if client_id else None
        placed = self._sending.send(request, body, born_host) if self.store else None
        properties[PUSH_REPLY_TIME] = str(now_ms)
        pushed = encode_properties(properties).decode()
        refusal = ""
        if not client_id:
            refusal = f"reply message properties[{REPLY_TO_CLIENT}] is null"
        elif requester is None:
            refusal = f"push reply message fail, channel of <{client_id}> not found."
        if refusal:
            log.warning("%s", refusal)
        queue_id = queue_id if placed is None else placed.queue_id
        return Reply(queue_id, placed, client_id, requester, pushed, refusal)
