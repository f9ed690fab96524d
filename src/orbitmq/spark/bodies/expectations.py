"""What is expected of rows, for pipelines that go on without those that do not meet it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.functions import array, array_compact, coalesce, expr, lit, when

from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_expectations(
    frame: DataFrame, expectations: Mapping[str, str], column: str = "broken"
) -> DataFrame:
    """``frame`` with a column that has the names of the expectations a row does not meet.

    ``expectations`` are conditions in SQL by name, such as ``{"is positive": "amount > 0"}``; one
    that is null is not met. Raises ConfigError where there is none. Nothing is asked of Spark yet,
    so that ``frame`` may be of a pipeline that is only being defined.
    """
    if not expectations:
        raise ConfigError("expectations", expectations, "one condition at least")
    names = [
        when(~coalesce(expr(condition), lit(False)), lit(name))
        for name, condition in expectations.items()
    ]
    return frame.select("*", array_compact(array(*names)).alias(column))
