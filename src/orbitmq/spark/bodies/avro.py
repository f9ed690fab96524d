"""Avro bodies as typed rows: the Spark type of a schema, and bodies decoded by it.

A body is the bare binary encoding of one record, as Spark's ``from_avro`` takes it. Types are
those of Spark's Avro source; logical types but decimal, date and timestamps are read as what
carries them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.errors import ConfigError

Decoder: TypeAlias = Callable[[bytes], dict[str, Any]]

_PRIMITIVES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_TIMES: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def avro_schema(schema: str | Mapping[str, Any]) -> str:
    """The schema of a record as JSON. Raises ConfigError for anything else, naming what it is."""
    try:
        document = json.loads(schema) if isinstance(schema, str) else dict(schema)
    except (ValueError, TypeError) as error:
        raise ConfigError("schema", schema, f"an Avro schema in JSON: {error}") from error
    if not isinstance(document, dict) or document.get("type") != "record":
        raise ConfigError("schema", schema, 'the Avro schema of a record: {"type": "record", ...}')
    return json.dumps(document)


def avro_type(schema: str) -> StructType:
    """The Spark type of the records of ``schema``, an Avro schema in JSON.

    Raises ConfigError for what Spark has no type for: records that hold themselves, unions of
    several types.
    """
    _parsed(schema)  # says what is wrong with it
    found = _spark_type(json.loads(schema), {}, ())
    if not isinstance(found, StructType):
        raise ConfigError("schema", schema, "the Avro schema of a record")
    return found


@cache
def avro_decoder(schema: str) -> Decoder:
    """Decodes a body; raises ValueError, or an error of fastavro's, when it is no such record."""
    parsed, ready = _parsed(schema), _conversion(avro_type(schema))
    from fastavro import schemaless_reader

    def decode(body: bytes) -> dict[str, Any]:
        stream = BytesIO(body)
        record: Any = schemaless_reader(stream, parsed, None)
        if left := len(body) - stream.tell():
            raise ValueError(f"{left} bytes are left after the record")
        row: dict[str, Any] = record if ready is None else ready(record)
        return row

    return decode


def _parsed(schema: str) -> Any:
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ConfigError(
            "format", "avro", "it needs fastavro: pip install 'orbitmq[avro]'"
        ) from error
    try:
        return parse_schema(_plain(json.loads(schema)))
    except (SchemaParseException, UnknownType) as error:
        raise ConfigError("schema", schema, f"an Avro schema: {error!r}") from error


def _plain(schema: Any) -> Any:
    """The schema without the logical types that are read as what carries them."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _plain(value) if key in _NESTED else value for key, value in schema.items()}
    if kept.get("logicalType") not in {"decimal", *_TIMES}:
        kept.pop("logicalType", None)
    return kept


_NESTED: Final = {"type", "fields", "items", "values"}


def _spark_type(schema: Any, named: dict[str, DataType | None], path: tuple[str, ...]) -> DataType:
    if isinstance(schema, list):
        return _union_type(schema, named, path)
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _spark_type(kind, named, path)
    if logical in _TIMES:
        return _TIMES[logical]
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if kind in _PRIMITIVES:
        found = _PRIMITIVES[kind]
        if "name" in schema:
            named[schema["name"]] = found
        return found
    if kind == "array":
        return ArrayType(_spark_type(schema["items"], named, (*path, "[]")))
    if kind == "map":
        return MapType(StringType(), _spark_type(schema["values"], named, (*path, "{}")))
    if kind == "record":
        return _record_type(schema, named, path)
    known = named.get(kind)
    if known is None:
        raise ConfigError(
            "schema", ".".join(path), f"{kind} holds itself, which Spark has no type for"
        )
    return known


def _record_type(
    schema: Any, named: dict[str, DataType | None], path: tuple[str, ...]
) -> StructType:
    name = schema["name"]
    full = f"{schema['namespace']}.{name}" if "namespace" in schema else name
    named[name] = named[full] = None
    fields = StructType(
        [
            StructField(field["name"], _spark_type(field["type"], named, (*path, field["name"])))
            for field in schema["fields"]
        ]
    )
    named[name] = named[full] = fields
    return fields


def _union_type(
    schema: list[Any], named: dict[str, DataType | None], path: tuple[str, ...]
) -> DataType:
    kinds = [kind for kind in schema if kind != "null"]
    if len(kinds) == 1:
        return _spark_type(kinds[0], named, path)
    names = {kind for kind in kinds if isinstance(kind, str)}
    if len(names) == len(kinds) and (wider := _WIDER.get(frozenset(names))):
        return _PRIMITIVES[wider]
    raise ConfigError(
        "schema",
        f"{'.'.join(path)}: {json.dumps(schema)}",
        "a union of null and one type, of int and long, or of float and double",
    )


def _conversion(kind: DataType) -> Callable[[Any], Any] | None:
    """What makes of fastavro's value what Arrow takes for ``kind``; None where it is that already.

    Arrow wants the pairs of a map.
    """
    if isinstance(kind, ArrayType) and (inner := _conversion(kind.elementType)):
        return lambda items: None if items is None else [inner(item) for item in items]
    if isinstance(kind, MapType):
        value = _conversion(kind.valueType) or _as_it_is
        return lambda pairs: (
            None if pairs is None else [(name, value(item)) for name, item in pairs.items()]
        )
    if isinstance(kind, StructType):
        changed = {
            field.name: convert for field in kind if (convert := _conversion(field.dataType))
        }
        if changed:
            return lambda record: (
                None
                if record is None
                else record | {name: convert(record.get(name)) for name, convert in changed.items()}
            )
    return None


def _as_it_is(value: Any) -> Any:
    return value
