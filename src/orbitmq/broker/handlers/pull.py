"""Pulls: 11 and 361."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.long_poll import HeldPull
from orbitmq.broker.pulling import Pull, Pulled
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.message import PullStatus
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler, refusal
from orbitmq.store.pull import GetStatus
from orbitmq.wire.bodies import MASTER_ID
from orbitmq.wire.command import JSON, RemotingCommand, encode_response
from orbitmq.wire.headers import PullMessageRequestHeader, PullMessageResponseHeader
from orbitmq.wire.response_template import ResponseTemplate

# Bits of a pull's sysFlag (Java's PullSysFlag).
_COMMIT: Final = 1
_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4

_CODES: Final = {
    PullStatus.FOUND: codes.SUCCESS,
    PullStatus.NO_NEW_MESSAGE: codes.PULL_NOT_FOUND,
    PullStatus.NO_MATCHED_MESSAGE: codes.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_ILLEGAL: codes.PULL_OFFSET_MOVED,
}
_PULLS_A_TICK: Final = 16
"""How many answers of the greatest size the pulls of one tick may bring, to bound the memory that
a client takes which asks much and reads little."""
_ANY_SIZE: Final = (1 << 31) - 1
_FOUND: Final = ResponseTemplate(
    {
        "suggestWhichBrokerId": str(MASTER_ID),
        "nextBeginOffset": "%d",
        "minOffset": "%d",
        "maxOffset": "%d",
        "topicSysFlag": "%d",
        "groupSysFlag": "%d",
    },
    GetStatus.FOUND.value,
)
"""As PullMessageResponseHeader says; nearly all answers to pulls are such ones."""


class PullHandlers:
    """Translates to and from :class:`~orbitmq.broker.pulling.Pulling`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pulling = broker.pulling
        self.renew(broker.config)
        self._tick_bytes = 0
        self._budget = broker.filter_budget
        self._ready: deque[HeldPull[tuple[RemotingCommand, Pull]]] = deque()

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
        }

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._most_bytes_a_tick = _PULLS_A_TICK * config.max_pull_bytes

    def tick_end(self) -> None:
        """What the tick's pulls brought leaves now."""
        self._tick_bytes = 0
        self._budget.renew()

    def answer_ready(self) -> None:
        """Answer the held pulls that are ready, in later turns of the loop if it takes long."""
        ready = self._pulling.held.take_ready()
        if ready:
            goes_on = bool(self._ready)
            self._ready += ready
            if not goes_on:
                self._answer_in_turn()

    def _answer_in_turn(self) -> None:
        while self._ready and not self._budget.is_spent:
            self._answer(self._ready.popleft())
        if self._ready:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._budget.renew()
        self._answer_in_turn()
        self._budget.renew()

    def _pull(self, command: RemotingCommand, connection: Connection) -> Answer:
        if self._tick_bytes > self._most_bytes_a_tick:
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"{self._tick_bytes} bytes of messages wait to be read already: send fewer pulls "
                "at once, or ask for less",
            )
        if self._budget.is_overdrawn:
            raise BrokerError(
                codes.SYSTEM_BUSY,
                "the expressions of the pulls before take long: send fewer pulls at once, or use "
                "shorter ones",
            )
        pull = _read(command.header(PullMessageRequestHeader))
        pulled = self._pulling.pull_or_hold(pull, connection, (command, pull), self._broker.now_ms)
        if pulled is None:
            return None
        self._tick_bytes += pulled.found.size
        return encode_answer(command, pulled)

    def _answer(self, held: HeldPull[tuple[RemotingCommand, Pull]]) -> None:
        connection = held.owner
        command, pull = held.request
        assert isinstance(connection, Connection)  # noqa: S101 - only connections own them here
        try:
            answer = encode_answer(command, self._pulling.pull(pull))
        except Exception as error:  # noqa: BLE001 - it is answered; the topic may be gone by now
            answer = [refusal(command, connection, error)]
        connection.send(*answer)


def _read(header: PullMessageRequestHeader) -> Pull:
    flags = header.sys_flag
    return Pull(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.max_msg_nums,
        _ANY_SIZE if header.max_msg_bytes is None else header.max_msg_bytes,
        header.subscription if flags & _SUBSCRIPTION else None,
        header.expression_type,
        header.sub_version,
        header.commit_offset if flags & _COMMIT else None,
        header.suspend_timeout_millis if flags & _SUSPEND else 0,
    )


def encode_answer(command: RemotingCommand, pulled: Pulled) -> list[bytes | memoryview]:
    """The answer to a pull: its head, and behind that the messages as they lie in the log."""
    status, found, topic, group = pulled.status, pulled.found, pulled.topic, pulled.group
    if status is PullStatus.FOUND and command.serialize_type == JSON:
        head = _FOUND.fill(
            (
                found.next_begin_offset,
                found.min_offset,
                found.max_offset,
                topic.topic_sys_flag,
                group.group_sys_flag,
                command.opaque,
            ),
            found.size,
        )
    else:
        header = PullMessageResponseHeader(
            suggest_which_broker_id=MASTER_ID,
            next_begin_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )
        head = encode_response(
            command,
            _CODES[status],
            header,
            remark=found.status.value,
            body_length=found.size,
        )
    return [head, *found.slices]
