"""The frame head of a send request, encoded from a template: the hottest encoder of a producer.

Between two messages of a producer to the same topic and broker only a few fields differ, so the
JSON header is written once with gaps for these. It decodes to the same command as one made by
``encode_request`` with a SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from orbitmq.codes import LANGUAGE, PROTOCOL_VERSION, RequestCode
from orbitmq.errors import HeaderError
from orbitmq.wire.command import JSON, MAX_HEADER_LENGTH, ONEWAY

_LENGTHS = struct.Struct(">II")
_TEMPLATE: Final = (
    b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%%d","f":"%%d","g":"%%d",'
    b'"h":"%%d","i":%%b,"j":"0","k":"%b","m":"%b","n":%b},"flag":%%d,"language":"%b",'
    b'"opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
)
_to_json = msgspec.json.Encoder().encode


class SendRequestTemplate:
    """SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE with ``batch``, of one group to one topic and broker.

    ``default_topic`` and ``default_topic_queue_nums`` are what an unknown topic is created from.
    """

    __slots__ = ("_template",)

    def __init__(
        self,
        producer_group: str,
        topic: str,
        broker_name: str,
        *,
        default_topic: str,
        default_topic_queue_nums: int,
        unit_mode: bool = False,
        batch: bool = False,
    ) -> None:
        def constant(text: str) -> bytes:
            return _to_json(text).replace(b"%", b"%%")  # names may have a %

        self._template = _TEMPLATE % (
            RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2,
            constant(producer_group),
            constant(topic),
            constant(default_topic),
            default_topic_queue_nums,
            b"true" if unit_mode else b"false",
            b"true" if batch else b"false",
            constant(broker_name),
            LANGUAGE.encode(),
            PROTOCOL_VERSION,
        )

    def head(
        self,
        opaque: int,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        flag: int,
        properties: bytes,
        body_length: int,
        *,
        oneway: bool = False,
    ) -> bytes:
        """All of the frame before its body. ``properties`` is JSON text, see :func:`json_text`."""
        header = self._template % (
            queue_id,
            sys_flag,
            born_timestamp,
            flag,
            properties,
            ONEWAY if oneway else 0,
            opaque,
        )
        length = len(header)
        if length > MAX_HEADER_LENGTH:
            raise HeaderError(f"the header has {length} bytes, over {MAX_HEADER_LENGTH}")
        return _LENGTHS.pack(4 + length + body_length, JSON << 24 | length) + header


def json_text(text: str) -> bytes:
    """``text`` as a JSON string."""
    return _to_json(text)
