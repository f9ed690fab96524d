"""Offset stores: how far a group consumed each queue, and where that is kept.

A consumer moves offsets in memory as its messages are consumed, many times a second; now and
then, and before a queue goes, they are saved: with the brokers where a group shares the queues
(RemoteBrokerOffsetStore), in a file where every client consumes them all (LocalFileOffsetStore).
A store of one's own is a subclass of OffsetStore. Follows ``client.consumer.store`` of Java.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from orbitmq.client.files import replace_file
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import BodyError, CorruptStoreError, OrbitMQError, QueryNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import Body
from orbitmq.wire.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger("orbitmq.consumer.offsets")

NO_OFFSET: Final = -1
"""What reading gives where a group has no offset of a queue yet."""

_REQUEST_TIMEOUT_MS: Final = 5_000


class ReadOffset(Enum):
    """Where an offset is read from (Java's ``ReadOffsetType``)."""

    MEMORY = "memory"
    STORE = "store"
    MEMORY_FIRST = "memory, then store"


class OffsetStore(ABC):
    """The offsets of one group in one client.

    Subclasses say how offsets are fetched and saved; that runs on the client's private loop, so
    it must not block. The rest may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: dict[MessageQueue, int] = {}
        self._begun_or_saved: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    async def load(self) -> None:  # noqa: B027 - most stores have nothing to load
        """Get ready; called once, before anything else."""

    @abstractmethod
    async def fetch(self, queue: MessageQueue) -> int:
        """The saved offset of ``queue``, NO_OFFSET where there is none.

        Raises OrbitMQError when it cannot be told, which is not the same: to start anew then
        would skip messages or repeat them (Java returns -2).
        """

    @abstractmethod
    async def save(self, offsets: Mapping[MessageQueue, int], *, confirmed: bool) -> None:
        """Save these offsets.

        ``confirmed``: return only once they are safe, and raise OrbitMQError when they are not.
        Otherwise an offset that is lost does no harm, because it will be saved again soon.
        """

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Move the offset of ``queue``; with ``increase_only`` never backwards."""
        with self._lock:
            if self._frozen and queue in self._frozen:
                return
            if increase_only and offset <= self._offsets.get(queue, NO_OFFSET):
                return
            self._offsets[queue] = offset

    def set_default(self, queue: MessageQueue, offset: int) -> int:
        """Set the offset of ``queue`` where it has none; the one it has then."""
        with self._lock:
            self._begun_or_saved.setdefault(queue, offset)
            return self._offsets.setdefault(queue, offset)

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of ``queue`` and keep it, until :meth:`remove`, from being moved."""
        with self._lock:
            self._offsets[queue] = offset
            self._frozen.add(queue)

    def has_moved(self, queue: MessageQueue) -> bool:
        """Whether the offset of ``queue`` is further than where it began, or was last saved."""
        return self._offsets.get(queue) != self._begun_or_saved.get(queue)

    def get(self, queue: MessageQueue) -> int:
        """The offset in memory, NO_OFFSET where there is none."""
        return self._offsets.get(queue, NO_OFFSET)

    async def read(self, queue: MessageQueue, source: ReadOffset) -> int:
        """The offset of ``queue``, or NO_OFFSET; errors as :meth:`fetch`.

        What is read from the store becomes the offset in memory, unless one was set meanwhile.
        """
        if source is not ReadOffset.STORE:
            offset = self.get(queue)
            if offset >= 0 or source is ReadOffset.MEMORY:
                return offset
        offset = await self.fetch(queue)
        if offset >= 0:
            known = self.set_default(queue, offset)
            return offset if source is ReadOffset.STORE else known
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        """Save the offsets of ``queues``; what fails is logged, to be saved again next time."""
        try:
            await self.flush(queues, confirmed=confirmed)
        except (OrbitMQError, OSError) as error:
            log.warning("offsets were not saved: %s. They are: %s", error, self._of(queues))
        except Exception:
            log.exception("offsets were not saved. They are: %s", self._of(queues))

    async def flush(self, queues: Collection[MessageQueue], *, confirmed: bool = True) -> None:
        """Save the offsets of ``queues``, or raise what :meth:`save` raises."""
        offsets = self._of(queues)
        if offsets:
            await self.save(offsets, confirmed=confirmed)
            with self._lock:
                for queue in offsets.keys() & self._offsets.keys():
                    self._begun_or_saved[queue] = offsets[queue]

    async def persist_all(
        self, owned: Collection[MessageQueue], *, confirmed: bool = False
    ) -> None:
        """Save the offsets of the queues ``owned``, and forget all others.

        With none ``owned`` nothing is done: what is there may be of queues still to come.
        """
        if not owned:
            return
        await self.persist(owned, confirmed=confirmed)
        with self._lock:
            for queue in self._offsets.keys() - set(owned):
                self._forget(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget the offset of ``queue``."""
        with self._lock:
            self._forget(queue)

    def clone(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """A copy of the offsets in memory, of ``topic`` or, where that is empty, of all topics."""
        with self._lock:
            return {
                queue: offset
                for queue, offset in self._offsets.items()
                if not topic or queue.topic == topic
            }

    def _of(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        with self._lock:
            return {queue: self._offsets[queue] for queue in queues if queue in self._offsets}

    def _forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._begun_or_saved.pop(queue, None)
        self._frozen.discard(queue)


class RemoteBrokerOffsetStore(OffsetStore):
    """Offsets kept by the brokers, for the consumers that share the queues of a group.

    Of a group's first offsets in a topic that reach one of Apache's brokers at the same time only
    one is kept (ConsumerOffsetManager.commitOffset makes the table without a lock). So the first
    that is to be confirmed goes ahead of the others.
    """

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self._first: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._begun: set[tuple[str, str]] = set()  # brokers and topics that the first went to

    async def fetch(self, queue: MessageQueue) -> int:
        """Ask the broker of the queue; NetworkError or BrokerError when it does not tell."""
        address = await self._master_or_other(queue)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            bname=queue.broker_name,
        )
        try:
            answer = await self._instance.request(
                address,
                RequestCode.QUERY_CONSUMER_OFFSET,
                header,
                timeout_ms=_REQUEST_TIMEOUT_MS,
            )
        except QueryNotFoundError:
            return NO_OFFSET
        return answer.header(OffsetResponseHeader).offset

    async def _master_or_other(self, queue: MessageQueue) -> str:
        """The master, whose offsets are the newest; a slave only where no route names a master."""
        instance = self._instance
        try:
            return await instance.broker_address(
                queue.broker_name, only_this=True, topic=queue.topic
            )
        except OrbitMQError:
            address = instance.routes.broker_address(queue.broker_name)
            if address is None:
                raise
            return address

    async def save(self, offsets: Mapping[MessageQueue, int], *, confirmed: bool) -> None:
        """Tell the brokers, one-way unless ``confirmed``; one that fails leaves the others be."""
        failed: list[OrbitMQError] = []

        async def tell(queue: MessageQueue, offset: int) -> None:
            try:
                if confirmed:
                    await self._confirm(queue, offset)
                else:
                    await self._tell(queue, offset, confirmed=False)
            except OrbitMQError as error:
                failed.append(error)

        if confirmed:
            await asyncio.gather(*(tell(*item) for item in offsets.items()))
        else:
            for item in offsets.items():
                await tell(*item)
        if failed:
            raise failed[0]

    async def _confirm(self, queue: MessageQueue, offset: int) -> None:
        table = (queue.broker_name, queue.topic)
        if table not in self._begun:
            async with self._first[table]:
                if table not in self._begun:
                    try:
                        return await self._tell(queue, offset, confirmed=True)
                    finally:
                        self._begun.add(table)
        return await self._tell(queue, offset, confirmed=True)

    async def _tell(self, queue: MessageQueue, offset: int, *, confirmed: bool) -> None:
        instance = self._instance
        address = await instance.broker_address(queue.broker_name, topic=queue.topic)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        if confirmed:
            await instance.request(address, code, header, timeout_ms=_REQUEST_TIMEOUT_MS)
        else:
            instance.oneway(address, code, header)


class LocalOffsets(Body, frozen=True):
    """What Java's ``OffsetSerializeWrapper`` makes of an offset table."""

    offset_table: dict[MessageQueue, int] = {}


class LocalFileOffsetStore(OffsetStore):
    """Offsets kept in a file of this client, for broadcasting, where every client has its own.

    The file is ``<root>/<client id>/<group>/offsets.json``, in Java's form; ``root`` is
    ``~/.rocketmq_offsets`` by default. It is replaced atomically, with the one before kept as
    ``offsets.json.bak``, and only written once there is an offset to keep. To find it again, a
    client needs the same id: give it an ``instance_name``.
    """

    def __init__(self, client_id: str, group: str, root: Path | None = None) -> None:
        super().__init__()
        root = root or Path.home() / ".rocketmq_offsets"
        self.path = root / client_id / group / "offsets.json"
        self._backup = self.path.with_name("offsets.json.bak")
        self._file_lock = asyncio.Lock()

    async def load(self) -> None:
        """Take over what the file holds.

        Raises OSError when it is there and cannot be read, CorruptStoreError when neither it nor
        its backup can be understood.
        """
        offsets = await asyncio.to_thread(self._read)
        for queue, offset in offsets.items():
            self.update(queue, offset)
        if offsets:
            log.info("offsets loaded from %s: %s", self.path, offsets)

    async def fetch(self, queue: MessageQueue) -> int:
        """Look into the file."""
        async with self._file_lock:
            offsets = await asyncio.to_thread(self._read)
        return offsets.get(queue, NO_OFFSET)

    async def save(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        confirmed: bool,
    ) -> None:
        """Replace the file by one that has these offsets too, confirmed or not."""
        async with self._file_lock:
            await asyncio.to_thread(self._write, dict(offsets))

    def _read(self) -> dict[MessageQueue, int]:
        try:
            offsets = _parse(self.path)
        except BodyError as error:
            log.warning("%s is damaged, its backup is read instead: %s", self.path, error)
            offsets = None
        if offsets is None:
            try:
                offsets = _parse(self._backup)
            except BodyError as error:
                raise CorruptStoreError(
                    f"neither {self.path} nor its backup can be read: {error}. Put right what is "
                    "wrong with one of them, or delete both for the group to start anew",
                    str(self.path),
                ) from error
        return offsets or {}

    def _write(self, offsets: dict[MessageQueue, int]) -> None:
        before = self._read()
        if before == (before | offsets):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if before:
            replace_file(self._backup, LocalOffsets(before).encode())
        replace_file(self.path, LocalOffsets(before | offsets).encode())


def _parse(path: Path) -> dict[MessageQueue, int] | None:
    """The offsets in a file, None where there is no file or nothing in it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return LocalOffsets.decode(data).offset_table if data.strip() else None
