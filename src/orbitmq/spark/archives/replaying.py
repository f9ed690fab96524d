"""An archive back to a topic: ``orbitmq replay``, and the function for programs.

Bodies, keys, tags, properties and message ids stay as they were. All messages of one queue go to
one queue, in their order: to the same one where the topic has the same queues. A replay that was
killed finds out what it had sent already, by the message ids at the end of the topic.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, Unpack
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.client.files import replace_file
from orbitmq.errors import ArchiveError, ConfigError, TopicNotFoundError
from orbitmq.names import check_topic
from orbitmq.spark.archives.archiving import OnProgress
from orbitmq.spark.archives.files import REPLAYS, Part, QueueOffsets, locked, parts, read_manifest
from orbitmq.spark.cluster import Cluster, ClusterSettings, cluster_of
from orbitmq.spark.sink.frames import Numbers, frames_of, joined, lengths
from orbitmq.spark.sink.message_rows import MAX_BODY_BYTES, Messages
from orbitmq.spark.sink.sending import Sender
from orbitmq.spark.source.columns import ColumnDecoder
from orbitmq.spark.source.offsets import Offsets, flat, nested
from orbitmq.spark.source.options import TOOLS_GROUP
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire import properties as names
from orbitmq.wire.compress import CompressionType, compress
from orbitmq.wire.properties import encode_properties

log = logging.getLogger("orbitmq.spark")

REPLAY_GROUP: Final = "orbitmq_replay"
"""The producer group that replays send as."""

_OF_EACH: Final = ["brokerName", "queueId", "msgId", "properties"]
_COLUMNS: Final = [*_OF_EACH, "body", "flag"]
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_ID_SCHEMA: Final = pa.schema([pa.field("msgId", pa.string(), nullable=False)])

_INSTRUCTIONS: Final = frozenset(
    {
        *(names.DELAY, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS),
        *(names.TRANSACTION_PREPARED, names.TRANSACTION_PREPARED_QUEUE_OFFSET),
        *(names.INNER_NUM, names.INNER_BASE, names.INNER_MULTI_DISPATCH, names.CRC32),
        names.INNER_MULTI_QUEUE_OFFSET,
    }
)
"""Properties that told the broker what to do; it did, and is not to do it again."""


class Replayed(NamedTuple):
    """What a run did: ``messages`` it sent, ``found`` those a killed run had sent before it."""

    messages: int
    found: int


class _State(msgspec.Struct, kw_only=True):
    """How far a replay has come: ``groups`` row groups of the file of ``commit`` and ``day``.

    ``target`` is where the topic's queues ended when that was written; ``sources`` are the queues
    of the archive, the first of which go to the topic's first queue, and so on.
    """

    topic: str
    name_server: str
    from_day: str | None
    until_day: str | None
    commit: int = 0
    day: str = ""
    groups: int = 0
    finished: bool = False
    sources: list[tuple[str, int]] = []
    target: QueueOffsets | None = None

    def groups_done(self, part: Part) -> int | None:
        """How many row groups of ``part`` are done, None for all."""
        here = (part.commit, part.day)
        if here < (self.commit, self.day):
            return None
        return self.groups if here == (self.commit, self.day) else 0


def replay(
    directory: str | Path,
    topic: str | None = None,
    *,
    from_day: str | None = None,
    until_day: str | None = None,
    checkpoint: str | Path | None = None,
    restart: bool = False,
    on_progress: OnProgress | None = None,
    **settings: Unpack[ClusterSettings],
) -> Replayed:
    """Send what the archive in ``directory`` holds to ``topic``, by default the one it came from.

    Days are given as ``2026-11-22``, both inclusive; without them it is all. How far a replay has
    come is kept in ``checkpoint``, by default a file in the archive's directory: a run that is
    killed is gone on with, and a later one sends what was archived since. ``restart`` forgets it
    and begins anew. Each message is stored once, or twice where the answer to its batch was lost.
    Messages that were delayed or in a transaction are sent as plain ones.

    Raises:
        ConfigError: a setting may not be.
        ArchiveError: there is no archive, another process replays it to the same topic, or the
            checkpoint is of a replay of other days or to another cluster.
        InvalidMessageError, NetworkError, BrokerError: messages cannot be sent.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if manifest is None:
        raise ArchiveError(f"{directory} is no archive: it has no file _archive.json")
    topic = manifest.topic if topic is None else topic
    check_topic(topic)
    _check_day("from_day", from_day)
    _check_day("until_day", until_day)
    cluster = cluster_of(settings)
    file = Path(checkpoint) if checkpoint else directory / REPLAYS / f"{quote(topic, '')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    wanted = _State(
        topic=topic,
        name_server=";".join(cluster.name_servers),
        from_day=from_day,
        until_day=until_day,
    )
    with locked(file.with_name(file.name + ".lock")):
        state = wanted if restart else _read_state(file, wanted)
        known = [queue[1:] for queue in flat({manifest.topic: manifest.queues})]
        state.sources += [queue for queue in sorted(known) if queue not in state.sources]
        run = _Run(file, state, cluster)
        return run.send(parts(directory, from_day, until_day), on_progress)


def _check_day(name: str, day: str | None) -> None:
    if day is not None and not _DAY.fullmatch(day):
        raise ConfigError(name, day, "a day (UTC) such as 2026-11-22")


def _read_state(file: Path, wanted: _State) -> _State:
    try:
        state = msgspec.json.decode(file.read_bytes(), type=_State)
    except FileNotFoundError:
        return wanted
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{file} is not the checkpoint of a replay: {error}") from error
    for name in ("topic", "name_server", "from_day", "until_day"):
        if getattr(state, name) != getattr(wanted, name):
            raise ArchiveError(
                f"{file} tells how far a replay has come with {name}={getattr(state, name)!r}, not "
                f"{getattr(wanted, name)!r}: give another checkpoint, or restart to send it all"
            )
    return state


