"""The broker's settings as they are now: what operators change while it runs, and what is kept.

A change is a new BrokerConfig in place of the old one. Those who read ``current`` see it at once;
those who keep parts of it, since they use them for every message, are told. Follows Java's
Configuration, but for what is wrong: that is refused, all of a change or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq import codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.settings import KEYS, read_settings, sorted_settings
from orbitmq.broker.unused_settings import REFUSED_DEFAULTS, UNUSED_DEFAULTS, reason
from orbitmq.clock import Clock
from orbitmq.errors import BrokerError, ConfigError, StoreError
from orbitmq.properties_file import decode_text, format_properties, replace_properties
from orbitmq.settings import Renew
from orbitmq.store.config_file import ConfigFile
from orbitmq.wire.bodies import DataVersion

log = logging.getLogger("orbitmq.broker")

KEPT_FILE: Final = "orbitmq.properties"
"""Where changes are kept below ``config/`` when the broker was started without a file."""


class LiveSettings:
    """The settings of one broker; ``current`` is replaced by each change.

    ``config`` is what it was started with and ``directory`` that of the store. Raises ConfigError
    when what was kept of former changes cannot be taken.
    """

    def __init__(self, config: BrokerConfig, directory: Path, clock: Clock) -> None:
        self.current = config
        self.version = DataVersion(timestamp=clock.now_ms())
        self._now_ms = clock.now_ms
        self._own_file = config.settings_file is None
        path = config.settings_file or directory / "config" / KEPT_FILE
        self._file = ConfigFile(path)
        self._renews: list[Renew[BrokerConfig]] = []
        self._changed: dict[str, str] = {}
        self._unused = dict(UNUSED_DEFAULTS)
        if path.exists():
            self._load(path)

    def watch(self, renew: Renew[BrokerConfig]) -> None:
        """Have ``renew`` called with the new settings whenever some have changed."""
        self._renews.append(renew)

    def texts(self) -> dict[str, str]:
        """All settings by key, with those of Apache's that have no use here."""
        return dict(sorted((REFUSED_DEFAULTS | self._unused | KEYS.texts(self.current)).items()))

    def change(self, texts: Mapping[str, str]) -> None:
        """Change what ``texts`` say by key, at once; :meth:`save` keeps it.

        Raises BrokerError that names the key: INVALID_PARAMETER for one that is unknown or cannot
        have this value, NO_PERMISSION for one that only a restart changes. Nothing is changed then.
        """
        try:
            found = sorted_settings(texts)
            used = {
                name: text.strip()
                for name, text in found.used.items()
                if text.strip() != KEYS.text(self.current, name)
            }
            _check_live(used)
            config = KEYS.applied(self.current, used)
        except ConfigError as error:
            raise BrokerError(codes.INVALID_PARAMETER, str(error)) from error
        before = self.current
        self.current = config
        self._unused.update(found.unused)
        self._changed |= used | found.unused
        self.version = self.version.next(self._now_ms())
        for name in used:
            log.info("%s is %s now, it was %s", name, texts[name], KEYS.text(before, name))
        for name in found.unused:
            log.warning("%s is kept, and has no use here: %s", name, reason(name))
        if used:
            self._tell()

    def save(self) -> None:
        """Keep what was changed since the start. Raises StoreError.

        May be called on another thread, but on one at a time.
        """
        changed = dict(self._changed)
        if not changed:
            return
        if self._own_file:
            self._file.save(format_properties(changed).encode())
            return
        try:
            text = decode_text(self._file.path.read_bytes())
        except OSError as error:
            raise StoreError(
                f"{self._file.path} cannot be read: {error.strerror}", str(self._file.path)
            ) from error
        self._file.save(replace_properties(text, changed).encode())

    def _load(self, path: Path) -> None:
        """Take what a file holds besides what ``current`` has of it already."""
        found = read_settings(path)
        self._unused.update(found.unused)
        if not self._own_file:
            return
        for name in found.used:
            if not KEYS.keys[name].live:
                raise ConfigError(
                    name, found.used[name], f"take it out of {path}: give it where you start"
                )
        self.current = KEYS.applied(self.current, found.used)
        self._changed = found.used | found.unused
        if found.used:
            told = ", ".join(f"{name}={text}" for name, text in found.used.items())
            log.warning("settings changed while the broker ran are kept in %s: %s", path, told)

    def _tell(self) -> None:
        for renew in self._renews:
            renew(self.current)


def _check_live(used: Mapping[str, str]) -> None:
    for name, text in used.items():
        if not KEYS.keys[name].live:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"{name}={text[:100]} is not taken: it cannot be changed while the broker runs, "
                "set it in the file or by the option it is started with, and restart",
            )
