"""Successful responses of one shape, made by filling in a text: for the broker's hot path.

The answers to two sends, or two pulls, differ in a few values only. Filling them in takes a third
of the time of encoding a mapping, and gives the same bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Final

from orbitmq.codes import SUCCESS
from orbitmq.wire.command import JSON, RemotingCommand, encode_response

_LENGTHS: Final = struct.Struct(">II")
_OPAQUE: Final = 1_234_567_890
_DIRECTIVE: Final = re.compile(rb"%(?:\d+X|d|b)")
_NUL: Final = b"\0"  # which JSON has only escaped


class ResponseTemplate:
    """``fields`` are the extFields of the responses, where a value may be a directive of ``%``.

    ``remark`` is their remark, ``text`` the header to be filled, ``parts`` what stands between its
    directives. What fills a directive must need no escape in JSON, which is so for letters and
    digits.
    """

    __slots__ = ("parts", "text")

    def __init__(self, fields: Mapping[str, str], remark: str | None = None) -> None:
        sample = RemotingCommand(opaque=_OPAQUE, serialize_type=JSON)
        text = encode_response(sample, SUCCESS, fields, remark=remark)[_LENGTHS.size :]
        self.text: Final = text.replace(b'"opaque":%d' % _OPAQUE, b'"opaque":%d')
        parts = _DIRECTIVE.split(self.text.replace(b"%%", _NUL))
        self.parts: Final = [part.replace(_NUL, b"%") for part in parts]

    def fill(self, values: tuple[object, ...], body_length: int = 0) -> bytes:
        """The head of a frame, to be followed by ``body_length`` bytes of body.

        ``values`` are those of the directives in their order, then the opaque. Text goes in as
        bytes, by ``%b``.
        """
        return fill_response(self.text, values, body_length)


def fill_response(text: bytes, values: tuple[object, ...], body_length: int = 0) -> bytes:
    """See ResponseTemplate.fill; ``text`` is the template's."""
    header = text % values
    length = len(header)
    return _LENGTHS.pack(4 + length + body_length, length) + header
