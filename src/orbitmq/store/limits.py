"""What is too long to be stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from orbitmq.errors import InvalidMessageError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.wire.properties import MAX_PROPERTIES_BYTES, PAIR_SEPARATOR
from orbitmq.wire.record import BatchItem, Draft, record_size

_SEPARATOR: Final = PAIR_SEPARATOR.encode()
_MOST_BESIDE_BODY: Final = 1 << 17
"""More than a record's fixed part, topic and properties can take, and the file's filler."""


class Limits:
    """Checks what is to be stored in ``log``.

    A message with a body of ``safe_body`` bytes at the most is not too long, so check() need not
    be asked, unless its properties end in NUL. None with a body of more than ``most`` is stored.
    """

    def __init__(self, log: CommitLog, config: StoreConfig) -> None:
        self._log = log
        self.renew(config)

    def renew(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self.most = config.max_message_size
        self.safe_body = min(self.most, config.mapped_file_size - _MOST_BESIDE_BODY)

    def check(self, draft: Draft) -> None:
        """Refuse what is too long. A separator goes behind properties that end in NUL.

        It changes nothing for readers, and tells recovery a whole record from a torn one. Raises
        InvalidMessageError.
        """
        if len(draft.body) > self.most:
            raise InvalidMessageError(
                f"a body of {len(draft.body)} bytes is longer than {self.most} (max_message_size)"
            )
        if draft.properties.endswith(b"\0"):
            if len(draft.properties) == MAX_PROPERTIES_BYTES:
                raise InvalidMessageError(
                    f"properties of {MAX_PROPERTIES_BYTES} bytes cannot end in a NUL: shorten them"
                )
            draft.properties += _SEPARATOR
        self._log.check_size(record_size(draft))

    def checked(self, common: Draft, items: Sequence[BatchItem]) -> Sequence[BatchItem]:
        """The messages of a batch, as check() would have each."""
        safe_body = self.safe_body
        for _, body, properties in items:
            if len(body) > safe_body or properties.endswith(b"\0"):
                return [self._checked(common, item) for item in items]
        return items

    def _checked(self, common: Draft, item: BatchItem) -> BatchItem:
        flag, body, properties = item
        draft = msgspec.structs.replace(common, flag=flag, body=body, properties=properties)
        self.check(draft)
        return flag, body, draft.properties
