"""``orbitmq store``: what it finds in damaged directories, and what is there after a repair."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from orbitmq.cli import main
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import decode_record
from tests.store.support import TOPIC, after_crash, bodies, draft, opened, put, small

COUNT = 40
QUEUE = Path("consumequeue") / TOPIC / "0"
SHAPE = ["--max-hash-slot-num", "16", "--max-index-num", "64"]


def fill(store: MessageStore, start: int = 0, stop: int = COUNT) -> None:
    for number in range(start, stop):
        properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number}"}
        store.append(draft(b"%d" % number, tags="Red", properties=properties))
    store.write()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with messages in two topics, closed in order."""
    root = tmp_path / "store"
    with opened(root) as store:
        fill(store)
        put(store, b"other", topic="Other")
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    return root


def run(action: str, directory: Path, *options: str) -> int:
    return main(["store", action, str(directory), *SHAPE, *options])


def overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def index_file(directory: Path, number: int = 0) -> Path:
    return sorted((directory / "index").iterdir())[number]


def cut_queue(root: Path) -> None:
    overwrite(root / QUEUE / f"{200:020d}", 100, bytes(100))


def other_entry(root: Path) -> None:
    overwrite(root / QUEUE / f"{0:020d}", 40, struct.pack(">qiq", 0, 100, 0))


def other_tag(root: Path) -> None:
    overwrite(root / QUEUE / f"{0:020d}", 12, struct.pack(">q", 12345))


def short_queue(root: Path) -> None:
    os.truncate(root / QUEUE / f"{0:020d}", 33)


def no_queue_file(root: Path) -> None:
    (root / QUEUE / f"{200:020d}").unlink()


def index_slot(root: Path) -> None:
    overwrite(index_file(root), 40, struct.pack(">16i", *range(16)))


def index_entry(root: Path) -> None:
    overwrite(index_file(root), 40 + 64 + 60, struct.pack(">i", 77))


def index_header(root: Path) -> None:
    overwrite(index_file(root, 1), 36, struct.pack(">i", 5000))


def index_gone(root: Path) -> None:
    index_file(root).unlink()


def settings(root: Path) -> None:
    (root / "config" / "topics.json.bak").write_text('{"topicConfigTable":{}}')
    (root / "config" / "topics.json").write_text('{"topicConfigTable":')


def checkpoint(root: Path) -> None:
    os.truncate(root / "checkpoint", 100)


DAMAGES = {
    cut_queue: ("queue", "5 message(s) of the log up to offset 19 have no entry here"),
    other_entry: ("queue", "its message is at"),
    other_tag: ("queue", "the entry has tags code 12345"),
    short_queue: ("queue", "the file has 33 bytes"),
    no_queue_file: ("queue", "10 message(s) of the log"),
    index_slot: ("index", "slot"),
    index_entry: ("index", "keys that the message at this offset does not have"),
    index_header: ("index", "its header counts 5000"),
    index_gone: ("index", "are not found by all their keys"),
    settings: ("config", "is no JSON"),
    checkpoint: ("checkpoint", "has 100 of 4096 bytes"),
}


def check_whole(directory: Path) -> None:
    with opened(directory) as store:
        assert bodies(store) == [b"%d" % number for number in range(COUNT)]
        assert bodies(store, "Other") == [b"other"]
        index = store.key_index
        assert index is not None
        wait_until(lambda: index.position >= store.max_physical_offset, "the index")
        for number in range(COUNT):
            assert index.find(TOPIC, f"k{number}", 9).offsets
            assert index.find(TOPIC, f"U{number}", 9).offsets


