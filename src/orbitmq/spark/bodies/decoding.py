"""Bodies as typed columns: :func:`decode`, and the struct that tells what did not decode.

JSON is decoded by Spark itself, in its JVM. Avro and Protocol Buffers are decoded in Python, whole
batches of bodies at a time, by the libraries of their makers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from orbitmq.errors import ConfigError
from orbitmq.spark.bodies.avro import Decoder, avro_decoder, avro_schema, avro_type
from orbitmq.spark.bodies.protobuf import message_schema, protobuf_decoder, protobuf_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FORMATS: Final = ("json", "avro", "protobuf")
ERROR: Final = "error"
"""The column that is null where a body was decoded."""
SHOWN: Final = 100
"""How many characters of a value a reason shows."""

_CORRUPT: Final = "_orbitmq_corrupt"
_DECODED: Final = "_orbitmq_decoded"


def decode(
    df: DataFrame,
    format: str = "json",  # noqa: A002 - Spark's name for it
    schema: Any = None,
    *,
    message: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The rows of ``df``, a read of ``format("rocketmq")``, with typed columns for ``body``.

    ``schema`` says what bodies hold:

    * ``json``: Spark's, a StructType or text (``"id bigint NOT NULL, price double"``). What is NOT
      NULL must be in every body.
    * ``avro``: the Avro schema of a record, JSON as text or a dict. Needs the package fastavro.
    * ``protobuf``: a generated message class, or the path or content of a descriptor file
      (``protoc --include_imports --descriptor_set_out``) with ``message``, the message's full name.
      Needs the package protobuf.

    ``options`` are those of Spark's JSON reader, such as ``timestampFormat``.

    The columns of ``df`` stay, but for ``body``; those of the schema follow, then ``error``. It is
    null where the body was decoded. Otherwise the schema's columns are null, and ``error`` has the
    ``reason``, the ``body`` and where it came from: all columns of ``df``. No row is dropped and
    none fails the query. :func:`orbitmq.spark.dead_letters` sends them to a topic.

    Raises ConfigError for a wrong argument.
    """
    names = {name.lower(): name for name in df.columns}
    if "body" not in names:
        raise ConfigError("df", ", ".join(df.columns), "a column body is needed, as read")
    body = F.col(names["body"])
    match format.lower():
        case "json":
            fields = _json_fields(schema)
            decoded, reason = _json(body, fields, dict(options or {}))
        case "avro":
            text = avro_schema(schema)
            fields = avro_type(text)
            decoded, reason = _by(_udf(fields, lambda: avro_decoder(text)), body)
        case "protobuf":
            files, name = message_schema(schema, message)
            fields = protobuf_type(files, name)
            decoded, reason = _by(_udf(fields, lambda: protobuf_decoder(files, name)), body)
        case _:
            raise ConfigError("format", format, f"one of {', '.join(FORMATS)}")
    _check_names(df, fields)
    origin = [F.col(name) for name in df.columns if name.lower() != "body"]
    failed = reason.isNotNull()
    error = F.when(failed, F.struct(reason.alias("reason"), body.alias("body"), *origin))
    value = F.col(_DECODED)
    return (
        df.withColumn(_DECODED, decoded)
        .withColumn(ERROR, error)
        .select(
            *origin,
            *(
                F.when(F.col(ERROR).isNull(), value.getField(field.name)).alias(field.name)
                for field in fields
            ),
            ERROR,
        )
    )


def _check_names(df: DataFrame, fields: StructType) -> None:
    taken = {name.lower() for name in df.columns} - {"body"} | {ERROR}
    for field in fields:
        if field.name.lower() in taken:
            raise ConfigError(
                "schema",
                field.name,
                "a name that no other column has: leave that one out before, "
                f"df.drop({field.name!r}), or rename it, df.withColumnRenamed",
            )


# JSON


