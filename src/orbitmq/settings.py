"""Settings as text: a table of keys, each with the field it sets and how its value is written.

What a key means is the table's business (broker/settings.py, nameserver/settings.py); here texts
become fields of a frozen settings object and back, and what is wrong is said by its key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from orbitmq.errors import ConfigError

_ConfigT = TypeVar("_ConfigT", bound=msgspec.Struct)

_LONGEST_TEXT: Final = 4_096
_MOST_DIGITS: Final = 20


class Kind(Protocol):
    """How a field's value is written; ``allowed`` says which texts there are."""

    @property
    def allowed(self) -> str:
        """The texts there are, for an error."""

    def parse(self, text: str) -> object:
        """The value of a text. Raises ValueError when it has none."""

    def format(self, value: Any) -> str:
        """The text of a value."""


class Number(msgspec.Struct, frozen=True):
    """A whole number; the field counts in units ``scale`` times smaller. Raises ValueError."""

    scale: int = 1
    allowed: str = "a whole number"

    def parse(self, text: str) -> int:
        """The field's number, for what the key says."""
        if len(text) > _MOST_DIGITS:
            raise ValueError("too long")
        return int(text) * self.scale

    def format(self, value: Any) -> str:
        """What the key says: rounded up, so that a little does not become nothing."""
        return str(-(-value // self.scale))


class Inverse(msgspec.Struct, frozen=True):
    """A whole number of units, of which the field counts groups of ``size``."""

    size: int
    allowed: str = "a whole number"

    def parse(self, text: str) -> int:
        """The number of groups, rounded up."""
        if len(text) > _MOST_DIGITS:
            raise ValueError("too long")
        return -(-int(text) // self.size)

    def format(self, value: Any) -> str:
        """The number of units."""
        return str(value * self.size)


class Flag(msgspec.Struct, frozen=True):
    """``true`` or ``false``."""

    allowed: str = "true or false"

    def parse(self, text: str) -> bool:
        """The flag, in whatever case; Java takes all but true for false."""
        if text.lower() not in {"true", "false"}:
            raise ValueError(text)
        return text.lower() == "true"

    def format(self, value: Any) -> str:
        """As Java writes it."""
        return "true" if value else "false"


class Text(msgspec.Struct, frozen=True):
    """Any text of one line."""

    allowed: str = f"at most {_LONGEST_TEXT} characters that can be printed"

    def parse(self, text: str) -> str:
        """The text itself; what cannot be printed would break what it is put into."""
        if len(text) > _LONGEST_TEXT or not text.isprintable():
            raise ValueError("too long, or not to be printed")
        return text

    def format(self, value: Any) -> str:
        """The text itself."""
        return str(value)


class Choice(msgspec.Struct, frozen=True):
    """One of an enum's values."""

    enum: type[Enum]

    @property
    def allowed(self) -> str:
        """The enum's values."""
        return " or ".join(str(member.value) for member in self.enum)

    def parse(self, text: str) -> Enum:
        """The member of that value. Raises ValueError."""
        return self.enum(text)

    def format(self, value: Any) -> str:
        """The member's value."""
        return str(value.value)


class Directory(msgspec.Struct, frozen=True):
    """A path; nothing for None."""

    allowed: str = "a directory"

    def parse(self, text: str) -> Path | None:
        """The path; None for no text."""
        return Path(text) if text else None

    def format(self, value: Any) -> str:
        """The path; no text for None."""
        return "" if value is None else str(value)


class Optional(msgspec.Struct, frozen=True):
    """What another kind says; no text, or ``absent``, for None."""

    kind: Kind
    absent: str = ""

    @property
    def allowed(self) -> str:
        """What the other kind allows."""
        return f"{self.kind.allowed}, or {self.absent or 'nothing'}"

    def parse(self, text: str) -> object:
        """The value, or None."""
        return None if text == self.absent else self.kind.parse(text)

    def format(self, value: Any) -> str:
        """The text, or that for None."""
        return self.absent if value is None else self.kind.format(value)


class Key(msgspec.Struct, frozen=True):
    """A key, and the field it sets: ``"name"``, or ``"part.name"`` for a field of another struct.

    ``live`` says that a change takes effect at once; otherwise it needs a restart.
    """

    name: str
    field: str
    kind: Kind
    live: bool = False


class Section(NamedTuple):
    """Keys that set nothing: why, and their defaults as ``key=value``, blanks between two."""

    reason: str
    defaults: str

    def pairs(self) -> dict[str, str]:
        """The defaults by key."""
        pairs = (pair.partition("=")[::2] for pair in self.defaults.split())
        return dict(pairs)


class SortedTexts(msgspec.Struct, frozen=True):
    """Texts by key: those that set something, and those that are taken without effect."""

    used: dict[str, str]
    unused: dict[str, str]


class SettingsTable(Generic[_ConfigT]):
    """The keys of one class of settings.

    ``unused`` are keys that are taken and set nothing, ``refused`` those that must have one value,
    ``folklore`` those that are taken and never shown. ``may_be`` takes a key of ``refused``, its
    text and all texts, and says whether the text means the one value.
    """

    def __init__(
        self,
        *keys: Key,
        unused: Sequence[Section] = (),
        refused: Sequence[Section] = (),
        folklore: Collection[str] = (),
        may_be: Callable[[str, str, Mapping[str, str]], bool] = lambda *_: False,
    ) -> None:
        self.keys: Final = {key.name: key for key in keys}
        self.unused: Final = _defaults(unused)
        self.refused: Final = _defaults(refused)
        self._reasons = {
            name: section.reason for section in (*unused, *refused) for name in section.pairs()
        } | dict.fromkeys(folklore, "Apache's does not know it either")
        self._folklore = folklore
        self._may_be = may_be
        self._by_field = {key.field: key for key in keys}

    def reason(self, name: str) -> str:
        """Why nothing comes of a key; "" for one that sets something, or nobody knows."""
        return self._reasons.get(name, "")

    def sorted(self, texts: Mapping[str, str]) -> SortedTexts:
        """``texts`` by what comes of them.

        Raises ConfigError, which names the key, for one that is unknown or has a value that would
        promise what is not done.
        """
        used: dict[str, str] = {}
        unused: dict[str, str] = {}
        for name, text in texts.items():
            if name in self.keys:
                used[name] = text
            elif name in self.refused:
                self._check_refused(name, text, texts)
            elif name in self._reasons:
                unused[name] = text
            else:
                raise _unknown(name, text, [*self.keys, *self.unused, *self.refused])
        return SortedTexts(used, unused)

    def _check_refused(self, name: str, text: str, texts: Mapping[str, str]) -> None:
        allowed = self.refused[name]
        if text.strip().lower() != allowed.lower() and not self._may_be(name, text, texts):
            raise ConfigError(
                name,
                text[:100],
                f"{self.reason(name)}; leave it at {allowed or 'nothing'}, or take it out",
            )

    def __contains__(self, name: str) -> bool:
        return name in self.keys

    def texts(self, config: _ConfigT) -> dict[str, str]:
        """All of ``config``, by key."""
        return {name: self.text(config, name) for name in self.keys}

    def text(self, config: _ConfigT, name: str) -> str:
        """What ``config`` has for a key."""
        key = self.keys[name]
        value: Any = config
        for part in key.field.split("."):
            value = getattr(value, part)
        return key.kind.format(value)

    def applied(self, config: _ConfigT, texts: Mapping[str, str]) -> _ConfigT:
        """``config`` with what ``texts`` say by keys of this table.

        Raises ConfigError that names the key, its text and what is allowed.
        """
        values = {self.keys[name].field: _parsed(self.keys[name], texts[name]) for name in texts}
        try:
            return _replaced(config, values)
        except ConfigError as error:
            raise self._by_key(error, texts) from error

    def _by_key(self, error: ConfigError, texts: Mapping[str, str]) -> ConfigError:
        """The error a class of settings raised, told in the words of who wrote the texts."""
        for field, key in self._by_field.items():
            if field.rpartition(".")[2] == error.name and key.name in texts:
                return ConfigError(key.name, texts[key.name], error.allowed)
        return error


def _defaults(sections: Iterable[Section]) -> dict[str, str]:
    return {name: text for section in sections for name, text in section.pairs().items()}


def _unknown(name: str, text: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that nobody knows: with those that look like it."""
    from difflib import get_close_matches

    short = name[:100]
    similar = get_close_matches(short, list(known), n=3, cutoff=0.7)
    remedy = f"did you mean {' or '.join(similar)}?" if similar else "check its spelling"
    return ConfigError(short, text[:100], f"no setting has this name: {remedy}")


def _parsed(key: Key, text: str) -> object:
    try:
        return key.kind.parse(text.strip())
    except ValueError:
        raise ConfigError(key.name, text[:100], key.kind.allowed) from None


def _replaced(config: _ConfigT, values: Mapping[str, object]) -> _ConfigT:
    own = {field: value for field, value in values.items() if "." not in field}
    for part in dict.fromkeys(field.partition(".")[0] for field in values if "." in field):
        inner = {
            field.partition(".")[2]: value
            for field, value in values.items()
            if field.startswith(f"{part}.")
        }
        own[part] = _replaced(getattr(config, part), inner)
    return msgspec.structs.replace(config, **own)
