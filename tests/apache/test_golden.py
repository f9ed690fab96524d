"""The golden files are still what Apache's classes write, and what they say holds together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.apache.conftest import release_or_skip
from tests.apache.golden import COMMANDS, SIGNATURES, capture_commands, capture_signatures
from tests.apache.jars import NEWEST, OLDEST

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]


def test_golden_commands_are_what_apaches_classes_write(apache: ApacheRelease) -> None:
    kept = json.loads(COMMANDS.read_text(encoding="utf-8"))
    captured = capture_commands(apache)
    kept_commands, commands = kept.pop("commands"), captured.pop("commands")
    assert captured == kept
    for golden, command in zip(kept_commands, commands, strict=True):
        assert command == golden


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_golden_signatures_are_what_apaches_clients_add(version: str) -> None:
    kept = json.loads(SIGNATURES.read_text(encoding="utf-8"))
    assert capture_signatures(release_or_skip(version)) == kept
