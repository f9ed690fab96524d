"""The statistics of a topic on one broker, read fast: an idle query asks for them every second."""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.wire.bodies import TopicOffset, TopicStatsTable


class _Piece(msgspec.Struct, rename="camel"):
    """Either side of ``{queue}:{range}``."""

    queue_id: int = -1
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


_PIECES: Final = msgspec.json.Decoder(list[_Piece])


def read_ranges(body: bytes) -> dict[int, TopicOffset]:
    """The ranges of queues by queue id, of the answer to GET_TOPIC_STATS_INFO.

    Raises BodyError when it is none.
    """
    pieces = _pieces(bytes(body))
    if pieces is None:
        table = TopicStatsTable.decode(body).offset_table
        return {queue.queue_id: offsets for queue, offsets in table.items()}
    return {
        queue.queue_id: TopicOffset(
            offsets.min_offset, offsets.max_offset, offsets.last_update_timestamp
        )
        for queue, offsets in zip(pieces[0::2], pieces[1::2], strict=True)
    }


def _pieces(body: bytes) -> list[_Piece] | None:
    """Queues and ranges in turn; None for a body that is not as every broker writes it.

    Java writes objects as the keys of a table, ``{{..}:{..},{..}:{..}}``, which is not JSON. With
    a comma for each colon it is a list in JSON, and read thirty times as fast as with
    orbitmq.wire.fastjson.
    """
    start = body.find(b'"offsetTable":{{')
    end = body.find(b"}}", start)
    if start < 0 or end < 0:
        return None
    table = body[start + len(b'"offsetTable":{') : end + 1]
    try:
        pieces = _PIECES.decode(b"[%b]" % table.replace(b"}:{", b"},{"))
    except msgspec.DecodeError:
        return None
    if len(pieces) % 2 or any(piece.queue_id < 0 for piece in pieces[0::2]):
        return None
    return pieces
