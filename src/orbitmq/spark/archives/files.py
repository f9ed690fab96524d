"""The directory of an archive: what is in it, and how it stays exact whatever is killed.

::

    DIR/day=2026-11-22/part-00000007.parquet    the rows of commit 7 that were stored that day (UTC)
    DIR/_archive.json                           the manifest: how far the archive goes
    DIR/_replays/orders.json                    how far a replay to the topic orders has come

Spark, pyarrow and DuckDB read such a directory as one table with the column ``day``; they pass over
names that begin with ``_`` or ``.``. A commit is made of one Parquet file a day. Its files are
written under hidden names; then the manifest is replaced, which is the moment the commit counts;
then the files get their names. What a kill leaves hidden is named or deleted the next time, by the
manifest: a row is there once, and never goes again.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.client.files import replace_file, sync_file
from orbitmq.errors import ArchiveError

MANIFEST: Final = "_archive.json"
REPLAYS: Final = "_replays"

_LOCK: Final = "_archive.lock"
_VERSION: Final = 1
_PART: Final = re.compile(r"(\.?)part-(\d{8,})\.parquet")

QueueOffsets = dict[str, dict[str, int]]
"""Offsets by broker name and queue id, as the options of ``format("rocketmq")`` have them."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """How far an archive goes: everything before ``queues`` is in its commits 1 to ``commit``.

    ``seen`` has, by broker, when the newest message known was stored (ms): all of a topic that was
    deleted and made again is newer.
    """

    topic: str
    tags: str = "*"
    commit: int = 0
    messages: int = 0
    queues: QueueOffsets = {}
    seen: dict[str, int] = {}
    version: int = _VERSION


class Part(msgspec.Struct, frozen=True, order=True):
    """A file of an archive, in the order in which they are replayed."""

    commit: int
    day: str
    path: Path


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of ``directory``, None where it is no archive yet.

    Raises ArchiveError where it cannot be understood.
    """
    path = directory / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{path} is not the manifest of an archive: {error}") from error
    if manifest.version != _VERSION:
        raise ArchiveError(
            f"{path} is of version {manifest.version}, this OrbitMQ reads version {_VERSION}: "
            "use the one that wrote it"
        )
    return manifest


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Have the archive go as far as ``manifest`` says."""
    replace_file(directory / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def hidden_part(directory: Path, day: str, commit: int) -> Path:
    """Where the file of ``day`` is written in ``commit``; its directory is made."""
    folder = directory / f"day={day}"
    if not folder.exists():
        folder.mkdir()
        sync_file(directory)
    return folder / f".part-{commit:08}.parquet"


def publish(directory: Path, commit: int) -> None:
    """Name the files of all commits up to ``commit``, and delete what is left of later ones."""
    for path in sorted(directory.glob("day=*/.part-*.parquet")):
        found = _PART.fullmatch(path.name)
        if found is None:
            continue
        if int(found[2]) <= commit:
            path.rename(path.with_name(path.name.removeprefix(".")))
        else:
            path.unlink()
        sync_file(path.parent)


def parts(directory: Path, first_day: str | None = None, last_day: str | None = None) -> list[Part]:
    """The files of the archive, of these days at most, in their order."""
    found = []
    for path in directory.glob("day=*/part-*.parquet"):
        name, day = _PART.fullmatch(path.name), path.parent.name.removeprefix("day=")
        if name is None or (first_day and day < first_day) or (last_day and day > last_day):
            continue
        found.append(Part(int(name[2]), day, path))
    return sorted(found)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others from the same work for the block. Raises ArchiveError where one is at it."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArchiveError(
                f"another process is at work in {path.parent}: wait for it or end it"
            ) from error
        yield


@contextmanager
def opened(directory: Path, topic: str, tags: str) -> Iterator[Manifest]:
    """The archive of ``topic`` in ``directory``, to go on with; made where there is none.

    Raises ArchiveError where it is another topic's, or another process works on it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / _LOCK):
        manifest = read_manifest(directory)
        if manifest is None:
            if next(directory.glob("day=*"), None) is not None:
                raise ArchiveError(
                    f"{directory} has data of something else; choose an empty directory"
                )
            manifest = Manifest(topic=topic, tags=tags)
        if (manifest.topic, manifest.tags) != (topic, tags):
            raise ArchiveError(
                f"{directory} is the archive of topic {manifest.topic!r} with tags "
                f"{manifest.tags!r}, not of {topic!r} with {tags!r}; choose another directory"
            )
        publish(directory, manifest.commit)
        yield manifest
