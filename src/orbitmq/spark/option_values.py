"""Options as Spark hands them over, strings by name, read one by one into values that are checked.

Spark hands names over in lower case and passes on what the user gave anywhere, so an unknown one is
more likely a slip than meant: it is an error that names the nearest known option. What Spark itself
adds is let through. A new option of a read or a write is a field in
:mod:`orbitmq.spark.source.options`, a name in its list and one ``given.get(...)``; what a value may
look like is said here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from orbitmq.client.config import ClientConfig, make_config
from orbitmq.errors import ConfigError, IllegalNameError
from orbitmq.names import check_group, check_topic
from orbitmq.net.blocking import Access
from orbitmq.spark import kafka_names
from orbitmq.spark.profiles import load_profile

_T = TypeVar("_T")

OF_SPARK: Final = ("checkpointLocation", "queryName")
"""What Spark hands on although it is its own, of ``.option("checkpointLocation", ...)``,
``.queryName(...)`` and every ``create_sink`` flow of a declarative pipeline."""

ACCESS_OPTIONS: Final = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "securityToken": "security_token",
    "useTls": "use_tls",
    "tlsCaFile": "tls_ca_file",
    "tlsCertFile": "tls_cert_file",
    "tlsKeyFile": "tls_key_file",
    "tlsKeyPassword": "tls_key_password",
}
"""Options that are settings of every client (ClientConfig)."""

_SECRETS: Final = ("secretKey", "securityToken", "tlsKeyPassword")
_HIDDEN: Final = re.compile("password|secret|token|jaas")
"""What the names of other formats' secrets hold, which no error may show."""

_PATHS: Final = {
    "path": 'a topic is no path: name it by .option("topic", ...)',
    "paths": 'a topic is no path: name them by .option("topics", "a,b")',
}
"""What to write instead of options of files, which Spark adds for ``load("...")``."""


class Given:
    """The options of one ``use``, ``reading`` or ``writing``: none but ``names`` and Spark's own.

    Those of the option ``profile`` are among them, unless they are given otherwise too.
    Raises ConfigError for any other, here or when a value is asked for that may not be.
    """

    def __init__(self, options: Mapping[str, str], use: str, names: tuple[str, ...]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        if "profile" in given:
            options = load_profile(given["profile"]) | dict(options)
        self._options = {name.lower(): value for name, value in options.items()} | given
        known = {name.lower() for name in (*names, *OF_SPARK)}
        for name, value in options.items():
            if name.lower() not in known:
                raise _unknown(name, value, use, names)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str, parse: Callable[[str], _T], default: Any) -> Any:
        """The value of ``name``, ``default`` where it was not given.

        ``parse`` raises ValueError, its text being what is allowed, or ConfigError.
        """
        text = self._options.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ConfigError as error:
            raise ConfigError(name, text, error.allowed) from error
        except (ValueError, IllegalNameError) as error:
            raise ConfigError(name, text, str(error)) from error

    def required(self, name: str, parse: Callable[[str], _T]) -> Any:
        """The value of ``name``, which must have been given."""
        if name not in self:
            raise ConfigError(name, None, f'the option is required: .option("{name}", ...)')
        return self.get(name, parse, None)

    def refuse(self, name: str, reason: str) -> None:
        """Raise ConfigError where ``name`` was given."""
        text = self._options.get(name.lower())
        if text is not None:
            raise ConfigError(name, text, reason)

    def only_one(self, *names: str) -> None:
        """Raise ConfigError where more than one of ``names`` was given."""
        first, *others = [name for name in names if name in self] or [""]
        if others:
            raise ConfigError(
                others[0], self._options[others[0].lower()], f"{first} is given too; leave one out"
            )

    def name_servers(self) -> tuple[str, ...]:
        """The option nameServer."""
        servers: tuple[str, ...] = self.required("nameServer", addresses)
        return servers

    def access(self) -> Access:
        """The options of ACCESS_OPTIONS."""
        settings = {
            setting: self.get(option, boolean if option == "useTls" else str, None)
            for option, setting in ACCESS_OPTIONS.items()
            if option in self
        }
        servers = ";".join(self.name_servers())
        try:
            config = make_config(ClientConfig, {"name_server": servers, **settings})
        except ConfigError as error:
            option = next(name for name in ACCESS_OPTIONS if ACCESS_OPTIONS[name] == error.name)
            raise ConfigError(option, error.value, error.allowed) from error
        return Access(config.credentials, config.tls)


def addresses(text: str) -> tuple[str, ...]:
    """``host:port`` of one server or several, joined by ``;`` or ``,``."""
    found = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in found or ("",):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{address!r} is not host:port; several are joined by ';', such as "
                "'ns1:9876;ns2:9876'"
            )
    return found


def topic_name(text: str) -> str:
    """The name of a topic."""
    check_topic(text)
    return text


def group_name(text: str) -> str:
    """The name of a group."""
    check_group(text)
    return text


def namespace_name(text: str) -> str:
    """The name of a namespace."""
    check_topic(text)
    if "%" in text:
        raise ValueError("a namespace without %")
    return text


def number(least: int) -> Callable[[str], int]:
    """A whole number from ``least`` on."""

    def parse(text: str) -> int:
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
            raise ValueError(f"a whole number, {least} or more")
        return int(text)

    return parse


def boolean(text: str) -> bool:
    """Either ``true`` or ``false``."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """One of ``words``, in any case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return word

    return parse


def duration_ms(text: str) -> int:
    """Milliseconds of ``15m``, ``90s``, ``500ms``, ``2h`` or ``1d``; a plain number is ms."""
    return _scaled(text, _DURATIONS, "ms", "a time such as 500ms, 90s, 15m, 2h or 1d")


def size_bytes(text: str) -> int:
    """Bytes of ``64m``, ``512k`` or ``1g``; a plain number is bytes."""
    return _scaled(text, _SIZES, "b", "a size such as 512k, 64m or 1g, 1b or more")


_DURATIONS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES: Final = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def _scaled(text: str, units: Mapping[str, int], plain: str, allowed: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    unit = match.group(2) or plain if match else ""
    if unit not in units and unit.endswith("b"):
        unit = unit.removesuffix("b")
    if match is None or unit not in units or not int(match.group(1)):
        raise ValueError(allowed)
    return int(match.group(1)) * units[unit]


def _unknown(name: str, value: str, use: str, names: tuple[str, ...]) -> ConfigError:
    lower = {known.lower(): known for known in (*names, *OF_SPARK)}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    nearest = lower[close[0]] if close else ""
    is_secret = nearest in _SECRETS or _HIDDEN.search(name.lower()) is not None
    allowed = _PATHS.get(name.lower())
    if allowed is None:
        hint = kafka_names.hint(name, lower) or (f"did you mean {nearest}? " if nearest else "")
        allowed = f"no such option; {hint}{use} has {', '.join(names)}"
    return ConfigError(name, "***" if is_secret else value, allowed)
