"""The same exchange on both cores: the same answers and the same store, byte by byte."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.store.check import check_store, find_layout
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.frames import FrameDecoder
from orbitmq.wire.message_view import decode_records
from tests.replay.exchange import CLIENTS, exchange

ROOT = Path(__file__).parents[2]
COMPILED = importlib.util.find_spec("orbitmq_speed") is not None


def replay(seed: int, directory: Path, *, core: str) -> dict[str, bytes]:
    """All files that a replay leaves, the answers too."""
    directory.mkdir()
    environment = os.environ | {"ORBITMQ_SPEED": "0" if core == "plain" else "1"}
    command = [sys.executable, "-m", "tests.replay.player", str(seed), str(directory)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def answers(files: dict[str, bytes]) -> list[RemotingCommand]:
    return list(FrameDecoder(limit=1 << 30).feed(files["answers"]))


@pytest.mark.parametrize("seed", [1, 2])
def test_both_cores_answer_and_store_the_same(tmp_path: Path, seed: int) -> None:
    plain = replay(seed, tmp_path / "plain", core="plain")
    other = replay(seed, tmp_path / "other", core="compiled" if COMPILED else "plain")
    assert plain.keys() == other.keys()
    assert [name for name in plain if plain[name] != other[name]] == []


def test_a_replay_goes_through_all_that_matters(tmp_path: Path) -> None:
    """Else two of them being the same would say little."""
    files = replay(3, tmp_path / "replay", core="plain")
    got = answers(files)
    outcomes = {answer.code for answer in got}
    assert outcomes >= {0, 1, 13, 17, 19, 21}
    assert len(got) > 1000
    pulled = [answer for answer in got if answer.body and "nextBeginOffset" in answer.ext_fields]
    assert sum(len(decode_records(bytes(answer.body))) for answer in pulled) > 1000
    found = check_store(tmp_path / "replay/store", find_layout(tmp_path / "replay/store"))
    assert found.problems == []
    names = "\n".join(files)
    for kind in ("commitlog/0+1048576$", "consumequeue/orders/3/", "index/2024", "config/topics"):
        assert re.search(kind, names, re.MULTILINE), kind


def test_an_exchange_is_what_its_seed_says() -> None:
    first, again = ([*exchange(7, turns=20)] for _ in range(2))
    assert first == again
    assert first != [*exchange(8, turns=20)]
    assert {client for step in first for client, _ in step.reads} == set(range(CLIENTS))
