"""Which brokers several worker processes run, on which ports and in which directories.

Their brokers are named ``broker-a-0``, ``broker-a-1`` ... after ``broker_name``, and each keeps its
messages in the directory of its name below the store's, laid out as any broker's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import ConfigError, StoreError

PORT_STEP: Final = 10
"""How far the ports of two workers are apart. An Apache broker that takes one over has a port two
below its own (VIP channel), and one above (HA)."""
MAX_WORKERS: Final = 256
_MAX_PORT: Final = 65535
_NAME: Final = re.compile(r"(?P<name>.+)-(?P<number>0|[1-9]\d{0,3})")
_PORTS: Final = ("port", "fast_listen_port")


def plan(config: BrokerConfig, count: int, root: Path) -> list[list[BrokerConfig]]:
    """The settings of the brokers of each of ``count`` workers, made of ``config``.

    A broker for each worker, and for each more that has messages below ``root``: those are shared
    out among the workers. Changed settings are kept in each broker's own directory. Raises
    ConfigError when there are messages of other brokers in ``root``, and for ports that cannot be.
    """
    if not 1 <= count <= MAX_WORKERS:
        raise ConfigError("workers", count, f"1 to {MAX_WORKERS}")
    if _is_store(root):
        raise ConfigError(
            "workers",
            count,
            f"{root} is the store of a single broker: start without workers, or move all but "
            f"namesrv into {root / f'{config.broker_name}-0'}, for the first worker to serve it",
        )
    stored = _stored_numbers(root, config.broker_name)
    numbers = sorted({*range(count)} | stored)
    ports = _ports(config, numbers)
    brokers = [_worker(config, number, root, ports[number]) for number in numbers]
    return [brokers[first::count] for first in range(count)]


def number_of(broker: BrokerConfig) -> int:
    """The number in the name of a worker's broker."""
    return int(broker.broker_name.rpartition("-")[2])


def check_lone(root: Path) -> None:
    """Raise ConfigError when ``root`` is no broker's store, but has those of workers in it."""
    if _is_store(root):
        return
    stores = sorted(path.name for path in _stores_below(root))
    if stores:
        raise ConfigError(
            "store",
            str(root),
            f"the stores of {len(stores)} workers are in it ({', '.join(stores[:4])}): start with "
            f"--workers {len(stores)}, or give one of them or another directory",
        )


def _stored_numbers(root: Path, broker_name: str) -> set[int]:
    """The numbers of the brokers that have stored messages below ``root``."""
    numbers = set()
    for path in _stores_below(root):
        match = _NAME.fullmatch(path.name)
        if match is None or match["name"] != broker_name:
            other = match["name"] if match else path.name
            raise ConfigError(
                "broker_name",
                broker_name,
                f"{path} has messages of another broker: give the name {other!r}, or another "
                "directory for the store",
            )
        numbers.add(int(match["number"]))
    return numbers


def _stores_below(root: Path) -> Iterator[Path]:
    try:
        yield from (path for path in root.iterdir() if _is_store(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{root} cannot be read: {error.strerror}", str(root)) from error


def _is_store(root: Path) -> bool:
    """Whether a broker has stored messages there: files, not only the directories for them."""
    try:
        return any((root / "commitlog").iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _worker(config: BrokerConfig, number: int, root: Path, ports: dict[str, int]) -> BrokerConfig:
    name = f"{config.broker_name}-{number}"
    return msgspec.structs.replace(
        config, broker_name=name, store_directory=root / name, settings_file=None, **ports
    )


def _ports(config: BrokerConfig, numbers: list[int]) -> dict[int, dict[str, int]]:
    """The ports of each worker, by field. Raises ConfigError for one too high, or used twice."""
    users: dict[int, str] = {}
    if not config.name_servers and config.name_server_port:
        users[config.name_server_port] = "the name server"
    ports: dict[int, dict[str, int]] = {number: {} for number in numbers}
    for number in numbers:
        name = f"{config.broker_name}-{number}"
        for field in _PORTS:
            first = getattr(config, field)
            if not first:
                continue
            port = first + PORT_STEP * number
            if port > _MAX_PORT:
                remedy = "take a lower one, or 0 for any free"
                raise ConfigError(field, first, f"{name} would listen on {port}: {remedy}")
            if port in users:
                both = f"{users[port]} and {name} would both listen on {port}"
                raise ConfigError(field, first, both)
            users[port] = name
            ports[number][field] = port
    return ports
