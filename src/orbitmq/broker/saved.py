"""The broker's tables as files under ``config/``, in Apache's form and names.

Each is saved as a whole, off the broker's thread, at intervals and when the broker closes. What
changes in topics and groups is in a journal beside the file before it is answered for, however many
there are. Apache's brokers read no journal, so a small table is saved at once besides, a big one as
seldom as it is big. The next start reads both, and a broker that closes leaves no journal. A table
that cannot be read, or is empty, is taken from its backup; when that cannot be read either, the
broker does not start, because it would otherwise save an empty one over it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from orbitmq.broker.beside import BIG_TABLE, encode_beside
from orbitmq.broker.groups import GroupChange, GroupTable
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.request_modes import RequestModes
from orbitmq.broker.schedule import Delivery
from orbitmq.broker.table import ConfigTable, TableChange
from orbitmq.broker.timer_metrics import TimerMetrics, TimerMetricsSerializeWrapper
from orbitmq.broker.topics import TopicChange, TopicTable
from orbitmq.broker.transaction_metrics import (
    TransactionMetrics,
    TransactionMetricsSerializeWrapper,
)
from orbitmq.clock import Clock
from orbitmq.errors import BodyError, CorruptStoreError, StoreError
from orbitmq.store.config_file import ConfigFile
from orbitmq.store.journal import Journal
from orbitmq.wire.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from orbitmq.wire.topic_bodies import MessageRequestModeSerializeWrapper

log = logging.getLogger("orbitmq.broker")

_BodyT = TypeVar("_BodyT", bound=Body)

_REST: Final = 20
"""How many times as long as it took to save a table it is not saved again: a big one would keep
the interpreter busy all the time."""
_LONG_REST: Final = 200
"""The same for a big table whose changes are in a journal."""
_REST_AFTER_FAILURE: Final = 1.0
"""In seconds."""


class DelayOffsets(Body, frozen=True):
    """How far each delay level is delivered; the form of ``config/delayOffset.json``."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion | None = None


class _Table(Protocol):
    """What is saved; ``changed`` says that it differs from its file."""

    changed: bool


class Tables(NamedTuple):
    """The tables that are saved; without timers there are no metrics of them."""

    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    delivery: Delivery
    request_modes: RequestModes
    transaction_metrics: TransactionMetrics
    timer_metrics: TimerMetrics | None


