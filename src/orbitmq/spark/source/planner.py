"""What the micro-batches of a stream take: planned beside the driver for as long as it runs.

Whatever changes from one batch to the next is in Spark's offsets; what is kept here only saves
asking again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Final

from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import ConnectError, NetworkError, OrbitMQError, TopicNotFoundError
from orbitmq.spark.patience import Patience
from orbitmq.spark.progress.lag import LagMeter
from orbitmq.spark.source.admission import Admittance
from orbitmq.spark.source.boundaries import Resolver
from orbitmq.spark.source.offsets import (
    Bounds,
    Offsets,
    Place,
    Position,
    Queue,
    begin_at,
    check_loss,
    places_made_anew,
    queues_to_ask,
    seen_now,
)
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.sizes import RecordSizes
from orbitmq.spark.source.topic import TopicClient
from orbitmq.spark.source.topic_queues import MANY
from orbitmq.spark.source.watch import ArrivalWatch

log = logging.getLogger("orbitmq.spark")

POLLING_GAP_SECONDS: Final = 0.05
"""Spark asks again after less than this only when it found nothing to do anywhere."""
CHECK_SECONDS: Final = 10.0
"""How often it is checked whether more than MANY topics were made anew."""

_MIN_WAIT_MS: Final = 50


class StreamPlanner:
    """Plans the batches of one query. Not for more than one thread."""

    def __init__(self, options: ReadOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._topics = TopicClient(
            options.name_servers, options.choice, options.access, options.namespace, clock
        )
        self._watch = ArrivalWatch(options)
        self._sizes = RecordSizes(options)
        self._admittance = Admittance(options.admission)
        self._target: Mapping[Queue, int] | None = None  # of Trigger.AvailableNow
        self._lag = LagMeter(options, self._topics, clock)
        self._latest: Offsets = {}
        self._planned: Offsets = {}
        self._committed: Offsets = {}
        self._positions: deque[tuple[dict[str, Any], Position]] = deque(maxlen=2)
        self._told: set[str] = set()
        self._checked_at: float | None = None
        self._returned_at: float | None = None

    def prepare_for_available_now(self) -> None:
        """Take what is there now as all there is to read."""
        bounds = self._fetch_bounds(all_brokers=True)
        self._target = {queue: bound.end for queue, bound in bounds.items()}

    def latest_offset(self, start: dict[str, Any], *, limited: bool = True) -> dict[str, Any]:
        """Where the batch that begins at ``start`` ends; ``start`` itself when nothing is new.

        That Spark asks with ``start`` means everything before it is done for good, so this is
        where a group's offsets are committed: Spark's ``commit`` comes a batch late and never for
        the last one. An idle query waits here for messages, see :meth:`_wait_for_arrival`. Without
        ``limited`` the batch takes all there is, whatever the options say.
        """
        previous = self._position(start)
        self._commit(previous.queues)
        end = self._next_position(previous, limited=limited, first="initial" in start)
        if end is previous and self._may_wait():
            end = self._wait_for_arrival(previous, limited=limited)
        self._returned_at = self._clock.monotonic()
        self._planned = end.queues
        return start if end is previous else end.to_json()

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[QueueRange]:
        """What the batch between two offsets reads."""
        position = self._position(end)
        begins = self._position(start).queues | position.since
        if unknown := position.queues.keys() - begins.keys():
            raise OrbitMQError(f"{start} and {end} are not a batch: no beginning of {min(unknown)}")
        moved = {queue: last for queue, last in position.queues.items() if last > begins[queue]}
        if moved.keys() - self._topics.addresses.keys():
            self._wait_for(moved)
        return [
            QueueRange(*queue, self._topics.address(queue), begins[queue], last)
            for queue, last in moved.items()
        ]

    def latest_known(self) -> dict[str, Any] | None:
        """The ends of all queues as last seen and the lag, for Spark's progress report.

        The lag is what is left when the batch that was planned last has been read.
        """
        if not self._latest:
            return None
        lag = self._lag.measure(self._planned, self._latest)
        return Position(self._latest, {}).to_json() | {"lag": lag.to_json()}

    def close(self) -> None:
        """Leave the brokers."""
        self._watch.close()

    def _wait_for(self, queues: Collection[Queue]) -> None:
        """Wait until it is known where ``queues`` of a batch that was planned are read.

        When a query is started again their broker may be away, and the name server know nothing of
        it, nor of its topics.
        """
        patience = Patience("planning", self._options.broker_wait_ms)
        while True:
            try:
                self._topics.refresh()
                for queue in queues:
                    self._topics.address(queue)
            except TopicNotFoundError as error:
                patience.wait_after(ConnectError(str(error), error.address))
            except NetworkError as error:
                patience.wait_after(error)
            else:
                return

    def _position(self, document: dict[str, Any]) -> Position:
        """The position in ``document``, most often one of the last two that were asked for."""
        for known, position in self._positions:
            if known == document:
                return position
        position = Position.from_json(document, self._options.choice.only_topic)
        self._positions.appendleft((document, position))
        return position

    def _next_position(self, previous: Position, *, limited: bool, first: bool = False) -> Position:
        """The end of the batch after ``previous``, or ``previous`` itself.

        A ``first`` one is always new, if only to tell that there were no topics yet: those that
        come later begin where new queues do.
        """
        known = previous.queues
        if self._target is None:
            bounds = self._fetch_bounds(all_brokers=first)
        else:
            unread = [queue for queue, end in self._target.items() if end > known.get(queue, 0)]
            bounds = _capped(self._fetch_bounds(all_brokers=True, required=unread), self._target)
        begins, lost = self._begins(previous, bounds, first=first)
        ends = {queue: max(begin, bounds[queue].end) for queue, begin in begins.items()}
        if limited:
            ends = self._admittance.admit(
                begins,
                ends,
                now=self._clock.monotonic(),
                record_bytes=lambda queue: self._sizes.of(
                    queue, begins[queue], self._topics.address(queue)
                ),
                may_delay=self._target is None and not first,
            )
        moved = {
            queue
            for queue, end in ends.items()
            if first or end > begins[queue] or end != known.get(queue, end)
        }
        if self._options.new_queue_offsets == "latest":
            # Where such a queue begins must not depend on when it is first written to.
            moved |= ends.keys() - known.keys()
        if not moved and not first:
            return previous
        since = {queue: begins[queue] for queue in moved if known.get(queue) != begins[queue]}
        return Position(
            known | {queue: ends[queue] for queue in moved},
            since,
            seen_now(previous.seen, self._topics.stored, lost),
        )

    def _begins(
        self, previous: Position, bounds: Mapping[Queue, Bounds], *, first: bool
    ) -> tuple[Offsets, set[Place]]:
        """Where the next batch begins, and which topics were made anew."""
        options = self._options
        if first:
            resolver = Resolver(
                self._topics, self._clock.now_ms(), options.group, options.late_start_is_error
            )
            wanted = resolver.resolve("startingOffsets", options.starting_offsets, bounds)
            anew: set[Place] = set()
        else:
            latest = options.new_queue_offsets == "latest"
            wanted = {
                queue: bound.end if latest else bound.first for queue, bound in bounds.items()
            }
            wanted |= previous.queues
            anew = self._made_anew(previous, bounds)
        deleted = self._deleted(previous.queues)
        check_loss(deleted, fail_on_data_loss=options.fail_on_data_loss)
        begins, losses = begin_at(
            wanted, bounds, fail_on_data_loss=options.fail_on_data_loss, made_anew=anew
        )
        self._tell(deleted + losses)
        return begins, anew

    def _made_anew(self, previous: Position, bounds: Mapping[Queue, Bounds]) -> set[Place]:
        """The topics, by broker, all of whose messages are newer than all that was known.

        For many topics only now and then, as the answers cost time.
        """
        asked = queues_to_ask(previous.queues, bounds, previous.seen)
        now = self._clock.monotonic()
        recently = self._checked_at is not None and now - self._checked_at < CHECK_SECONDS
        if not asked or (recently and len(asked) > MANY):
            return set()
        self._checked_at = now
        try:
            stored = self._topics.first_stored(asked.values())
        except NetworkError as error:
            log.warning("whether topics were made anew is checked later: %s", error)
            self._checked_at = None
            return set()
        return places_made_anew(asked, stored, previous.seen)

    def _deleted(self, known: Offsets) -> list[str]:
        """The topics something was read of and whose broker does not know them any more."""
        deleted = sorted({queue[:2] for queue in self._topics.deleted if known.get(queue)})
        return [f"{topic} was deleted from {broker_name}" for topic, broker_name in deleted]

    def _tell(self, losses: list[str]) -> None:
        """Log what is lost, each but once: an idle query comes by here every second."""
        for loss in losses:
            if loss not in self._told:
                log.warning("data loss: %s", loss)
        self._told = {*losses}

    def _fetch_bounds(
        self, *, all_brokers: bool, required: Collection[Queue] = ()
    ) -> dict[Queue, Bounds]:
        if all_brokers:
            bounds = self._topics.all_bounds(self._options.broker_wait_ms, required)
        else:
            if not self._topics.addresses:
                self._wait_for(())
            self._topics.refresh()
            bounds = self._topics.bounds(all_brokers=False)
        self._latest.update({queue: bound.end for queue, bound in bounds.items()})
        for queue in self._topics.deleted:
            self._latest.pop(queue, None)  # nobody waits for messages of it
        return bounds

    def _may_wait(self) -> bool:
        """Whether Spark polls an idle query, so that nobody is kept waiting.

        It asks again within milliseconds only if no source of the query had anything. A first
        call, or one after a batch or at a trigger's interval, is answered at once.
        """
        return (
            self._options.idle_wait_ms > 0
            and self._target is None
            and self._returned_at is not None
            and self._clock.monotonic() - self._returned_at < POLLING_GAP_SECONDS
        )

    def _wait_for_arrival(self, previous: Position, *, limited: bool) -> Position:
        """The next position as soon as there is one, or ``previous`` after ``idle_wait_ms``."""
        deadline = self._clock.monotonic() + self._options.idle_wait_ms / 1000
        while (left_ms := int((deadline - self._clock.monotonic()) * 1000)) > _MIN_WAIT_MS:
            if not self._watch.wait(self._latest, self._topics.addresses, left_ms):
                break
            end = self._next_position(previous, limited=limited)
            if end is not previous:
                return end
            # A broker said there was something where nothing is, or there is too little for a
            # batch: do not ask in a tight loop.
            time.sleep(_MIN_WAIT_MS / 1000)
        return previous

    def _commit(self, done: Offsets) -> None:
        group = self._options.group
        if group is None:
            return
        news = {
            queue: offset for queue, offset in done.items() if self._committed.get(queue) != offset
        }
        if not news:
            return
        if any(queue not in self._topics.addresses for queue in news):
            self._topics.refresh()
        self._committed.update(self._topics.commit(group, news))


def _capped(bounds: Mapping[Queue, Bounds], target: Mapping[Queue, int]) -> dict[Queue, Bounds]:
    """The bounds as if nothing had come after ``target`` was taken."""
    return {
        queue: Bounds(min(bound.first, target[queue]), min(bound.end, target[queue]))
        for queue, bound in bounds.items()
        if queue in target
    }
