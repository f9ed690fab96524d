"""Protocol Buffers bodies as typed rows: the Spark type of a message, and bodies decoded by it.

Types are those of Spark's ``from_protobuf``. What a message may leave out, and a body does, is
null; a field without presence (``int32 n = 1;`` of proto3) has its default value then.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

Decoder: TypeAlias = Callable[[bytes], dict[str, Any]]
_Convert: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# By FieldDescriptor.cpp_type; message (10) and enum (8) are looked at closer.
_SCALARS: Final[dict[int, DataType]] = {
    1: IntegerType(),
    2: LongType(),
    3: LongType(),  # uint32
    4: DecimalType(20, 0),
    5: DoubleType(),
    6: FloatType(),
    7: BooleanType(),
    9: StringType(),
}
_UINT64: Final = 4
_ENUM: Final = 8
_MESSAGE: Final = 10
_BYTES: Final = 12  # FieldDescriptor.type


def message_schema(schema: Any, message: str | None) -> tuple[bytes, str]:
    """A FileDescriptorSet and the full name of the message in it.

    ``schema`` is a generated message class, or a descriptor file (its path or content) as ``protoc
    --include_imports --descriptor_set_out=FILE`` writes it; ``message`` then names the message.
    Raises ConfigError for anything else.
    """
    pb = _descriptor_pb2()
    descriptor = getattr(schema, "DESCRIPTOR", None)
    if descriptor is not None:
        files = pb.FileDescriptorSet()
        _add_file(descriptor.file, files, set())
        return files.SerializeToString(), str(descriptor.full_name)
    if not isinstance(schema, str | Path | bytes):
        raise ConfigError("schema", schema, "a message class, or a descriptor file of protoc's")
    if message is None:
        raise ConfigError("message", None, "the full name of the message: message='shop.Order'")
    content = schema if isinstance(schema, bytes) else Path(schema).read_bytes()
    _descriptor(content, message)  # says what is wrong
    return content, message


def protobuf_type(files: bytes, message: str) -> StructType:
    """The Spark type of ``message``, described in the FileDescriptorSet ``files``.

    Raises ConfigError for messages that hold themselves, which Spark has no type for.
    """
    return _struct(_descriptor(files, message), ())


@cache
def protobuf_decoder(files: bytes, message: str) -> Decoder:
    """Decodes a body; raises protobuf's DecodeError when it is no such message."""
    descriptor = _descriptor(files, message)
    from google.protobuf.message_factory import GetMessageClass

    make, row = GetMessageClass(descriptor), _row_of(descriptor)
    return lambda body: row(make.FromString(body))


def _descriptor_pb2() -> Any:
    try:
        from google.protobuf import descriptor_pb2
    except ImportError as error:
        raise ConfigError(
            "format", "protobuf", "it needs protobuf: pip install 'orbitmq[protobuf]'"
        ) from error
    return descriptor_pb2


def _add_file(file: FileDescriptor, files: Any, added: set[str]) -> None:
    """Add ``file`` behind those that it imports."""
    if file.name in added:
        return
    added.add(file.name)
    for needed in file.dependencies:
        _add_file(needed, files, added)
    file.CopyToProto(files.file.add())


@cache
def _descriptor(files: bytes, message: str) -> Descriptor:
    pb = _descriptor_pb2()
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool = DescriptorPool()
    try:
        for file in pb.FileDescriptorSet.FromString(files).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except DecodeError as error:
        raise ConfigError(
            "schema", f"{len(files)} bytes", f"a descriptor file of protoc's: {error}"
        ) from error
    except (KeyError, TypeError) as error:
        raise ConfigError(
            "message", message, f"a message of the descriptor file, written with --include_imports "
            f"({error})",
        ) from error  # fmt: skip


def _struct(descriptor: Descriptor, within: tuple[str, ...]) -> StructType:
    if descriptor.full_name in within:
        raise ConfigError(
            "message",
            descriptor.full_name,
            "a message that does not hold itself: Spark has no type for one that does",
        )
    path = (*within, descriptor.full_name)
    return StructType(
        [StructField(field.name, _field_type(field, path)) for field in descriptor.fields]
    )


def _field_type(field: FieldDescriptor, path: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_one_type(key, path), _one_type(value, path))
    kind = _one_type(field, path)
    return ArrayType(kind) if field.is_repeated else kind


def _one_type(field: FieldDescriptor, path: tuple[str, ...]) -> DataType:
    if field.cpp_type == _ENUM:
        return StringType()
    if field.cpp_type != _MESSAGE:
        return BinaryType() if field.type == _BYTES else _SCALARS[field.cpp_type]
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return TimestampType()
        case "google.protobuf.Duration":
            return DayTimeIntervalType()
    return _struct(field.message_type, path)


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def _row_of(descriptor: Descriptor) -> _Convert:
    """What makes a dict of a message of that type."""
    fields = [(field.name, field.has_presence, _value_of(field)) for field in descriptor.fields]

    def row(message: Any) -> dict[str, Any]:
        return {
            name: None
            if has_presence and not message.HasField(name)
            else convert(getattr(message, name))
            for name, has_presence, convert in fields
        }

    return row


def _value_of(field: FieldDescriptor) -> _Convert:
    if _is_map(field):
        value = _one_value(field.message_type.fields_by_name["value"])
        return lambda pairs: [(key, value(pairs[key])) for key in pairs]
    one = _one_value(field)
    return (lambda items: [one(item) for item in items]) if field.is_repeated else one


def _one_value(field: FieldDescriptor) -> _Convert:
    if field.cpp_type == _ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == _UINT64:
        return Decimal
    if field.cpp_type != _MESSAGE:
        return _as_it_is
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return lambda moment: _EPOCH + _elapsed(moment)
        case "google.protobuf.Duration":
            return _elapsed
    return _row_of(field.message_type)


def _elapsed(time: Any) -> timedelta:
    return timedelta(seconds=time.seconds, microseconds=time.nanos // 1000)


def _as_it_is(value: Any) -> Any:
    return value