class SavedTables:
    """Loads and saves the tables of one broker; ``directory`` is the store's.

    With ``sync`` a change of topics or groups is on the disk before it is answered for.
    ``deleted_topics`` are those which a broker that was killed had deleted shortly before.
    """

    def __init__(
        self,
        directory: Path,
        tables: Tables,
        clock: Clock,
        *,
        sync: bool,
    ) -> None:
        topics, groups, offsets, delivery, request_modes, half_messages, timer_metrics = tables
        self.deleted_topics: set[str] = set()
        config = directory / "config"
        now_ms = clock.now_ms
        self._topics_table = topics
        self._groups_table = groups
        self._offsets_table = offsets
        self._delivery = delivery
        self._modes_table = request_modes
        self._offsets_version = DataVersion(timestamp=now_ms())
        self._delays_version = DataVersion(timestamp=now_ms())
        writer = ThreadPoolExecutor(1, "orbitmq-saver")
        self._writer = writer

        def offsets_now() -> Body:
            self._offsets_version = self._offsets_version.next(now_ms())
            return self.consumer_offsets()

        def delays_now() -> Body:
            self._delays_version = self._delays_version.next(now_ms())
            return self.delay_offsets()

        self._topics = _JournaledFile(
            config / "topics.json",
            topics,
            lambda: TopicConfigSerializeWrapper(dict(topics.topics), topics.version),
            writer,
            clock,
            sync=sync,
        )
        self._groups = _JournaledFile(
            config / "subscriptionGroup.json",
            groups,
            lambda: SubscriptionGroupWrapper(
                subscription_group_table=dict(groups.groups),
                forbidden_table=dict(groups.forbidden),
                data_version=groups.version,
            ),
            writer,
            clock,
            sync=sync,
        )
        self._offsets = _SavedFile(
            config / "consumerOffset.json", offsets, offsets_now, writer, clock
        )
        self._delays = _SavedFile(config / "delayOffset.json", delivery, delays_now, writer, clock)
        self._modes = _SavedFile(
            config / "messageRequestMode.json",
            request_modes,
            request_modes.snapshot,
            writer,
            clock,
        )
        self._half_messages_table = half_messages
        path = config / "transactionMetrics"
        self._half_messages = _SavedFile(path, half_messages, half_messages.snapshot, writer, clock)
        self._all = [
            self._topics,
            self._groups,
            self._offsets,
            self._delays,
            self._modes,
            self._half_messages,
        ]
        self._metrics_table = timer_metrics
        if timer_metrics is not None:
            path = config / "timermetrics"
            self._metrics = _SavedFile(path, timer_metrics, timer_metrics.snapshot, writer, clock)
            self._all.append(self._metrics)

    def load(self) -> None:
        """Take in what was saved. Raises StoreError when it cannot be read."""
        topics = _load(self._topics.file, TopicConfigSerializeWrapper)
        if topics is not None:
            self._topics_table.load(topics.topic_config_table, topics.data_version)
        changes = self._topics.replay(TopicChange, has_file=topics is not None)
        self.deleted_topics = {change.name for change in changes} - self._topics_table.topics.keys()
        groups = _load(self._groups.file, SubscriptionGroupWrapper)
        if groups is not None:
            self._groups_table.load(groups.subscription_group_table, groups.data_version)
            self._groups_table.forbidden.update(groups.forbidden_table)
        self._groups.replay(GroupChange, has_file=groups is not None)
        offsets = _load(self._offsets.file, ConsumerOffsetSerializeWrapper)
        if offsets is not None:
            self._offsets_table.load(offsets.offset_table)
            self._offsets_version = offsets.data_version or self._offsets_version
        delays = _load(self._delays.file, DelayOffsets)
        if delays is not None:
            self._delivery.load(delays.offset_table)
            self._delays_version = delays.data_version or self._delays_version
        modes = _load(self._modes.file, MessageRequestModeSerializeWrapper)
        if modes is not None:
            self._modes_table.load(modes.message_request_mode_map)
        half_messages = _load_counts(self._half_messages.file, TransactionMetricsSerializeWrapper)
        if half_messages is not None:
            self._half_messages_table.load(half_messages)
        if self._metrics_table is not None:
            metrics = _load_counts(self._metrics.file, TimerMetricsSerializeWrapper)
            if metrics is not None:
                self._metrics_table.load(metrics)

    def consumer_offsets(self) -> ConsumerOffsetSerializeWrapper:
        """The consumer offsets as they are now."""
        table = self._offsets_table.snapshot()
        return ConsumerOffsetSerializeWrapper(table, self._offsets_version)

    def delay_offsets(self) -> DelayOffsets:
        """The delivery offsets of delayed messages as they are now."""
        return DelayOffsets(dict(self._delivery.offsets), self._delays_version)

    @property
    def saving(self) -> bool:
        """Whether a table is being saved in the background."""
        return any(saved.saving for saved in self._all)

    def save_changes(self) -> None:
        """Write down what has changed in topics and groups: at the end of every turn."""
        self._topics.write_down()
        self._groups.write_down()

    def save_small_tables(self) -> None:
        """Save topics and groups that changed, in the background, where there are few of them."""
        if self._topics_table.changed or self._groups_table.changed:
            self._topics.save_if_small()
            self._groups.save_if_small()

    def save_topics_and_groups(self) -> None:
        """Save them where they changed, in the background."""
        for saved in (self._topics, self._groups):
            saved.write_down(again=True)
            saved.save_later()
        self._modes.save_later()

    def save_offsets(self) -> None:
        """Save the consumer offsets where they changed, in the background."""
        self._offsets.save_later()

    def save_delays(self) -> None:
        """Save how far delayed messages are, and what waits, in the background."""
        self._delays.save_later()
        self._half_messages.save_later()
        if self._metrics_table is not None:
            self._metrics.save_later()

    def close(self) -> None:
        """Save everything that changed, and end the background thread."""
        self._writer.shutdown()
        for saved in self._all:
            saved.close()


class _SavedFile:
    """A table and its file. ``snapshot`` gives the table as it is now, untouched by later changes.

    It is taken on the broker's thread; to encode and to write it is the background thread's, which
    is at it while ``saving``.
    """

    def __init__(
        self,
        path: Path,
        table: _Table,
        snapshot: Callable[[], Body],
        writer: ThreadPoolExecutor,
        clock: Clock,
    ) -> None:
        self.file: Final = ConfigFile(path)
        self._table = table
        self._snapshot = snapshot
        self._writer = writer
        self._clock = clock
        self.saving = False
        self._rest_until = 0.0
        self._complaints = set[str]()

    def save_later(self) -> None:
        """Save the table in the background, if it changed and is not being saved now.

        What cannot be saved stays changed, for the next call to try again.
        """
        if self.saving or not self._table.changed or self._clock.monotonic() < self._rest_until:
            return
        self.saving = True
        body = self._begin()
        self._writer.submit(self._save_in_background, body).add_done_callback(_tell_failure)

    def close(self) -> None:
        """Save the table if it changed, now that the background thread has ended."""
        if self._table.changed:
            self._save(self._begin(), Body.encode)

    def _begin(self) -> Body:
        self._table.changed = False
        return self._snapshot()

    def _save_in_background(self, body: Body) -> None:
        begun = self._clock.monotonic()
        rest = _REST_AFTER_FAILURE
        try:
            if self._save(body, encode_beside):
                rest = self._rest() * (self._clock.monotonic() - begun)
        finally:
            self._rest_until = self._clock.monotonic() + rest
            self.saving = False

    def _rest(self) -> int:
        """How many times as long as it took to save the table it is not saved again."""
        return _REST

    def _save(self, body: Body, encode: Callable[[Body], bytes]) -> bool:
        """Whether the table is saved; it stays changed otherwise."""
        saved = False
        try:
            self.file.save(encode(body))
            self._saved()
            saved = True
            self._complaints.clear()
        except StoreError as error:
            self._complain(error)
        finally:
            if not saved:
                self._table.changed = True  # so that the next round tries again
        return saved

    def _saved(self) -> None:
        """Do what may be done now that the file is on the disk."""

    def _complain(self, error: StoreError) -> None:
        if str(error) not in self._complaints:  # once, not every five seconds
            log.error("%s is kept in memory, it cannot be saved: %s", self.file.path.name, error)
            self._complaints.add(str(error))


