"""From send requests to records and answers, in one pass: the broker's hottest code.

Most messages are plain: they are stored as they come, in the queue they are sent to. Whatever asks
for more ends the pass, and goes the general way.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from orbitmq.compiled import compiled
from orbitmq.wire.command import ONEWAY, RemotingCommand
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import (
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    TAGS,
    UNIQ_KEY,
)
from orbitmq.wire.record import (
    HEADERS,
    HOSTS_V6,
    LAYOUTS,
    QUEUE_UNIT,
    TRANSACTION_PREPARED,
    hosts_index,
    topic_part,
)
from orbitmq.wire.response_template import fill_response

KEY_MARK: Final = f"{PAIR_SEPARATOR}{UNIQ_KEY}{NAME_SEPARATOR}"
TAGS_MARK: Final = f"{PAIR_SEPARATOR}{TAGS}{NAME_SEPARATOR}"
"""What stands before a unique key, and before tags."""

_pack_unit: Final = QUEUE_UNIT.pack
_packers: Final = tuple(header.pack for header in HEADERS)
_FIXED: Final = tuple(layout.body for layout in LAYOUTS)

_QueueT = TypeVar("_QueueT")

Noted: TypeAlias = tuple[RemotingCommand, bytes, Any]
"""A request to send, its host as records have it, and what its owner wants to remember."""


class SendRules(NamedTuple):
    """What plain messages are, and what they get.

    ``store_host`` is in their records, ``suffix`` behind their properties; the body has
    ``most_body`` bytes at most, and the properties none of the texts in ``special``. ``answer`` is
    the header of their answer, with directives of ``%`` for physical offset, queue id, queue
    offset, unique key and opaque in this order; ``parts`` is what stands between these
    (ResponseTemplate). The marks are KEY_MARK and TAGS_MARK.
    """

    store_host: bytes
    suffix: str
    most_body: int
    special: Sequence[str]
    answer: bytes
    parts: Sequence[bytes]
    key_mark: str = KEY_MARK
    tags_mark: str = TAGS_MARK


QueueRun: TypeAlias = tuple[_QueueT, int, int, int, bytes]
"""What a queue gets: where its first message is in it and in the log, the size of all records.

Then the messages' entries for the queue.
"""


class _Run(msgspec.Struct, gc=False):
    """A QueueRun in the making."""

    queue: Any
    first: int
    position: int
    size: int
    units: list[bytes]


@compiled
def encode_sends(
    noted: Sequence[Noted],
    first: int,
    rules: SendRules,
    find_topic: Callable[[str], tuple[int, int] | None],
    find_queue: Callable[[str, int], tuple[_QueueT, int]],
    store_timestamp: int,
    position: int,
    limit: int,
) -> tuple[bytes, list[bytes | None], list[QueueRun[_QueueT]]]:
    """Encode messages from the ``first`` on, from ``position`` in the log on to ``limit``.

    Up to one that is not plain, or does not fit. ``find_topic`` gives the number of a topic's
    queues and the bits that its messages get in sysFlag, or None if there is more to say about it;
    ``find_queue`` a queue and its next offset. Returns the records, the answers (None: none is
    wanted), and what each queue gets; what is last in the log is in the last of these.
    """
    store_host, suffix, most_body, special, answer, _, key_mark, tags_mark = rules
    topics: dict[str, tuple[int, int] | None] = {}
    runs: dict[tuple[str, int], _Run] = {}
    records: list[bytes | memoryview] = []
    answers: list[bytes | None] = []
    for number in range(first, len(noted)):
        command, born_host, _ = noted[number]
        header = command.typed
        if header is None or header.batch or header.sys_flag & TRANSACTION_PREPARED:
            break
        topic, queue_id, body = header.topic, header.queue_id, command.body
        if topic not in topics:
            topics[topic] = find_topic(topic)
        found = topics[topic]
        if found is None or not 0 <= queue_id < found[0] or len(body) > most_body:
            break
        text = PAIR_SEPARATOR + (header.properties or "")
        if text[-1] != PAIR_SEPARATOR:  # 4.x clients leave the last one out
            text += PAIR_SEPARATOR
        key = _value(text, key_mark).encode()
        if not key.isalnum() or any(map(text.__contains__, special)):  # of ASCII, as bytes
            break
        properties = (text[1:] + suffix).encode()
        length = len(properties)
        if length > MAX_PROPERTIES_BYTES:
            break
        hosts = hosts_index(born_host, store_host)
        magic, middle = topic_part(topic, length)
        body_length = len(body)
        size = _FIXED[hosts] + body_length + len(middle) + length
        if position + size > limit:
            break
        run = runs.get((topic, queue_id))
        if run is None:
            queue, queue_offset = find_queue(topic, queue_id)
            run = runs[topic, queue_id] = _Run(queue, queue_offset, position, 0, [])
        queue_offset = run.first + len(run.units)
        fixed = _packers[hosts](
            size, magic, zlib.crc32(body) & 0x7FFFFFFF, queue_id, header.flag, queue_offset,
            position, (header.sys_flag | found[1]) & ~HOSTS_V6 | hosts << 4, header.born_timestamp,
            born_host, store_timestamp, store_host, header.reconsume_times or 0, 0, body_length,
        )  # fmt: skip
        records += (fixed, body, middle, properties)
        code = tags_code(_value(text, tags_mark)) if tags_mark in text else 0
        run.units.append(_pack_unit(position, size, code))
        run.size += size
        values = position, queue_id, queue_offset, key, command.opaque
        answers.append(None if command.flag & ONEWAY else fill_response(answer, values))
        position += size
    ended = list(runs.values())
    if len(ended) > 1:
        ended.sort(key=lambda run: run.units[-1])  # which begins with its position
    got: list[QueueRun[Any]] = [
        (run.queue, run.first, run.position, run.size, b"".join(run.units)) for run in ended
    ]
    return b"".join(records), answers, got


def _value(text: str, mark: str) -> str:
    """The value behind ``mark`` in properties that begin and end with a separator; "" for none.

    Of several the last that is not empty, as readers have it.
    """
    at = text.rfind(mark)
    while at >= 0:
        start = at + len(mark)
        value = text[start : text.find(PAIR_SEPARATOR, start)]
        if value:
            return value
        at = text.rfind(mark, 0, start - 1)
    return ""