class _Run:
    """One run of a replay."""

    def __init__(self, file: Path, state: _State, cluster: Cluster) -> None:
        self._file = file
        self._state = state
        self._cluster = cluster
        self._topic = cluster.namespace.wrap(state.topic)
        self._target = TopicClient(
            cluster.name_servers, state.topic, cluster.access, cluster.namespace.name
        )
        self._sent: set[str] = set()
        self._found = 0
        self._places = {queue: place for place, queue in enumerate(state.sources)}

    def send(self, files: list[Part], on_progress: OnProgress | None) -> Replayed:
        """Send what is not sent yet of ``files``."""
        left = [
            (part, done) for part in files if (done := self._state.groups_done(part)) is not None
        ]
        total = sum(_rows(part.path, done) for part, done in left)
        if self._state.finished or self._state.target is None:
            self._state.finished = False
            self._write()
        else:
            self._sent = self._already_sent(self._state.target)
        messages = 0
        tell = on_progress or (lambda _done, _total: None)
        tell(0, total)
        cluster = self._cluster
        with closing(Sender(cluster.name_servers, REPLAY_GROUP, cluster.access)) as sender:
            for part, done in left:
                for groups, table in _row_groups(part.path, done, _COLUMNS):
                    sender.add_all(self._messages(table))
                    sender.finish()
                    messages += table.num_rows
                    self._save(part, groups)
                    tell(messages, total)
        self._state.finished = True
        self._write()
        return Replayed(messages - self._found, self._found)

    def _messages(self, table: Any) -> Messages:
        """The rows of ``table`` that are still to be sent."""
        rows: list[int] = []
        properties: list[bytes] = []
        places: list[int] = []
        columns = (table.column(name).to_pylist() for name in _OF_EACH)
        for row, (broker_name, queue_id, message_id, pairs) in enumerate(
            zip(*columns, strict=True)
        ):
            kept = {name: value for name, value in pairs if name not in _INSTRUCTIONS}
            if kept.setdefault(names.UNIQ_KEY, message_id) in self._sent:
                self._found += 1
                continue
            rows.append(row)
            properties.append(encode_properties(kept))
            places.append(self._place(broker_name, queue_id))
        some = table.select(["body", "flag"]).take(pa.array(rows, pa.int64())).combine_chunks()
        bodies, kinds = _bodies(some.column("body"))
        messages = joined(bodies, pa.array(properties, pa.binary()), some.column("flag").to_numpy())
        numbers, ids = np.array(rows, np.int64), np.zeros((len(rows), 0), np.uint8)
        frames = frames_of(messages, kinds, numbers, ids)
        lanes = np.array(places, np.int64)
        return Messages(self._topic, frames, lambda queues, _: lanes % len(queues))

    def _place(self, broker_name: str, queue_id: int) -> int:
        """The number of the queue a row comes from, among all of the archive."""
        queue = (broker_name, queue_id)
        place = self._places.get(queue)
        if place is None:
            place = self._places[queue] = len(self._places)
            self._state.sources.append(queue)
        return place

    def _already_sent(self, target: QueueOffsets) -> set[str]:
        """The ids of the messages that came to the topic since it ended at ``target``."""
        ends = self._ends()
        begins = flat({self._state.topic: target})
        ranges = [
            QueueRange(*queue, self._target.address(queue), begins.get(queue, 0), end)
            for queue, end in ends.items()
            if end > begins.get(queue, 0)
        ]
        reader = RangeReader(
            self._topic, TOOLS_GROUP, "*", fail_on_data_loss=False, access=self._cluster.access
        )
        decoder = ColumnDecoder(_ID_SCHEMA, self._topic)
        found: set[str] = set()
        for broker_name, data in reader.read(ranges):
            found.update(decoder.decode(bytes(data), broker_name).column(0).to_pylist())
        return found

    def _ends(self) -> Offsets:
        try:
            self._target.refresh()
        except TopicNotFoundError:  # the first message may make it
            return {}
        bounds = self._target.bounds(all_brokers=True)
        return {queue: bound.end for queue, bound in bounds.items()}

    def _save(self, part: Part, groups: int) -> None:
        self._state.commit, self._state.day, self._state.groups = part.commit, part.day, groups
        self._write()

    def _write(self) -> None:
        """Write down how far it has come, all sent having arrived."""
        self._state.target = nested(self._ends()).get(self._state.topic, {})
        replace_file(self._file, msgspec.json.format(msgspec.json.encode(self._state), indent=1))


def _bodies(column: Any) -> tuple[Any, Numbers]:
    """Bodies as they are sent, and their sysFlag: those that had come compressed go so again."""
    bodies = pa.array([], pa.binary()) if not column.num_chunks else column.chunk(0)
    large = lengths(bodies) > MAX_BODY_BYTES
    kinds = np.where(large, CompressionType.ZLIB.flag, 0)
    if large.any():
        pairs = zip(bodies.to_pylist(), large.tolist(), strict=True)
        bodies = pa.array([compress(body) if is_large else body for body, is_large in pairs])
    return bodies, kinds


def _rows(path: Path, first_group: int) -> int:
    with pq.ParquetFile(path) as file:
        groups = range(first_group, file.num_row_groups)
        return sum(file.metadata.row_group(number).num_rows for number in groups)


def _row_groups(path: Path, first: int, columns: list[str]) -> Iterator[tuple[int, Any]]:
    """The row groups of a file from ``first`` on, each with how many are done with it."""
    with pq.ParquetFile(path) as file:
        for number in range(first, file.num_row_groups):
            yield number + 1, file.read_row_group(number, columns=columns)
