"""What operators keep in a name server: values by namespace and key. Follows KVConfigManager.

:class:`KVConfig` is the table; :class:`SavedKVConfig` keeps it in a file, in Apache's form. The
namespace ORDER_TOPIC_CONFIG says of ordered topics how many queues they have on which broker.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from orbitmq import codes
from orbitmq.errors import BrokerError, StoreError
from orbitmq.store.config_file import ConfigFile
from orbitmq.wire.namesrv_bodies import KVConfigSerializeWrapper

log = logging.getLogger("orbitmq.nameserver")

# Java's name server keeps whatever it is told; these bound what strangers can have kept.
MAX_NAME_LENGTH: Final = 255
"""How long a namespace and a key may be, in characters."""
MAX_VALUE_LENGTH: Final = 65_536
"""How long a value may be, in characters."""
MAX_ENTRIES: Final = 100_000
"""How many keys are kept, those of all namespaces together."""
MAX_CHARACTERS: Final = 32 << 20
"""How long all namespaces, keys and values may be together."""


class KVConfig:
    """Values by key, by namespace. A namespace stays when its last key is deleted, as in Java."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._entries = 0
        self._characters = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key. Raises BrokerError for what is blank, too long, or too much."""
        for what, name in (("namespace", namespace), ("key", key)):
            if not name.strip() or len(name) > MAX_NAME_LENGTH:
                raise _refused(
                    f"the {what} {name[:99]!r} has not 1 to {MAX_NAME_LENGTH} characters"
                )
        if len(value) > MAX_VALUE_LENGTH:
            raise _refused(
                f"the value of {key!r} has {len(value)} characters: {MAX_VALUE_LENGTH} at most"
            )
        if self._entries >= MAX_ENTRIES and self.get(namespace, key) is None:
            raise _refused(f"there are {MAX_ENTRIES} keys already, as many as may be: delete some")
        added = _cost(namespace, key, value) - self._cost_of(namespace, key)
        if self._characters + added > MAX_CHARACTERS:
            raise _refused(f"all values together take {MAX_CHARACTERS} characters at most")
        self._put(namespace, key, value)

    def get(self, namespace: str, key: str) -> str | None:
        """The value of a key; None when it has none."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a key; nothing when there is none."""
        cost = self._cost_of(namespace, key)
        if self._namespaces.get(namespace, {}).pop(key, None) is not None:
            self._entries -= 1
            self._characters -= cost
            log.info("key %r of namespace %r is deleted", key, namespace)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys of a namespace and their values; None for a namespace nobody made."""
        found = self._namespaces.get(namespace)
        return None if found is None else dict(found)

    def snapshot(self) -> KVConfigSerializeWrapper:
        """All as it is now, untouched by later changes."""
        return KVConfigSerializeWrapper(
            {namespace: dict(table) for namespace, table in self._namespaces.items()}
        )

    def load(self, saved: KVConfigSerializeWrapper) -> None:
        """Take in what was saved."""
        for namespace, table in saved.config_table.items():
            self._namespaces.setdefault(namespace, {})
            for key, value in table.items():
                self._put(namespace, key, value)

    def _put(self, namespace: str, key: str, value: str) -> None:
        self._characters += _cost(namespace, key, value) - self._cost_of(namespace, key)
        table = self._namespaces.setdefault(namespace, {})
        self._entries += key not in table
        table[key] = value
        log.info("key %r of namespace %r is set", key, namespace)

    def _cost_of(self, namespace: str, key: str) -> int:
        value = self.get(namespace, key)
        return 0 if value is None else _cost(namespace, key, value)


class SavedKVConfig:
    """A KVConfig in the file at ``path``, or in memory alone without one.

    Changes are saved by a thread of its own, as many at once as came meanwhile. All methods belong
    to one running loop.
    """

    def __init__(self, path: Path | None) -> None:
        self.table: Final = KVConfig()
        self._file = ConfigFile(path) if path else None
        self._writer = ThreadPoolExecutor(1, "orbitmq-kv-saver") if path else None
        self._waiting: list[Callable[[StoreError | None], None]] = []
        self._saving: Future[None] | None = None

    def load(self) -> None:
        """Take in what was saved. Raises StoreError when it cannot be read."""
        saved = self._file and self._file.load_as(KVConfigSerializeWrapper.decode)
        if saved:
            self.table.load(saved)

    def save(self, done: Callable[[StoreError | None], None]) -> None:
        """Have the table saved as it is now; ``done`` gets None once it is on the disk, or why not.

        Without a file it is done at once.
        """
        if self._file is None:
            done(None)
            return
        self._waiting.append(done)
        if self._saving is None:
            self._save(self._file)

    async def close(self) -> None:
        """Wait until what changed is saved, and end the thread."""
        while self._saving is not None:
            await asyncio.wait([self._saving])
            await asyncio.sleep(0)  # what it was waited for comes first
        if self._writer is not None:
            self._writer.shutdown()

    def _save(self, file: ConfigFile) -> None:
        waiting, self._waiting = self._waiting, []
        snapshot = self.table.snapshot()

        def write() -> None:
            file.save(snapshot.encode())

        def written(saving: Future[None]) -> None:
            self._saving = None
            error = saving.exception()
            for done in waiting:
                done(_reason(error, file.path))
            if self._waiting and self._saving is None:
                self._save(file)

        loop = asyncio.get_running_loop()
        self._saving = loop.run_in_executor(self._writer, write)
        self._saving.add_done_callback(written)


def _reason(error: BaseException | None, path: Path) -> StoreError | None:
    if error is None:
        return None
    log.error("keys and values are kept in memory, %s cannot be saved", path, exc_info=error)
    return error if isinstance(error, StoreError) else StoreError(f"{path}: {error}", str(path))


def _cost(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value)


def _refused(reason: str) -> BrokerError:
    return BrokerError(codes.INVALID_PARAMETER, reason)