def _json_fields(schema: Any) -> StructType:
    if isinstance(schema, str):
        try:
            schema = StructType.fromDDL(schema)
        except Exception as error:
            raise ConfigError(
                "schema", schema, f'columns and types such as "id bigint, price double": {error}'
            ) from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise ConfigError("schema", schema, 'a StructType, or text such as "id bigint"')
    return schema


def _json(body: Column, fields: StructType, options: dict[str, str]) -> tuple[Column, Column]:
    """The decoded struct; and, given it as the column _DECODED, the reason why it is none."""
    text = body.cast("string")
    with_corrupt = StructType([*_nullable(fields).fields, StructField(_CORRUPT, StringType())])
    modes = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    decoded = F.from_json(text, with_corrupt, options | modes)
    value = F.col(_DECODED)
    missing = [
        F.when(value.getField(field.name).isNull(), F.lit(f"{field.name} is missing"))
        for field in fields
        if not field.nullable
    ]
    reason = (
        F.when(body.isNull(), F.lit("there is no body"))
        .when(value.getField(_CORRUPT).isNotNull(), _json_reason(text, value, fields))
        .when(value.isNull() | ~_is_object(text), F.lit("not a JSON object"))
    )
    return decoded, reason.otherwise(F.coalesce(*missing)) if missing else reason


def _json_reason(text: Column, value: Column, fields: StructType) -> Column:
    """What is wrong with a text that from_json calls corrupt."""
    wrong = [
        F.when(
            value.getField(field.name).isNull() & _json_value(text, field.name).isNotNull(),
            F.concat(
                F.lit(f"{field.name} is not {field.dataType.simpleString()}: "),
                F.substring(_json_value(text, field.name), 1, SHOWN),
            ),
        )
        for field in fields
        if "'" not in field.name
    ]
    named = F.concat_ws("; ", *wrong)
    return (
        F.when(F.try_parse_json(text).isNull(), F.lit("not JSON"))
        .when(~_is_object(text), F.lit("not a JSON object"))
        .when(named != "", named)
        .otherwise(F.lit(f"does not fit {fields.simpleString()}"))
    )


def _is_object(text: Column) -> Column:
    """Whether a text of JSON is an object: from_json takes an array of one for it."""
    return text.rlike(r"^\s*\{")


def _json_value(text: Column, name: str) -> Column:
    return F.get_json_object(text, f"$['{name}']")


def _nullable(fields: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType) for field in fields])


# Avro and Protocol Buffers


def _by(decoder: Callable[[Column], Column], body: Column) -> tuple[Column, Column]:
    """The decoded struct of a UDF, and its reason."""
    return decoder(body), F.col(_DECODED).getField(_CORRUPT)


def _udf(fields: StructType, make: Callable[[], Decoder]) -> Any:
    """A function of columns that decodes bodies; ``make`` gives the decoder, in the task."""
    returned = StructType([*fields.fields, StructField(_CORRUPT, StringType())])

    def rows(bodies: pa.Array) -> pa.Array:
        return decode_rows(bodies.to_pylist(), make(), to_arrow_type(returned, timezone="UTC"))

    make_udf: Any = arrow_udf  # its stubs do not know structs
    return make_udf(rows, returned)


def decode_rows(bodies: list[bytes | None], decoder: Decoder, returned: Any) -> Any:
    """The decoded bodies as an Arrow array of structs, whose last field says what was wrong."""
    found = [_row(body, decoder) for body in bodies]
    try:
        return pa.array(found, returned)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # A value that Spark's type cannot hold: the rows without one are still good.
        return pa.concat_arrays([_array_of_one(row, returned) for row in found])


def _row(body: bytes | None, decoder: Decoder) -> dict[str, Any]:
    if body is None:
        return {_CORRUPT: "there is no body"}
    try:
        return decoder(body)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return _failed(error)


def _array_of_one(row: dict[str, Any], returned: Any) -> Any:
    try:
        return pa.array([row], returned)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        return pa.array([_failed(error)], returned)


def _failed(error: Exception) -> dict[str, Any]:
    return {_CORRUPT: f"{type(error).__name__}: {error}"}
