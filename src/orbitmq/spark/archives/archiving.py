"""A topic to Parquet files by day: ``orbitmq archive``, and the function for programs.

It needs no Spark at work and no Java: the pulls of Spark's tasks and their Arrow columns do it in
this process, and Spark reads what comes out. Each run goes on where the one before ended or was
killed; see :mod:`orbitmq.spark.archives.files` for how.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, Unpack

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from orbitmq.client.files import sync_file
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.filters.tags import parse_tags
from orbitmq.names import check_topic
from orbitmq.spark.archives.files import (
    Manifest,
    hidden_part,
    opened,
    publish,
    write_manifest,
)
from orbitmq.spark.cluster import ClusterSettings, cluster_of
from orbitmq.spark.source.admission import limit_ends
from orbitmq.spark.source.boundaries import Resolver, parse_offsets
from orbitmq.spark.source.columns import ColumnDecoder
from orbitmq.spark.source.offsets import (
    Offsets,
    Place,
    begin_at,
    flat,
    nested,
    places_made_anew,
    queues_to_ask,
    seen_now,
)
from orbitmq.spark.source.options import TOOLS_GROUP
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.schema import ALL_COLUMNS
from orbitmq.spark.source.topic import TopicClient

log = logging.getLogger("orbitmq.spark")

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
FILE_BYTES: Final = 128 * 1024 * 1024
"""About how much a commit holds, before compression: what Spark likes in a file."""

_FIRST_COMMIT_ROWS: Final = 50_000
_SMALLEST_COMMIT_ROWS: Final = 1_000
_LARGEST_COMMIT_ROWS: Final = 5_000_000
_DAY_MS: Final = 24 * 60 * 60 * 1000

OnProgress = Callable[[int, int], None]
"""Gets how many messages are done and how many there are to do."""


class Archived(NamedTuple):
    """What a run did: ``messages`` and ``files`` are new ones, ``total`` are all of the archive."""

    messages: int
    files: int
    total: int


def archive(
    topic: str,
    directory: str | Path,
    *,
    tags: str = "*",
    starting_offsets: str = "earliest",
    fail_on_data_loss: bool = True,
    on_progress: OnProgress | None = None,
    **settings: Unpack[ClusterSettings],
) -> Archived:
    """Bring the archive of ``topic`` in ``directory`` up to now.

    The first run begins at ``starting_offsets``, as the option of ``format("rocketmq")``, every
    other where the last one ended; each ends at what was there when it began. A run that is killed
    leaves an archive with each message once at most, and the next run goes on there. Rows have all
    columns that Spark can read, and lie in ``day=...``, the day (UTC) the broker stored them.
    ``tags`` are joined by ``||``. Which cluster is meant, ``settings`` say as for every client.

    Raises:
        ConfigError: a setting may not be.
        ArchiveError: the directory is of something else, or another process archives into it.
        DataLossError: the broker removed messages since the last run, or the topic was deleted and
            made again; ``fail_on_data_loss=False`` logs that and goes on with what is there.
        NetworkError, BrokerError: the cluster cannot be read; what is archived stays.
    """
    check_topic(topic)
    cluster = cluster_of(settings)
    wanted_tags = parse_tags(tags)
    boundary = parse_offsets("starting_offsets", starting_offsets, topic)
    directory = Path(directory)
    client = TopicClient(cluster.name_servers, topic, cluster.access, cluster.namespace.name)
    with opened(directory, topic, tags) as found:
        client.refresh()
        bounds = client.bounds(all_brokers=True)
        manifest, seen = found, _seen(found)
        asked = queues_to_ask(queue_offsets(found), bounds, seen)
        anew = places_made_anew(asked, client.first_stored(asked.values()), seen)
        if manifest.queues:
            new = {queue: bound.first for queue, bound in bounds.items()}
            begins_wanted = new | queue_offsets(manifest)
        else:
            resolver = Resolver(client, SYSTEM_CLOCK.now_ms())
            begins_wanted = resolver.resolve("starting_offsets", boundary, bounds)
            manifest = _at(manifest, begins_wanted)
            write_manifest(directory, manifest)
        begins, losses = begin_at(
            begins_wanted, bounds, fail_on_data_loss=fail_on_data_loss, made_anew=anew
        )
        for loss in losses:
            log.warning("data loss: %s", loss)
        ends = {queue: max(begin, bounds[queue].end) for queue, begin in begins.items()}
        run = _Run(
            directory,
            msgspec.structs.replace(manifest, seen=_by_broker(seen_now(seen, client.stored, anew))),
            client,
            RangeReader(
                cluster.namespace.wrap(topic),
                TOOLS_GROUP,
                tags,
                fail_on_data_loss=fail_on_data_loss,
                access=cluster.access,
                name_servers=cluster.name_servers,
            ),
            ColumnDecoder(archive_schema(), topic, wanted_tags),
            on_progress or (lambda _done, _total: None),
        )
        return run.bring_up(begins, ends)


def archive_schema() -> Any:
    """The Arrow schema of an archive: all columns that Spark can read."""
    return to_arrow_schema(ALL_COLUMNS, timezone="UTC")


def queue_offsets(manifest: Manifest) -> Offsets:
    """How far the archive goes, by queue."""
    return flat({manifest.topic: manifest.queues})


def _seen(manifest: Manifest) -> dict[Place, int]:
    return {Place(manifest.topic, broker): time for broker, time in manifest.seen.items()}


def _by_broker(seen: Mapping[Place, int]) -> dict[str, int]:
    return {place.broker_name: time for place, time in seen.items()}


def _at(manifest: Manifest, offsets: Offsets) -> Manifest:
    queues = nested(offsets).get(manifest.topic, {})
    return msgspec.structs.replace(manifest, queues=queues)


class _Run:
    """One run: commit after commit, until the ends are reached."""

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        client: TopicClient,
        reader: RangeReader,
        decoder: ColumnDecoder,
        on_progress: OnProgress,
    ) -> None:
        self._directory = directory
        self._manifest = manifest
        self._client = client
        self._reader = reader
        self._decoder = decoder
        self._on_progress = on_progress
        self._schema = archive_schema()

    def bring_up(self, begins: Offsets, ends: Offsets) -> Archived:
        """Archive what lies between ``begins`` and ``ends``."""
        before = self._manifest.messages
        total = sum(ends[queue] - begin for queue, begin in begins.items())
        done = files = 0
        rows = _FIRST_COMMIT_ROWS
        self._on_progress(0, total)
        while begins != ends:
            stops = limit_ends(begins, ends, rows)
            ranges = [
                QueueRange(*queue, self._client.address(queue), begin, stops[queue])
                for queue, begin in begins.items()
                if stops[queue] > begin
            ]
            commit = CommitFiles(self._directory, self._manifest.commit + 1, self._schema)
            with commit:
                for broker_name, data in self._reader.read(ranges):
                    batch = self._decoder.decode(bytes(data), broker_name)
                    commit.write(batch)
                    self._on_progress(min(done + commit.messages, total), total)
            self._commit(commit, stops)
            files += commit.files
            done += sum(item.rows for item in ranges)
            rows = _rows_for(FILE_BYTES, commit)
            begins = stops
            self._on_progress(done, total)
        return Archived(self._manifest.messages - before, files, self._manifest.messages)

    def _commit(self, commit: CommitFiles, stops: Offsets) -> None:
        manifest = _at(self._manifest, queue_offsets(self._manifest) | stops)
        self._manifest = msgspec.structs.replace(
            manifest, commit=commit.number, messages=manifest.messages + commit.messages
        )
        write_manifest(self._directory, self._manifest)
        publish(self._directory, commit.number)


def _rows_for(size: int, commit: CommitFiles) -> int:
    """How many rows fill ``size``, if they are like those of ``commit``."""
    if not commit.size:
        return _LARGEST_COMMIT_ROWS
    fitting = size * commit.messages // commit.size
    return min(max(fitting, _SMALLEST_COMMIT_ROWS), _LARGEST_COMMIT_ROWS)


class CommitFiles:
    """The files of one commit, hidden, a day each; closed and on the disk when the block ends.

    Within a commit the rows of a queue go to no earlier day than the rows before them, even where
    the broker's clock was set back: so days after each other have a queue's rows in their order.
    """

    def __init__(self, directory: Path, number: int, schema: Any) -> None:
        self.number = number
        self.messages = 0
        self.size = 0
        self._directory = directory
        self._schema = schema
        self._days: dict[int, _DayFile] = {}
        self._latest: dict[tuple[str, int], int] = {}

    @property
    def files(self) -> int:
        """How many there are."""
        return len(self._days)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self._days.values():
            file.close(keep=kind is None)

    def write(self, batch: Any) -> None:
        """Add the rows of ``batch``, a record batch of one broker."""
        if not batch.num_rows:
            return
        days = self._days_of(batch)
        for day in np.unique(days).tolist():
            file = self._days.get(day)
            if file is None:
                name = str(np.datetime64(day, "D"))
                path = hidden_part(self._directory, name, self.number)
                file = self._days[day] = _DayFile(path, self._schema)
            here = days == day
            rows = batch if here.all() else batch.filter(pa.array(here))
            file.write(rows)
        self.messages += batch.num_rows
        self.size += batch.nbytes

    def _days_of(self, batch: Any) -> npt.NDArray[Any]:
        stored = batch.column("storeTimestamp").cast(pa.int64()).to_numpy()
        days: npt.NDArray[Any] = stored // (_DAY_MS * 1000)
        broker_name = batch.column("brokerName")[0].as_py()
        queue_ids = batch.column("queueId").to_numpy()
        for queue_id in np.unique(queue_ids).tolist():
            rows = queue_ids == queue_id
            least = self._latest.get((broker_name, queue_id), days[rows][0])
            days[rows] = np.maximum(np.maximum.accumulate(days[rows]), least)
            self._latest[broker_name, queue_id] = int(days[rows][-1])
        return days


class _DayFile:
    """A Parquet file that is being written, a row group at a time."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._path = path
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._batches: list[Any] = []
        self._size = 0

    def write(self, batch: Any) -> None:
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size >= ROW_GROUP_BYTES:
            self._flush()

    def close(self, *, keep: bool) -> None:
        if keep:
            self._flush()
        self._writer.close()
        if keep:
            sync_file(self._path)
            sync_file(self._path.parent)
        else:
            self._path.unlink()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches, self._size = [], 0
