"""Pulling: one PullTask for each queue asks its broker for messages, again and again.

The pull engine of push and lite pull consumers, as pullMessage of DefaultMQPushConsumerImpl and
PullTaskImpl of DefaultLitePullConsumerImpl are for Java's. A task is a small state machine on the
private loop: each step is called by the answer, or the timer, before it. Where there is more, and
flow control allows it, the next pull leaves before the messages of the last are decoded, so that
the broker works on one while the client works on the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from orbitmq import codes
from orbitmq.clock import elapsed_ms
from orbitmq.codes import RequestCode
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.pull_request import (
    COMMIT_OFFSET,
    LITE_PULL,
    STATUS_OF,
    SUBSCRIPTION,
    SUSPEND,
    pull_header,
    read_messages,
)
from orbitmq.consumer.puller import Puller
from orbitmq.errors import (
    BrokerError,
    HeaderError,
    NetworkError,
    OrbitMQError,
    RecordError,
    RequestTimeoutError,
    SubscriptionError,
)
from orbitmq.message import MessageQueue, PullStatus
from orbitmq.names import RETRY_PREFIX
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import MASTER_ID, SubscriptionData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import PullMessageResponseHeader
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.consumer.pull")

T = TypeVar("T")

_BUSY_BROKER_DELAY_MS: Final = 20
_NEW_SUBSCRIPTION_DELAY_MS: Final = 50
_FLOW_CONTROL_CODE: Final = 215


class _Answer(NamedTuple):
    """Messages that came, and where the pull began that asked for them."""

    epoch: int
    begin: int
    body: bytes | memoryview
    header: PullMessageResponseHeader


class PullTask:
    """Pulls one queue until it is stopped.

    ``next_offset`` is where the next pull begins, -1 while that is not known. ``held_back`` says
    that only flow control keeps the task waiting: whoever makes room calls :meth:`wake`.
    ``pull_ms`` is how long the last pull took that found messages.
    """

    __slots__ = (
        "_broker_id",
        "_epoch",
        "_failures",
        "_fields",
        "_lite",
        "_prefetching",
        "_puller",
        "_subscription",
        "_timer",
        "held_back",
        "next_offset",
        "process_queue",
        "pull_ms",
        "queue",
    )

    def __init__(
        self, puller: Puller, queue: MessageQueue, process_queue: ProcessQueue, offset: int = -1
    ) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.next_offset = offset
        self.held_back = False
        self.pull_ms = 0
        self._puller = puller
        self._epoch = 0  # what belongs to an earlier one comes too late
        self._timer: asyncio.TimerHandle | None = None
        self._broker_id = puller.settings.broker_id or MASTER_ID
        self._failures = 0
        self._lite = False
        self._subscription: SubscriptionData | None = None
        self._fields: dict[str, str] = {}
        self._prefetching: _Answer | None = None

    def start(self, delay_ms: int = 0) -> None:
        """Begin, after ``delay_ms``."""
        self._later(delay_ms)

    def stop(self) -> None:
        """Pull no more; an answer on its way is thrown away."""
        self._epoch += 1
        self.held_back = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def restart(self, offset: int, delay_ms: int = 0) -> None:
        """Go on at ``offset`` instead, after ``delay_ms``."""
        self.stop()
        self.next_offset = offset
        self._later(delay_ms)

    def wake(self) -> None:
        """Look again now, if the task waits for a time to come."""
        if self._timer is not None:
            self._timer.cancel()
            self._step()

    # One pull

    def _later(self, delay_ms: int) -> None:
        if delay_ms <= 0:
            self._step()
        else:
            self._timer = self._puller.loop.call_later(delay_ms / 1000, self._step)

    def _step(self) -> None:
        self._timer = None
        self.held_back = False
        # Neither flow control nor a suspension lets the queue expire.
        self.process_queue.last_pull_ms = elapsed_ms(self._puller.instance.clock)
        delay_ms = self._puller.owner.pull_delay_ms(self)
        if delay_ms > 0:
            self._later(delay_ms)
        elif self.next_offset < 0:
            self._find_out(partial(self._puller.owner.first_offset, self), self._begin_at)
        else:
            self._pull()

    def _find_out(self, ask: Callable[[], Awaitable[T]], go_on: Callable[[T], None]) -> None:
        """Have ``go_on`` take what ``ask`` gives; what that raises is a failure of the pull."""
        self._puller.instance.spawn(self._found_out(self._epoch, ask, go_on))

    async def _found_out(
        self, epoch: int, ask: Callable[[], Awaitable[T]], go_on: Callable[[T], None]
    ) -> None:
        try:
            outcome = await ask()
        except Exception as error:  # noqa: BLE001 - a user's OffsetStore may raise anything
            if epoch == self._epoch:
                self._failed(error)
        else:
            if epoch == self._epoch:
                go_on(outcome)

    def _begin_at(self, offset: int) -> None:
        self.next_offset = offset
        log.info("group %s pulls %s from %d", self._puller.group, self.queue, offset)
        self._step()

    def _pull(self) -> None:
        puller = self._puller
        self.process_queue.last_pull_ms = elapsed_ms(puller.instance.clock)
        subscription = puller.owner.subscription(self.queue.topic)
        if subscription is None:
            log.debug("group %s is not subscribed to %s", puller.group, self.queue.topic)
            self._later(puller.settings.error_delay_ms)
            return
        if subscription is not self._subscription:
            self._subscribe(subscription)
        pool = puller.instance.pool
        address = puller.instance.routes.broker_address(self.queue.broker_name, self._broker_id)
        if address is None:
            # The route, which names no broker to pull from, is fetched anew.
            find, broker = puller.instance.broker_address, self.queue.broker_name
            self._find_out(partial(find, broker, topic=self.queue.topic), lambda _: self._pull())
        elif (connection := pool.idle(address)) is not None:
            self._ask(address, connection)
        else:
            pool.acquire(address, partial(self._connected, self._epoch, address))

    def _subscribe(self, subscription: SubscriptionData) -> None:
        """Write down the fields that are the same in every pull."""
        settings = self._puller.settings
        self._subscription = subscription
        self._fields = pull_header(
            self._puller.group,
            self.queue,
            subscription,
            max_messages=settings.batch_size,
            max_bytes=settings.batch_bytes,
            suspend_ms=settings.suspend_ms,
            send_subscription=settings.send_subscription,
            tags_versioned=not settings.lite,
        ).ext_fields()

    def _connected(self, epoch: int, address: str, outcome: Connection | NetworkError) -> None:
        if epoch != self._epoch:
            return
        if isinstance(outcome, NetworkError):
            self._failed(outcome)
        else:
            self._ask(address, outcome)

    def _ask(self, address: str, connection: Connection) -> None:
        puller = self._puller
        settings = puller.settings
        commit = puller.owner.commit_offset(self.queue)
        flag = SUSPEND
        if settings.send_subscription:
            flag |= SUBSCRIPTION
        if commit > 0 and address == self._master():
            flag |= COMMIT_OFFSET
        code = RequestCode.PULL_MESSAGE
        self._lite = settings.lite and address not in puller.without_lite_pull
        if self._lite:
            code = RequestCode.LITE_PULL_MESSAGE
            flag |= LITE_PULL
        fields = self._fields
        fields["queueOffset"] = str(self.next_offset)
        fields["commitOffset"] = str(max(commit, 0))
        fields["sysFlag"] = str(flag)
        connection.request(
            code,
            fields,
            timeout_ms=settings.timeout_ms,
            on_done=partial(self._answered, self._epoch, address),
        )

    def _master(self) -> str | None:
        return self._puller.instance.routes.master_address(self.queue.broker_name)

    # Its answer

    def _answered(self, epoch: int, address: str, answer: RemotingCommand | NetworkError) -> None:
        self._hand_over_first()  # this answer may be there before the loop has come to it
        if epoch != self._epoch:
            return
        if isinstance(answer, NetworkError):
            self._failed(answer)
            return
        asked = self.next_offset
        status = STATUS_OF.get(answer.code)
        try:
            if status is PullStatus.FOUND:
                self._found(answer)
            elif status is PullStatus.OFFSET_ILLEGAL:
                self._offset_moved(answer)
            elif status is not None:
                self._move(answer)
                self._puller.owner.nothing_found(self)
                self._step()
            elif self._lacks_lite_pull(address, answer):
                self._pull()
            else:
                self._failed(self._puller.instance.error_of(answer, address))
        except HeaderError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - else nobody would ever pull again
            self._stumbled(error, asked)

    def _move(self, answer: RemotingCommand) -> PullMessageResponseHeader:
        """Take over where the broker says to go on, and which broker it suggests for that."""
        header = answer.header(PullMessageResponseHeader)
        self.next_offset = header.next_begin_offset
        if self._puller.settings.broker_id is None:
            self._broker_id = header.suggest_which_broker_id
        self._failures = 0
        return header

    def _found(self, answer: RemotingCommand) -> None:
        puller = self._puller
        self.pull_ms = elapsed_ms(puller.instance.clock) - self.process_queue.last_pull_ms
        begin = self.next_offset
        header = self._move(answer)
        interval_ms = puller.settings.interval_ms
        # Of a queue read to its end the next pull only waits: then the messages go first.
        more = header.next_begin_offset < header.max_offset
        if (
            more
            and not interval_ms
            and puller.owner.may_prefetch(self, self.next_offset - begin, len(answer.body))
        ):
            self._prefetching = _Answer(self._epoch, begin, answer.body, header)
            self._pull()
            # After this tick, in which the pull leaves.
            puller.loop.call_soon(self._hand_over_first)
            return
        count = self._hand_over(begin, answer.body, header)
        if count is not None:
            self._later(interval_ms if count else 0)

    def _hand_over_first(self) -> None:
        """Hand over what came before the pull that is under way, if that is still to be done."""
        answer, self._prefetching = self._prefetching, None
        if answer is not None and answer.epoch == self._epoch:
            self._hand_over(answer.begin, answer.body, answer.header)

    def _hand_over(
        self, begin: int, body: bytes | memoryview, header: PullMessageResponseHeader
    ) -> int | None:
        """Give the messages to the consumer; how many, None where something was wrong."""
        owner = self._puller.owner
        subscription = self._subscription
        assert subscription is not None  # noqa: S101 - set by the pull this answers
        try:
            messages = read_messages(body, self.queue, header, subscription, owner.filter_hooks)
            self._give(messages, begin, header)
        except RecordError:
            delay_ms = self._puller.settings.error_delay_ms
            log.exception(
                "%s: what the broker sent from %d on is damaged; asking again in %d ms",
                self.queue,
                begin,
                delay_ms,
            )
            self.restart(begin, delay_ms)
            return None
        except Exception as error:  # noqa: BLE001 - a user's hook may have left anything
            self._stumbled(error, begin)
            return None
        return len(messages)

    def _give(
        self, messages: list[MessageView], begin: int, header: PullMessageResponseHeader
    ) -> None:
        first = messages[0].queue_offset if messages else begin
        if header.next_begin_offset < begin or first < begin:
            log.warning(
                "%s: asked for messages from %d on the broker gave them from %d on and would go "
                "on at %d; is its consume queue damaged?",
                self.queue,
                begin,
                first,
                header.next_begin_offset,
            )
        owner = self._puller.owner
        if messages:
            owner.found(self, messages)
        else:
            owner.nothing_found(self)

    def _offset_moved(self, answer: RemotingCommand) -> None:
        asked = self.next_offset
        header = self._move(answer)
        reset = answer.remark == codes.OFFSET_RESET
        if reset:
            log.warning(
                "%s: an operator reset group %s, so it goes on at %d instead of %d",
                self.queue,
                self._puller.group,
                self.next_offset,
                asked,
            )
        else:
            log.warning(
                "%s: offset %d is not in the queue, which has %d to %d; the broker offers %d",
                self.queue,
                asked,
                header.min_offset,
                header.max_offset,
                self.next_offset,
            )
        if self._puller.owner.offset_illegal(self, reset=reset):
            self._step()

    def _lacks_lite_pull(self, address: str, answer: RemotingCommand) -> bool:
        """Whether this broker does not know LITE_PULL_MESSAGE, as those of 4.9 do not."""
        if answer.code != codes.REQUEST_CODE_NOT_SUPPORTED or not self._lite:
            return False
        without = self._puller.without_lite_pull
        if address not in without:
            log.info("the broker at %s has no LITE_PULL_MESSAGE: PULL_MESSAGE it is", address)
            without.add(address)
        return True

    # Failure

    def _failed(self, error: Exception) -> None:
        """Try again, at once or later, according to ``error``."""
        self._failures += 1
        delay_ms = self._puller.settings.error_delay_ms
        if isinstance(error, SubscriptionError):
            # The broker does not know us, or our new subscription, yet.
            self._find_out(self._puller.instance.heartbeat, lambda _: self._introduced(error))
            return
        if not isinstance(error, OrbitMQError):
            self._stumbled(error, self.next_offset)
            return
        if isinstance(error, RequestTimeoutError):
            delay_ms = 0  # it waited long enough
        elif isinstance(error, BrokerError):
            if error.code == _FLOW_CONTROL_CODE:
                delay_ms = _BUSY_BROKER_DELAY_MS
            elif error.refresh_route:
                self._puller.instance.spawn(self._refresh_route())
        self._log_failure(error, delay_ms)
        self._later(delay_ms)

    def _stumbled(self, error: Exception, offset: int) -> None:
        """Try again after an error of the user's own code, such as an OffsetStore, or of ours."""
        delay_ms = self._puller.settings.error_delay_ms
        log.error(
            "group %s: pulling %s raised what is no error of a broker's, most likely in code of "
            "the application; again in %d ms",
            self._puller.group,
            self.queue,
            delay_ms,
            exc_info=error,
        )
        self.restart(offset, delay_ms)

    def _introduced(self, error: SubscriptionError) -> None:
        most = self._puller.settings.error_delay_ms
        delay_ms = min(most, _NEW_SUBSCRIPTION_DELAY_MS << min(self._failures - 1, 10))
        if self._failures > 1:  # once is usual after a broker, or a subscription, began anew
            self._log_failure(error, delay_ms)
        self._later(delay_ms)

    async def _refresh_route(self) -> None:
        try:
            await self._puller.instance.fetch_route(self.queue.topic)
        except OrbitMQError as error:
            log.debug("the route of %s was not refreshed: %s", self.queue.topic, error)

    def _log_failure(self, error: OrbitMQError, delay_ms: int) -> None:
        # Retry topics come into being with the first heartbeat; until then there is nothing odd.
        level = logging.DEBUG if self.queue.topic.startswith(RETRY_PREFIX) else logging.WARNING
        group = self._puller.group
        log.log(level, "group %s pulls %s again in %d ms: %s", group, self.queue, delay_ms, error)