class _JournaledFile(_SavedFile):
    """A table whose changes are written down at once."""

    def __init__(
        self,
        path: Path,
        table: ConfigTable[Any],
        snapshot: Callable[[], Body],
        writer: ThreadPoolExecutor,
        clock: Clock,
        *,
        sync: bool,
    ) -> None:
        super().__init__(path, table, snapshot, writer, clock)
        self._journal = Journal(path.with_name(path.name + ".journal"), sync=sync)
        self._changes = table
        self._tried = 0

    def replay(self, form: type[TableChange], *, has_file: bool) -> list[TableChange]:
        """Make the changes again that a broker which was killed had written down; returns them.

        Those the file has already, and those of another state of it, are left out.
        """
        entries = self._journal.read()
        if entries is None:
            return []
        table = self._changes
        table.changed = True
        changes = [_decoded(form, entry, self._journal.path) for entry in entries]
        if changes and not has_file:
            table.version = changes[0].before
        made = [change for change in changes if table.replay(change)]
        log.info("%d changes to %s were not saved yet", len(made), self.file.path.name)
        if changes and changes[-1].after != table.version:
            log.warning(
                "%d changes in %s are left out: %s has been saved by another broker since",
                len(changes) - len(made), self._journal.path.name, self.file.path.name,
            )  # fmt: skip
        return made

    def save_if_small(self) -> None:
        """Save the table, as :meth:`save_later`, if that costs little."""
        if not self._is_big():
            self.save_later()

    def write_down(self, *, again: bool = False) -> None:
        """Put what has changed into the journal.

        What cannot be put there waits until more changes, or for a call with ``again``.
        """
        changes = self._changes.changes
        if not changes or (len(changes) == self._tried and not again):
            return
        try:
            self._journal.append(change.encode() for change in changes)
            changes.clear()
        except StoreError as error:
            self._complain(error)
        self._tried = len(changes)

    def close(self) -> None:
        """As of any saved file; the journal goes, unless it is still needed."""
        self.write_down(again=True)
        super().close()
        try:
            if not self._table.changed:
                self._journal.remove()
        except StoreError as error:
            self._complain(error)
        self._journal.close()

    def _rest(self) -> int:
        return _LONG_REST if self._is_big() else _REST

    def _is_big(self) -> bool:
        return len(self._changes.entries) > BIG_TABLE

    def _begin(self) -> Body:
        try:
            self._journal.retire()
        except StoreError as error:
            self._complain(error)
        return super()._begin()

    def _saved(self) -> None:
        self._journal.drop_retired()


def _tell_failure(saving: Future[None]) -> None:
    error = saving.exception()
    if error is not None:
        log.error("a table was not saved, it is kept in memory", exc_info=error)


_WITHOUT: Final = {
    "topics.json": "topics are made anew by what is sent to them, with the default queues",
    "subscriptionGroup.json": "consumer groups have the default settings",
    "consumerOffset.json": "consumer groups begin where new ones do",
    "messageRequestMode.json": "consumer groups get their messages by pull",
    "delayOffset.json": "delayed messages are delivered again, all that are still stored",
}
"""What a broker does without each file."""


def _decoded(form: type[_BodyT], entry: bytes, path: Path) -> _BodyT:
    try:
        return form.decode(entry)
    except BodyError as error:
        raise CorruptStoreError(
            f"{path} has a change that cannot be read ({error}): start the version that wrote it, "
            "or remove the file to start without the changes it holds",
            str(path),
        ) from error


def _load(file: ConfigFile, form: type[_BodyT]) -> _BodyT | None:
    try:
        return file.load_as(form.decode)
    except CorruptStoreError as error:
        without = f"without it {_WITHOUT[file.path.name]}"
        raise CorruptStoreError(f"{error}: {without}", error.path) from error


def _load_counts(file: ConfigFile, form: type[_BodyT]) -> _BodyT | None:
    """Numbers for tools: without them the broker starts all the same."""
    try:
        return file.load_as(form.decode)
    except CorruptStoreError as error:
        log.warning("what waits is counted from 0: %s", error)
        return None
