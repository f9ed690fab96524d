"""The frame head of a send request, encoded from a template: the hottest encoder of a producer.

Between two messages of a producer to the same topic and broker only a few fields differ, so the
JSON header is written once with gaps for these. It decodes to the same command as one made by
``encode_request`` with a SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from orbitmq.codes import LANGUAGE, PROTOCOL_VERSION, RequestCode
from orbitmq.errors import HeaderError
from orbitmq.wire.command import JSON, MAX_HEADER_LENGTH, ONEWAY
from orbitmq.wire.signing import SIGNATURE, RpcHook, signed_text

_LENGTHS = struct.Struct(">II")
_SIGNATURE_GAP: Final = b',"%b":"%%b"' % SIGNATURE.encode()
_TEMPLATE: Final = (
    b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%%d","f":"%%d","g":"%%d",'
    b'"h":"%%d","i":%%b,"j":"0","k":"%b","m":"%b","n":%b%b%b},"flag":%%d,"language":"%b",'
    b'"opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
)
json_text: Final[Callable[[str], bytes]] = msgspec.json.Encoder().encode
"""A text as a JSON string."""
_from_json = msgspec.json.Decoder(str).decode


class SendRequestTemplate:
    """SEND_MESSAGE_V2 of one group to one topic and broker.

    Or another ``code`` with the same header: SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2.

    ``default_topic`` and ``default_topic_queue_nums`` are what an unknown topic is created from;
    ``hook`` adds what all requests of the client carry.
    """

    __slots__ = ("_hook", "_signed", "_template")

    def __init__(
        self,
        producer_group: str,
        topic: str,
        broker_name: str,
        *,
        default_topic: str,
        default_topic_queue_nums: int,
        unit_mode: bool = False,
        code: int = RequestCode.SEND_MESSAGE_V2,
        hook: RpcHook | None = None,
    ) -> None:
        def constant(text: str) -> bytes:
            return json_text(text).replace(b"%", b"%%")  # names may have a %

        batch = code == RequestCode.SEND_BATCH_MESSAGE
        added = hook.fields if hook is not None else {}
        self._hook = hook if hook is not None and hook.signs else None
        self._signed = _signed_template(
            {
                "a": producer_group,
                "b": topic,
                "c": default_topic,
                "d": str(default_topic_queue_nums),
                "j": "0",
                "k": _boolean(unit_mode),
                "m": _boolean(batch),
                "n": broker_name,
                **added,
            }
        )
        self._template = _TEMPLATE % (
            code,
            constant(producer_group),
            constant(topic),
            constant(default_topic),
            default_topic_queue_nums,
            _boolean(unit_mode).encode(),
            _boolean(batch).encode(),
            constant(broker_name),
            b"".join(b",%b:%b" % (constant(name), constant(added[name])) for name in added),
            b"" if self._hook is None else _SIGNATURE_GAP,
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
        body: bytes,
        oneway: bool = False,
    ) -> bytes:
        """All of the frame before its body. ``properties`` is JSON text, see :func:`json_text`."""
        mode = ONEWAY if oneway else 0
        if self._hook is None:
            gaps = (queue_id, sys_flag, born_timestamp, flag, properties, mode, opaque)
            header = self._template % gaps
        else:
            numbers = (queue_id, sys_flag, born_timestamp, flag)
            text = self._signed % (*numbers, _from_json(properties))
            signature = self._hook.signature(text, body).encode()
            header = self._template % (*numbers, properties, signature, mode, opaque)
        length = len(header)
        if length > MAX_HEADER_LENGTH:
            raise HeaderError(f"the header has {length} bytes, over {MAX_HEADER_LENGTH}")
        return _LENGTHS.pack(4 + length + len(body), JSON << 24 | length) + header


def _signed_template(constants: dict[str, str]) -> str:
    """The signed text of the header, with the gaps of :meth:`SendRequestTemplate.head`."""
    fields = {name: value.replace("%", "%%") for name, value in constants.items()}
    return signed_text({**fields, "e": "%d", "f": "%d", "g": "%d", "h": "%d", "i": "%s"})


def _boolean(value: bool) -> str:
    return "true" if value else "false"