def test_a_sound_directory_has_no_problems(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", directory) == 0
    assert capsys.readouterr().out == (
        f"{COUNT + 1} messages up to physical offset 5240: no problems\n"
    ).replace("5240", capsys_end(directory))
    assert run("repair", directory) == 0
    assert "there is nothing to repair" in capsys.readouterr().out


def capsys_end(directory: Path) -> str:
    with opened(directory) as store:
        return str(store.max_physical_offset)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_found_and_repaired(
    directory: Path, damage: object, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, words = DAMAGES[damage]  # type: ignore[index]
    damage(directory)  # type: ignore[operator]
    assert run("check", directory) == 1
    shown = capsys.readouterr().out
    assert any(
        line.startswith(f"{kind}: {directory}") and words in line for line in shown.splitlines()
    ), shown
    assert run("repair", directory, "--yes") == 0, capsys.readouterr().out
    shown = capsys.readouterr().out
    assert "to be done:\n  1. " in shown
    assert shown.endswith(": no problems\n")
    (backups,) = directory.glob("repair-*")
    assert any(path.is_file() for path in backups.rglob("*"))
    assert run("check", directory) == 0
    check_whole(directory)


def test_a_torn_end_is_cut_and_kept(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = int(capsys_end(directory))
    log = directory / "commitlog" / f"{end - end % 4096:020d}"
    overwrite(log, end % 4096, b"\0\0\0\x80\xda\xa3\x20\xa7 half a record")
    assert run("check", directory) == 1
    assert f"tail: {log} at {end}: bytes of no whole message" in capsys.readouterr().out
    assert run("repair", directory, "--yes") == 0
    (kept,) = directory.glob("repair-*/commitlog/*")
    assert b"half a record" in kept.read_bytes()
    assert run("check", directory) == 0
    check_whole(directory)


def test_a_damaged_record_is_told_and_what_follows_stays(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(directory) as store:
        places = [unit.physical_offset for unit in store.read_units(TOPIC, 0, 0, 10)]
    overwrite(directory / "commitlog" / f"{0:020d}", places[5] + 88, b"?")
    assert run("check", directory) == 1
    shown = capsys.readouterr().out
    assert f"log: {directory / 'commitlog' / f'{0:020d}'} at {places[5]}: damaged" in shown
    run("repair", directory, "--yes")
    assert "pass over the damage of the commit log" in capsys.readouterr().out
    with opened(directory) as store:
        views = [body for body in bodies_of(store) if body]
        assert views == [b"%d" % number for number in range(COUNT) if number != 5]


def bodies_of(store: MessageStore) -> list[bytes]:

    units = [
        unit for start in range(0, COUNT, 10) for unit in store.read_units(TOPIC, 0, start, 10)
    ]
    records = [store.record_at(unit.physical_offset) for unit in units if unit.size < 4096]
    return [decode_record(record).body for record in records if record is not None]


def test_nothing_is_changed_without_a_yes(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_queue(directory)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    for reply in ("n", "", "what?"):
        monkeypatch.setattr("builtins.input", lambda _prompt, reply=reply: reply)
        assert run("repair", directory) == 1
        assert "nothing was changed" in capsys.readouterr().out
    assert run("check", directory) == 1
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    monkeypatch.setattr("builtins.input", lambda _prompt: "y")
    assert run("repair", directory) == 0


def test_a_directory_in_use_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path / "live") as store:
        fill(store, 0, 15)
        store._queue_flusher.flush(renew_mark=True)
        fill(store, 15)
        for action in ("check", "repair", "stats"):
            assert run(action, tmp_path / "live") == 2
            assert "is used by another broker" in capsys.readouterr().err
        copy = after_crash(tmp_path / "live", tmp_path / "killed")
    (copy / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{"{TOPIC}":{{}}}}}}')
    assert run("check", copy) == 1  # its queues were in memory
    assert "did not end in order" in capsys.readouterr().out
    assert run("repair", copy, "--yes") == 0
    with opened(copy) as store:
        assert len(bodies(store)) == COUNT


def test_what_is_no_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("check", "repair", "stats"):
        assert run(action, tmp_path / "nowhere") == 2
        assert "is no store directory" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "broker-a-0" / "commitlog").mkdir(parents=True)
    assert run("check", tmp_path) == 2
    assert f"such as {tmp_path / 'broker-a-0'}" in capsys.readouterr().err


def test_topics_that_were_deleted_are_no_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path) as store:
        fill(store)
        put(store, b"gone", topic="Gone")
        store.delete_topic(TOPIC)
        store.delete_topic("Gone")
        fill(store, 0, 5)
    assert run("check", tmp_path) == 0
    assert f"{COUNT + 1} messages are of topics that were deleted" in capsys.readouterr().out


def test_stats_count_what_is_there(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stats", directory) == 0
    lines = capsys.readouterr().out.splitlines()
    with opened(directory) as store:
        end = store.max_physical_offset
    words = {line.split()[0]: line.split() for line in lines if line}
    assert words[TOPIC][1:3] == ["1", str(COUNT)]
    assert words["Other"][1:3] == ["1", "1"]
    assert words["all"][2:4] == ["2", str(COUNT + 1)]
    assert 0 < int(words["all"][4].replace(",", "")) <= end
    assert any(line.startswith("index ") and "63 of 63 entries (100.0%)" in line for line in lines)


def test_sizes_of_index_files_are_guessed_or_given(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "check", str(directory)]) == 0  # four entries a slot
    with pytest.raises(SystemExit) as refused:
        main(["store", "check", str(directory), "--max-index-num", "64"])
    assert refused.value.code == 2
    assert "belong together" in capsys.readouterr().err
    assert small().max_index_num == 4 * small().max_hash_slot_num
