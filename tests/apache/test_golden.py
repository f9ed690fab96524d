"""The golden files are still what Apache's classes write, and what they say holds together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.apache.golden import COMMANDS, capture_commands

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def test_golden_commands_are_what_apaches_classes_write(apache: ApacheRelease) -> None:
    kept = json.loads(COMMANDS.read_text(encoding="utf-8"))
    captured = capture_commands(apache)
    kept_commands, commands = kept.pop("commands"), captured.pop("commands")
    assert captured == kept
    for golden, command in zip(kept_commands, commands, strict=True):
        assert command == golden
