"""Formats whose package is not installed say so before anything is read."""

from __future__ import annotations

import sys

import pytest

from orbitmq.errors import ConfigError
from orbitmq.spark.bodies.avro import avro_type
from orbitmq.spark.bodies.protobuf import message_schema


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(
        ConfigError, match="format='avro' is not allowed: .*pip install 'orbitmq.avro.'"
    ):
        avro_type('{"type": "record", "name": "r", "fields": []}')
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ConfigError, match=r"pip install 'orbitmq\[protobuf\]'"):
        message_schema(b"", "shop.Order")
