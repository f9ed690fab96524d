"""Settings as they are now: what operators change while a server runs, and what is kept of it.

A change is a new settings object in place of the old one. Those who read ``current`` see it at
once; those who keep parts of it, since they use them for every message, are told. Follows Java's
Configuration, but for what is wrong: that is refused, all of a change or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import msgspec

from orbitmq import codes
from orbitmq.errors import BrokerError, ConfigError, StoreError
from orbitmq.properties_file import (
    decode_text,
    format_properties,
    parse_properties,
    replace_properties,
)
from orbitmq.settings import SettingsTable
from orbitmq.store.config_file import ConfigFile
from orbitmq.wire.bodies import DataVersion

log = logging.getLogger("orbitmq.settings")

_ConfigT = TypeVar("_ConfigT", bound=msgspec.Struct)

Renew: TypeAlias = Callable[[_ConfigT], object]
"""Called with settings that have changed."""


class LiveSettings(Generic[_ConfigT]):
    """Settings by the keys of ``table``; ``current`` is replaced by each change.

    ``config`` is what they begin with, ``now_ms`` the wall clock in ms. Changes are kept in
    ``kept_in``, whose settings go before ``config``; or in ``given_in``, the file that ``config``
    was read from; or, where there is neither, until the end. Raises ConfigError when what was kept
    cannot be taken.
    """

    def __init__(
        self,
        table: SettingsTable[_ConfigT],
        config: _ConfigT,
        now_ms: Callable[[], int],
        *,
        kept_in: Path | None = None,
        given_in: Path | None = None,
    ) -> None:
        self.current = config
        self.version = DataVersion(timestamp=now_ms())
        self._table = table
        self._now_ms = now_ms
        self._given_in = given_in
        path = given_in or kept_in
        self._file = None if path is None else ConfigFile(path)
        self._renews: list[Renew[_ConfigT]] = []
        self._changed: dict[str, str] = {}
        self._unused = dict(table.unused)
        if given_in is not None:
            self._unused |= table.sorted(read_properties(given_in)).unused
        elif path is not None and path.exists():
            self._load(path)

    def watch(self, renew: Renew[_ConfigT]) -> None:
        """Have ``renew`` called with the new settings whenever some have changed."""
        self._renews.append(renew)

    def texts(self) -> dict[str, str]:
        """All settings by key, with those of Apache's that have no use here."""
        texts = self._table.refused | self._unused | self._table.texts(self.current)
        return dict(sorted(texts.items()))

    def change(self, texts: Mapping[str, str]) -> None:
        """Change what ``texts`` say by key, at once; :meth:`save` keeps it.

        Raises BrokerError that names the key: INVALID_PARAMETER for one that is unknown or cannot
        have this value, NO_PERMISSION for one that only a restart changes. Nothing is changed then.
        """
        table, before = self._table, self.current
        try:
            found = table.sorted(texts)
            used = {
                name: text.strip()
                for name, text in found.used.items()
                if text.strip() != table.text(before, name)
            }
            self._check_live(used)
            config = table.applied(before, used)
        except ConfigError as error:
            raise BrokerError(codes.INVALID_PARAMETER, str(error)) from error
        self.current = config
        self._unused |= found.unused
        self._changed |= used | found.unused
        self.version = self.version.next(self._now_ms())
        for name, text in used.items():
            log.info("%s is %s now, it was %s", name, text, table.text(before, name))
        for name in found.unused:
            log.warning("%s is kept, and has no use here: %s", name, table.reason(name))
        if used:
            for renew in self._renews:
                renew(config)

    def save(self) -> None:
        """Keep what was changed since the start. Raises StoreError.

        May be called on another thread, but on one at a time.
        """
        changed = dict(self._changed)
        if self._file is None or not changed:
            return
        if self._given_in is None:
            self._file.save(format_properties(changed).encode())
            return
        try:
            text = decode_text(self._given_in.read_bytes())
        except OSError as error:
            raise StoreError(
                f"{self._given_in} cannot be read: {error.strerror}", str(self._given_in)
            ) from error
        self._file.save(replace_properties(text, changed).encode())

    def _load(self, path: Path) -> None:
        """Take what was kept of former changes."""
        found = self._table.sorted(read_properties(path))
        for name in found.used:
            if not self._table.keys[name].live:
                raise ConfigError(
                    name, found.used[name], f"take it out of {path}: give it where you start"
                )
        self.current = self._table.applied(self.current, found.used)
        self._unused |= found.unused
        self._changed = found.used | found.unused
        if found.used:
            told = ", ".join(f"{name}={text}" for name, text in found.used.items())
            log.warning("settings were changed while the server ran, see %s: %s", path, told)

    def _check_live(self, used: Mapping[str, str]) -> None:
        for name, text in used.items():
            if not self._table.keys[name].live:
                raise BrokerError(
                    codes.NO_PERMISSION,
                    f"{name}={text[:100]} is not taken: it cannot be changed while the server "
                    "runs, set it in the file or by the option it is started with, and restart",
                )


def read_properties(path: Path) -> dict[str, str]:
    """The texts in a file, by key. Raises ConfigError when it cannot be read."""
    try:
        return parse_properties(decode_text(path.read_bytes()))
    except OSError as error:
        raise ConfigError(
            "settings_file", str(path), f"a file to read ({error.strerror or error})"
        ) from error
