"""What is asked of a name server about keys and values: headers of 100, 101, 102 and 219, bodies.

The Java classes are those of ``protocol.header.namesrv`` and ``namesrv.kvconfig``.
"""

from __future__ import annotations

from orbitmq.wire.bodies import Body
from orbitmq.wire.command import Header


class KVConfigSerializeWrapper(Body, frozen=True):
    """All values by namespace and key; the form of ``kvConfig.json``."""

    config_table: dict[str, dict[str, str]] = {}


class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class KVConfigRequestHeader(Header):
    """GET_KV_CONFIG and DELETE_KV_CONFIG (101, 102)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    """The answer to 101."""

    value: str | None = None


class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
