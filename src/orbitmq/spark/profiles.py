"""Profiles: which cluster is meant and who asks, kept in a file by name.

``.option("profile", "prod")`` stands for the options in the table ``[prod]`` of a TOML file, so
that no secret stands in a query, its plan or a notebook::

    [prod]
    nameServer = "ns1:9876;ns2:9876"
    accessKey = "reader"
    secretKey = "..."
    useTls = true

The file is ``~/.orbitmq/profiles.toml``, or what the environment variable ``ORBITMQ_PROFILES``
names. It is read beside the driver; tasks get what it says.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigError

PROFILES_ENV: Final = "ORBITMQ_PROFILES"


def profiles_file() -> Path:
    """Where profiles are."""
    given = os.environ.get(PROFILES_ENV)
    return Path(given) if given else Path.home() / ".orbitmq" / "profiles.toml"


def load_profile(name: str) -> dict[str, str]:
    """The options of the profile ``name``, as Spark would hand them over.

    Raises ConfigError where there is no such profile, or the file cannot be read.
    """
    file = profiles_file()
    try:
        with file.open("rb") as opened:
            profiles = tomllib.load(opened)
    except OSError as error:
        raise ConfigError(
            "profile", name, f"profiles are kept in {file}: {error.strerror or error}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("profile", name, f"{file} is not TOML: {error}") from error
    profile = profiles.get(name)
    if not isinstance(profile, dict):
        known = ", ".join(sorted(key for key in profiles if isinstance(profiles[key], dict)))
        raise ConfigError("profile", name, f"{file} has the tables {known or 'none'}")
    return {option: _text(name, option, value, file) for option, value in profile.items()}


def _text(name: str, option: str, value: object, file: Path) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise ConfigError("profile", name, f"{option} in {file} is a text, a number, true or false")
