"""A short run of the fuzzer; a long one, with a sanitizer, is for whoever changes the core."""

from __future__ import annotations

import pytest

from orbitmq.compiled import CORE, TWINS
from orbitmq.wire.command import decode_command
from orbitmq.wire.frames import FrameDecoder
from tests.fuzz import fuzzer
from tests.fuzz.fuzzer import CORPUS, Fuzzer, Wrong, read_corpus
from tests.fuzz.mutations import Mutations

ROUNDS = 500


def test_whatever_comes_both_cores_make_the_same_of_it() -> None:
    run = Fuzzer(read_corpus(), 1)
    for _ in range(ROUNDS):
        run.round()
    assert run.frames == ROUNDS * fuzzer.FRAMES_A_ROUND
    assert run.records > run.frames // 20  # it goes all the way often enough
    assert min(run.batches, run.pulls) > ROUNDS
    assert run.compared >= run.frames // fuzzer.COMPARED
    assert run.sends > run.records or CORE == "plain Python"


def test_seeds_are_whole_frames() -> None:
    paths = list(CORPUS.glob("*.frame"))
    assert len(paths) >= 40
    assert sum(path.stat().st_size for path in paths) < 1 << 16
    for path in paths:
        assert len(list(FrameDecoder().feed(path.read_bytes()))) == 1, path.name


def test_a_run_can_be_repeated() -> None:
    seeds = read_corpus()
    first, again, other = (Mutations(seeds, number) for number in (1, 1, 2))
    frames = [first.frame() for _ in range(100)]
    assert frames == [again.frame() for _ in range(100)]
    assert frames != [other.frame() for _ in range(100)]


def test_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = TWINS["decode_frames"]

    def forgetful(data: bytes, limit: int, _decode: object) -> object:
        commands, end = plain(data, limit, decode_command)
        return commands[:-1], end

    monkeypatch.setitem(TWINS, "decode_frames", (plain, forgetful))
    with pytest.raises(Wrong, match="decode_frames of"):
        Fuzzer(read_corpus(), 1).round()


def test_all_that_is_compiled_is_fuzzed() -> None:
    text = (CORPUS.parent / "fuzzer.py").read_text("utf-8")
    assert [name for name, (_, twin) in TWINS.items() if twin and name not in text] == []
