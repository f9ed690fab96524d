"""Unique ids that a row gets again when it is written again: made of what it holds, not of when.

The 32 digits are: 8 of the write, 20 of the row's content within it, and 4 of its place among the
task's rows, which tells rows of one content apart but may be another the next time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import numpy as np

from orbitmq.spark.sink.frames import Ids
from orbitmq.spark.sink.message_rows import MessageRows
from orbitmq.spark.sink.unique_ids import count_digits

WRITE_DIGITS: Final = 8
CONTENT_DIGITS: Final = 28
"""So many of an id's first digits are the same whenever the row is written."""

_CONTENT_BYTES: Final = (CONTENT_DIGITS - WRITE_DIGITS) // 2
_HEX: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint16)
"""The two digits of each byte as one number, so that they are looked up together."""


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
        contents = _HEX.take(digests).view(np.uint8)
        ids[:, WRITE_DIGITS:CONTENT_DIGITS] = contents.reshape(rows.count, 2 * _CONTENT_BYTES)
        places = np.arange(rows.first, rows.first + rows.count) & 0xFFFF
        ids[:, CONTENT_DIGITS:] = count_digits()[places]
        return ids

    def _digests(self, identities: Any) -> bytes:
        start, digests = blake2b(digest_size=_CONTENT_BYTES, salt=self._salt), []
        for identity in identities.to_pylist():
            one = start.copy()  # sooner made than a new one
            one.update(identity)
            digests.append(one.digest())
        return b"".join(digests)
