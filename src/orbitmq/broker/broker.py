"""A broker without a network: its store, its tables, and the services over them.

One thread owns it. Whoever brings requests in (server.py for the remoting protocol) calls the
services, then :meth:`Broker.write` at the end of each turn, and :meth:`Broker.run_due` when
:meth:`Broker.wait_ms` has passed.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from orbitmq.broker.clean_up import CleanUp
from orbitmq.broker.clients import ConsumerTable, ProducerTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.deferring import Deferring
from orbitmq.broker.due import DueWork
from orbitmq.broker.filter_budget import FilterBudget
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.locks import QueueLocks
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.operating import Operating
from orbitmq.broker.pulling import Pulling
from orbitmq.broker.queries import Queries
from orbitmq.broker.recalling import Recalling
from orbitmq.broker.replying import Replying
from orbitmq.broker.request_modes import RequestModes
from orbitmq.broker.retry import Retrying
from orbitmq.broker.saved import SavedTables, Tables
from orbitmq.broker.schedule import LOOK_INTERVAL_MS, Delivery
from orbitmq.broker.sending import Sending
from orbitmq.broker.settings import KEPT_SETTINGS, KEYS
from orbitmq.broker.statistics import COLLECT_INTERVAL_MS, FORGET_INTERVAL_MS, Statistics
from orbitmq.broker.timer_flusher import TimerFlusher
from orbitmq.broker.timer_metrics import TimerMetrics
from orbitmq.broker.timers import Timers, open_timers
from orbitmq.broker.timetable import Interval, Timetable
from orbitmq.broker.topics import TopicTable
from orbitmq.broker.transaction_check import Rules
from orbitmq.broker.transaction_checker import TransactionChecker
from orbitmq.broker.transaction_metrics import TransactionMetrics
from orbitmq.broker.transactions import Transactions
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import StoreError
from orbitmq.live_settings import LiveSettings
from orbitmq.names import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.store.appended import Written, arrivals
from orbitmq.store.config import FlushMode
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.file_ops import FILE_OPS, FileOps
from orbitmq.store.message_store import MessageStore

log = logging.getLogger("orbitmq.broker")

_IN_MEMORY_RATIO: Final = 0.4
_NOTHING_DUE_MS: Final = 1 << 31
_CLEAN_TIMERS_MS: Final = 30_000
"""How often files of the timer log are looked for that are of no use any more."""
_SAVE_SMALL_TABLES_MS: Final = 1_000
"""How often small tables are saved that could not be at the end of the tick that changed them."""


class Broker:
    """All that a broker is but its connections, over the store in ``directory``.

    ``store_host`` is its address as records hold it, ``file_ops`` the calls that reach the disk.
    ``answer_ready`` is called whenever held pulls may be ready, which is after each write. Raises
    StoreError when the directory cannot be used.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directory: Path,
        store_host: bytes,
        clock: Clock = SYSTEM_CLOCK,
        file_ops: FileOps = FILE_OPS,
    ) -> None:
        self.settings = LiveSettings(
            KEYS,
            config,
            clock.now_ms,
            kept_in=directory / "config" / KEPT_SETTINGS,
            given_in=config.settings_file,
        )
        self.settings.watch(self._renew)
        config = self.settings.current
        self.clock = clock
        self.store_host = store_host
        self.answer_ready: Callable[[], None] = _nothing
        delays = DelayLevels(config.store_config.delay_levels)
        self.statistics = Statistics(config.cluster_name, clock.now_ms(), self.now_ms())
        with ExitStack() as undo:
            self.store = MessageStore.open(directory, config.store_config, clock, file_ops)
            undo.callback(self.store.close)
            self._make_tables(config, delays)
            self._make_delivery(config, delays, file_ops, undo)
            self._make_transactions(config)
            self._make_sending(config)
            self._make_pulling(config)
            self._make_operating(config)
            self._load_tables(directory, config)
            undo.pop_all()
        self._waiting = self._what_waits()
        self._timetable = self._make_timetable()
        self._held = self.pulling.held
        self.retrying.on_sent_back = self._sent_back
        self.store.add_write_listener(self.statistics.written)
        self.store.add_write_listener(self._written)

    def _make_tables(self, config: BrokerConfig, delays: DelayLevels) -> None:
        """What is known of topics, groups and clients."""
        self.topics = TopicTable(config, self.clock.now_ms, delays.max_level)
        self.groups = GroupTable(config, self.clock.now_ms)
        self.offsets = ConsumerOffsets(most=config.max_offset_entries)
        self.consumers: ConsumerTable[Hashable] = ConsumerTable()
        self.producers: ProducerTable[Hashable] = ProducerTable()
        self.locks = QueueLocks()
        self.request_modes = RequestModes(self.topics, self.groups)

    def _make_delivery(
        self, config: BrokerConfig, delays: DelayLevels, file_ops: FileOps, undo: ExitStack
    ) -> None:
        """What comes later: retries, delays and timers."""
        self.retrying = Retrying(
            config,
            self.store,
            self.topics,
            self.groups,
            self.locks,
            delays,
            self.now_ms,
            self.store_host,
        )
        self.delivery = Delivery(self.store, delays, self.write)
        self.timers = self._open_timers(file_ops)
        self._timer_flusher: TimerFlusher | None = None
        if self.timers is not None:
            self._timer_flusher = TimerFlusher(self.timers.timers, self.clock.now_ms)
            undo.callback(self._timer_flusher.close)
        self.deferring = Deferring(self.store, config.broker_name, self.timers, self.clock.now_ms)

    def _make_transactions(self, config: BrokerConfig) -> None:
        metrics = TransactionMetrics(self.clock.now_ms)
        self.transactions = Transactions(
            self.store,
            self.store_host,
            config.transaction_timeout_ms,
            self.clock.now_ms,
            metrics,
        )
        self.transaction_checker = TransactionChecker(
            self.store,
            self.offsets,
            self.topics,
            _rules(config),
            self.write,
            self.clock.now_ms,
            metrics,
        )

    def _make_sending(self, config: BrokerConfig) -> None:
        """What producers ask for."""
        self.sending = Sending(
            config,
            self.store,
            self.topics,
            self.retrying,
            self.deferring,
            self.transactions.metrics,
            self.store_host,
        )
        self.recalling = Recalling(
            config, self.store, self.topics, self.clock.now_ms, self.store_host
        )
        self.replying: Replying[Hashable] = Replying(
            self.sending, self.producers, store=config.store_reply_messages
        )

    def _make_pulling(self, config: BrokerConfig) -> None:
        """What consumers ask for."""
        self.filter_budget = FilterBudget(self.clock.monotonic)
        self.pulling: Pulling[Hashable, Any] = Pulling(
            config,
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            self.filter_budget,
            self.statistics,
        )

    def _make_operating(self, config: BrokerConfig) -> None:
        """What operators and tools ask for."""
        self.queries: Queries[Hashable] = Queries(self.store, self.consumers)
        self.operating: Operating[Hashable] = Operating(
            config.broker_name,
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            self.pulling.held,
        )
        self.clean_up = CleanUp(
            config, self.store, self.topics, self.groups, self.offsets, self.statistics
        )

    def _load_tables(self, directory: Path, config: BrokerConfig) -> None:
        tables = Tables(
            self.topics,
            self.groups,
            self.offsets,
            self.delivery,
            self.request_modes,
            self.transactions.metrics,
            self.timers.metrics if self.timers is not None else None,
        )
        sync = config.store_config.flush_mode is FlushMode.SYNC
        self.saved = SavedTables(directory, tables, self.clock, sync=sync)
        self.saved.load()
        for topic in self.saved.deleted_topics:  # its queues may be there still
            self.store.delete_topic(topic)

    def _what_waits(self) -> list[DueWork]:
        waiting = [DueWork("delayed messages", self.delivery)]
        if self.timers is not None:
            waiting.append(DueWork("messages with timers", self.timers))
        return waiting

    def _make_timetable(self) -> Timetable:
        timetable = Timetable(self.now_ms())
        every = timetable.every
        every(lambda: self.config.hold_sweep_interval_ms, self._sweep_held)
        every(lambda: self.config.offset_save_interval_ms, self.saved.save_offsets)
        every(lambda: self.config.offset_save_interval_ms, self.saved.save_topics_and_groups)
        every(_SAVE_SMALL_TABLES_MS, self.saved.save_small_tables)
        every(lambda: self.config.delay_offset_save_interval_ms, self.saved.save_delays)
        every(lambda: self.config.scan_interval_ms, self._forget_locks)
        every(lambda: self.config.transaction_check_interval_ms, self.transaction_checker.begin)
        every(COLLECT_INTERVAL_MS, self._collect_statistics)
        every(FORGET_INTERVAL_MS, self._forget_statistics)
        every(LOOK_INTERVAL_MS, self._look_for_due)
        if self._timer_flusher is not None:
            every(
                lambda: self.config.store_config.timer_flush_interval_ms,
                self._timer_flusher.flush_later,
            )
            every(_CLEAN_TIMERS_MS, self._clean_timers)
        return timetable

    def _open_timers(self, file_ops: FileOps) -> Timers | None:
        if not self.store.config.timer_wheel:
            return None
        timers = open_timers(self.store, file_ops, self.clock.now_ms())
        return Timers(self.store, timers, TimerMetrics(self.clock.now_ms), self.write)

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now; those who keep parts of them watch ``settings``."""
        return self.settings.current

    @property
    def ip(self) -> str:
        """Its address as records hold it."""
        return str(ipaddress.ip_address(self.store_host[:-4]))

    @property
    def port(self) -> int:
        """Its port as records hold it."""
        return int.from_bytes(self.store_host[-4:], "big")

    def every(self, interval: Interval, action: Callable[[], object]) -> None:
        """Have ``action`` repeated among the broker's own periodic jobs."""
        self._timetable.every(interval, action)

    def now_ms(self) -> int:
        """The time that intervals are counted in: ms, never set back."""
        return int(self.clock.monotonic() * 1000)

    def write(self) -> None:
        """Bring what was staged into the store, and let the pulls that waited for it go.

        Raises StoreError when the store takes nothing; nothing of it was stored then.
        """
        staged, started = self.store.staged, perf_counter()
        try:
            self.store.write()
        except StoreError:
            self.statistics.store.put_failed += staged
            raise
        self.statistics.store.wrote(staged, perf_counter() - started)
        self.answer_ready()

    def run_due(self) -> None:
        """Do what is due by now: deliver delayed messages, run periodic jobs."""
        self.filter_budget.renew()
        now_ms = self.clock.now_ms()
        for work in self._waiting:
            work.run_if_due(now_ms)
        self._timetable.run(self.now_ms())
        if self.transaction_checker.busy:
            self.transaction_checker.step()
        self.answer_ready()
        self.filter_budget.renew()

    @property
    def due_ms(self) -> int | None:
        """When the next delayed message or timer is due, wall-clock ms; None when none waits."""
        due_ms = self.delivery.due_ms
        timers_ms = self.timers.due_ms if self.timers is not None else None
        if due_ms is None or timers_ms is None:
            return timers_ms if due_ms is None else due_ms
        return min(due_ms, timers_ms)

    def wait_ms(self) -> int:
        """How long until something is due, unless messages arrive."""
        if self.transaction_checker.busy:
            return 0
        due_ms = self.due_ms
        delivery = _NOTHING_DUE_MS if due_ms is None else due_ms - self.clock.now_ms()
        return max(0, min(delivery, self._timetable.wait_ms(self.now_ms())))

    def is_recent(self, topic: str, queue_id: int) -> bool:
        """Whether a queue's first message is so near the log's end that it is likely in memory.

        A group without an offset then starts with it: checkInMemByConsumeOffset of
        DefaultMessageStore.
        """
        units = self.store.read_units(topic, queue_id, 0, 1)
        if not units:
            return False
        behind = self.store.max_physical_offset - units[0].physical_offset
        return behind <= _physical_memory() * _IN_MEMORY_RATIO

    def close(self) -> None:
        """Save everything and give the store back.

        Raises StoreError when that fails, and says what was not saved; the store is given back all
        the same.
        """
        with ExitStack() as closing:
            closing.callback(self.store.close)
            if self._timer_flusher is not None:
                closing.callback(self._timer_flusher.close)
            self.saved.close()
        changed = {
            "topics": self.topics.changed,
            "consumer groups": self.groups.changed,
            "consumer offsets": self.offsets.changed,
            "modes of consumer groups": self.request_modes.changed,
            "delivery offsets of delayed messages": self.delivery.changed,
        }
        unsaved = ", ".join(name for name, is_changed in changed.items() if is_changed)
        if unsaved:
            directory = self.store.directory / "config"
            raise StoreError(
                f"what changed last in {unsaved} could not be saved in {directory} and is lost: "
                "the log has the reason",
                str(directory),
            )

    def _written(self, written: Written) -> None:
        """Tell those who wait for messages, queue by queue, what one write brought."""
        held = self._held
        for queue, runs in written.by_queue.items():
            topic = queue.topic
            if topic == SCHEDULE_TOPIC:
                for _, due_ms, _ in arrivals(runs):  # there it stands for the tags code
                    self.delivery.message_arrived(due_ms)
            elif topic == TIMER_TOPIC and self.timers is not None:
                self.timers.message_arrived()
            if held:
                held.arrived(topic, queue.queue_id, arrivals(runs))

    def _renew(self, config: BrokerConfig) -> None:
        """Have the services that keep settings take the new ones."""
        self.store.renew(config.store_config)
        self.topics.renew(config)
        self.groups.renew(config)
        self.retrying.renew(config)
        self.clean_up.renew(config)
        self.sending.renew(config)
        self.recalling.renew(config)
        self.pulling.renew(config)
        self.offsets.most = config.max_offset_entries
        self.replying.store = config.store_reply_messages
        self.transactions.timeout_ms = config.transaction_timeout_ms
        self.transaction_checker.rules = _rules(config)
        self._timetable.renew()

    def _sent_back(self, group: str, topic: str, is_dead: bool) -> None:
        self.statistics.sent_back(group, topic, self.now_ms(), is_dead=is_dead)

    def _collect_statistics(self) -> None:
        now_ms = self.now_ms()
        self.statistics.collect(now_ms)
        self.statistics.store.sample(now_ms)
        self.statistics.store.begin_day(_local_day(self.clock.now_ms()))

    def _forget_statistics(self) -> None:
        self.statistics.forget_idle(self.now_ms())

    def _sweep_held(self) -> None:
        self.pulling.sweep(self.now_ms())

    def _forget_locks(self) -> None:
        self.locks.forget_expired(self.now_ms())

    def _look_for_due(self) -> None:
        """Deliver what is due, even where ``due_ms`` was told by a clock that was set since."""
        for work in self._waiting:
            work.look(self.clock.now_ms())

    def _clean_timers(self) -> None:
        if self.timers is not None:
            self.timers.timers.delete_before(self.store.min_physical_offset)


def _local_day(now_ms: int) -> int:
    """The day by the machine's own time, counted in days."""
    return datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone().toordinal()


def _rules(config: BrokerConfig) -> Rules:
    """What the settings say of open transactions."""
    return Rules(
        config.transaction_timeout_ms,
        config.transaction_check_max,
        config.store_config.file_reserved_hours * 3_600_000,
    )


def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _nothing() -> None:
    """Nobody answers held pulls."""
