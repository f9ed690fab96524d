"""The broker's tables as files under ``config/``, in Apache's form and names.

A table that cannot be read, or is empty, is taken from its backup; when that cannot be read either,
the broker does not start, because it would otherwise save an empty one over it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.schedule import Delivery
from orbitmq.broker.topics import TopicTable
from orbitmq.errors import BodyError, CorruptStoreError, StoreError
from orbitmq.store.config_file import ConfigFile
from orbitmq.wire.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)

log = logging.getLogger("orbitmq.broker")

_BodyT = TypeVar("_BodyT", bound=Body)


class DelayOffsets(Body, frozen=True):
    """How far each delay level is delivered; the form of ``config/delayOffset.json``."""

    offset_table: dict[int, int] = {}
    data_version: DataVersion | None = None


class SavedTables:
    """Loads and saves the tables of one broker; ``directory`` is the store's."""

    def __init__(
        self,
        directory: Path,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        delivery: Delivery,
        now_ms: Callable[[], int],
    ) -> None:
        config = directory / "config"
        self._topics_file = ConfigFile(config / "topics.json")
        self._groups_file = ConfigFile(config / "subscriptionGroup.json")
        self._offsets_file = ConfigFile(config / "consumerOffset.json")
        self._delays_file = ConfigFile(config / "delayOffset.json")
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delivery = delivery
        self._now_ms = now_ms
        self._offsets_version = DataVersion(timestamp=now_ms())
        self._delays_version = DataVersion(timestamp=now_ms())
        self._complaint = ""
        self._tried = topics.version, groups.version
        self._writer = ThreadPoolExecutor(1, "orbitmq-saver")

    def load(self) -> None:
        """Take in what was saved. Raises StoreError when it cannot be read."""
        topics = _load(self._topics_file, TopicConfigSerializeWrapper)
        if topics is not None:
            self._topics.load(topics.topic_config_table, topics.data_version)
        groups = _load(self._groups_file, SubscriptionGroupWrapper)
        if groups is not None:
            self._groups.load(groups.subscription_group_table, groups.data_version)
        offsets = _load(self._offsets_file, ConsumerOffsetSerializeWrapper)
        if offsets is not None:
            self._offsets.table.update(offsets.offset_table)
            self._offsets_version = offsets.data_version or self._offsets_version
        delays = _load(self._delays_file, DelayOffsets)
        if delays is not None:
            self._delivery.load(delays.offset_table)
            self._delays_version = delays.data_version or self._delays_version
        self._tried = self._topics.version, self._groups.version

    def save_changes(self) -> None:
        """Save topics and groups that changed since the last try: at the end of every tick."""
        if (self._topics.version, self._groups.version) != self._tried:
            self.save_topics_and_groups()

    def save_topics_and_groups(self) -> None:
        """Save them where they changed; what cannot be saved stays so until the next call."""
        self._tried = self._topics.version, self._groups.version
        if self._topics.changed:
            body = TopicConfigSerializeWrapper(self._topics.topics, self._topics.version)
            self._topics.changed = not self._save(self._topics_file, body.encode())
        if self._groups.changed:
            groups = SubscriptionGroupWrapper(
                subscription_group_table=self._groups.groups, data_version=self._groups.version
            )
            self._groups.changed = not self._save(self._groups_file, groups.encode())

    def save_offsets(self) -> None:
        """Save the consumer offsets where they changed, in the background."""
        if self._offsets.changed:
            self._offsets_version = self._offsets_version.next(self._now_ms())
            table = {key: dict(queues) for key, queues in self._offsets.table.items()}
            body = ConsumerOffsetSerializeWrapper(table, self._offsets_version)
            self._save_later(self._offsets_file, body, self._offsets)

    def save_delays(self) -> None:
        """Save the delivery offsets of delayed messages where they changed, in the background."""
        if self._delivery.changed:
            self._delays_version = self._delays_version.next(self._now_ms())
            body = DelayOffsets(dict(self._delivery.offsets), self._delays_version)
            self._save_later(self._delays_file, body, self._delivery)

    def close(self) -> None:
        """Save everything that changed, and end the background thread."""
        self.save_topics_and_groups()
        self.save_offsets()
        self.save_delays()
        self._writer.shutdown()

    def _save_later(self, file: ConfigFile, body: Body, table: ConsumerOffsets | Delivery) -> None:
        """Save ``body``, a copy of ``table``, off the broker's thread.

        Disks take their time, and so do the offsets of many groups to be written as JSON.
        """
        table.changed = False

        def save() -> None:
            if not self._save(file, body.encode()):
                table.changed = True  # so that the next round tries again

        self._writer.submit(save).add_done_callback(_tell_failure)

    def _save(self, file: ConfigFile, content: bytes) -> bool:
        try:
            file.save(content)
        except StoreError as error:
            if str(error) != self._complaint:  # once, not every five seconds
                log.error("%s is kept in memory, it cannot be saved: %s", file.path.name, error)  # noqa: TRY400
                self._complaint = str(error)
            return False
        self._complaint = ""
        return True


def _tell_failure(saving: Future[None]) -> None:
    error = saving.exception()
    if error is not None:
        log.error("a table was not saved, it is kept in memory", exc_info=error)


_WITHOUT: Final = {
    "topics.json": "topics are made anew by what is sent to them, with the default queues",
    "subscriptionGroup.json": "consumer groups have the default settings",
    "consumerOffset.json": "consumer groups begin where new ones do",
    "delayOffset.json": "delayed messages are delivered again, all that are still stored",
}
"""What a broker does without each file."""


def _load(file: ConfigFile, form: type[_BodyT]) -> _BodyT | None:
    without = f"without it {_WITHOUT[file.path.name]}"
    try:
        content = file.load()
    except CorruptStoreError as error:
        raise CorruptStoreError(f"{error}: {without}", error.path) from None
    if content is None:
        return None
    try:
        return form.decode(content)
    except BodyError as error:
        backup = file.load_backup()
        try:
            if backup is None:
                raise
            body = form.decode(backup)
        except BodyError as second:
            raise CorruptStoreError(
                f"{file.path} cannot be read ({second}), nor can its backup: mend the file, or "
                f"remove it to start without what it holds: {without}",
                str(file.path),
            ) from second
        log.warning("%s cannot be read (%s): its backup is used", file.path, error)
        return body
