"""The bodies brokers, name servers and tools exchange about clusters, typed as in bodies.py."""

from __future__ import annotations

import zlib
from typing import Any, Final, TypeVar

import msgspec

from orbitmq.errors import BodyError
from orbitmq.wire import fastjson
from orbitmq.wire.bodies import (
    Body,
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)

_T = TypeVar("_T")

MAX_INFLATED: Final = 64 << 20
"""The most bytes a compressed registration may unpack to."""


class RegisterBrokerBody(Body, frozen=True):
    """A broker's topics, told to a name server (103)."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = (
        TopicConfigAndMappingSerializeWrapper()
    )
    filter_server_list: list[str] = []

    @classmethod
    def decode_compressed(cls, data: bytes | memoryview) -> RegisterBrokerBody:
        """Read the deflated form of brokers with ``compressedRegister``.

        Its parts each stand behind their length: the version, the topics as text, the filter
        servers, and from 5.0 on the static topics.

        Raises:
            BodyError: a part is missing or cannot be read, or the whole is over MAX_INFLATED.
        """
        parts = _Parts(_inflate(data))
        version = DataVersion.decode(parts.next())
        topics = [_topic_of(parts.next()) for _ in range(parts.next_count())]
        filter_servers = _convert(fastjson.decode(parts.next()), list[str])
        mappings: dict[str, TopicQueueMappingInfo] = {}
        if parts.more:
            for _ in range(parts.next_count()):
                mapping = TopicQueueMappingInfo.decode(parts.next())
                mappings[mapping.topic or ""] = mapping
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=version,
            topic_queue_mapping_info_map=mappings,
        )
        return cls(wrapper, filter_servers)


class BrokerMemberGroup(Body, frozen=True):
    """The brokers that share a name, by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class GetBrokerMemberGroupResponseBody(Body, frozen=True):
    """The answer to 901."""

    broker_member_group: BrokerMemberGroup


class TopicList(Body, frozen=True):
    """Names of topics (206, 224, 304)."""

    topic_list: frozenset[str] = frozenset()
    broker_addr: str | None = None


class KVTable(Body, frozen=True):
    """Names and values, such as a broker's running state (28)."""

    table: dict[str, str] = {}


class _Parts:
    """Reads pieces that each follow their length in four bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def more(self) -> bool:
        return self._position < len(self._data)

    def next_count(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def next(self) -> bytes:
        return self._take(self.next_count())

    def _take(self, size: int) -> bytes:
        start = self._position
        self._position += size
        if self._position > len(self._data):
            raise BodyError(f"the compressed registration ends within a part of {size} bytes")
        return self._data[start : self._position]


def _inflate(data: bytes | memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, MAX_INFLATED)
    except zlib.error as error:
        raise BodyError(f"the compressed registration cannot be unpacked: {error}") from error
    if not inflater.eof:
        raise BodyError(f"the compressed registration is cut, or longer than {MAX_INFLATED} bytes")
    return inflated


def _topic_of(text: bytes) -> TopicConfig:
    """A topic from ``name read write perm filterType {attributes}`` (TopicConfig.decode)."""
    try:
        name, read, write, perm, filter_type, *rest = text.decode().split(" ", 5)
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(read),
            write_queue_nums=int(write),
            perm=int(perm),
            topic_filter_type=filter_type,
            attributes=_convert(fastjson.decode(rest[0].encode()), dict[str, str]) if rest else {},
        )
    except ValueError as error:
        raise BodyError(f"a compressed registration has the topic {text!r}: {error}") from error


def _convert(value: Any, wanted: type[_T]) -> _T:
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"in a compressed registration: {error}") from error
