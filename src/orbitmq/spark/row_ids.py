"""Unique ids that a row gets again when it is written again: made of what it holds, not of when.

The 32 digits are: 8 of the write, 20 of the row's content within it, and 4 of its place among the
task's rows, which tells rows of one content apart but may be another the next time.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import numpy as np

from orbitmq.spark.frames import Ids, bytes_of
from orbitmq.spark.message_rows import MessageRows
from orbitmq.spark.unique_ids import count_digits

WRITE_DIGITS: Final = 8
CONTENT_DIGITS: Final = 28
"""So many of an id's first digits are the same whenever the row is written."""

_CONTENT_BYTES: Final = (CONTENT_DIGITS - WRITE_DIGITS) // 2
_HEX: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint8)


class RowIds:
    """The ids of rows within ``scope``, any text. Equal rows of it count as often as they come."""

    def __init__(self, scope: str) -> None:
        self._salt = blake2b(scope.encode(), digest_size=16).digest()
        self.write = self._salt[: WRITE_DIGITS // 2].hex().upper().encode()
        """What every id of this scope begins with."""

    def of(self, rows: MessageRows) -> Ids:
        """An id for each row."""
        digests = np.frombuffer(self._digests(rows.identities()), np.uint8)
        ids = np.empty((rows.count, 32), np.uint8)
        ids[:, :WRITE_DIGITS] = np.frombuffer(self.write, np.uint8)
        ids[:, WRITE_DIGITS:CONTENT_DIGITS] = _HEX.reshape(256, 2)[digests].reshape(
            rows.count, CONTENT_DIGITS - WRITE_DIGITS
        )
        places = np.arange(rows.first, rows.first + rows.count) & 0xFFFF
        ids[:, CONTENT_DIGITS:] = count_digits()[places]
        return ids

    def _digests(self, array: Any) -> bytes:
        offsets, data = bytes_of(array)
        ends = offsets.tolist()
        salt = self._salt
        return b"".join(
            [
                blake2b(data[begin:end], digest_size=_CONTENT_BYTES, salt=salt).digest()
                for begin, end in pairwise(ends)
            ]
        )
