"""``orbitmq store`` and the timers: what is damaged is found, and they come all the same."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.cli import main
from orbitmq.store import recovery
from orbitmq.store.config import StoreConfig
from orbitmq.store.timer_log import UNIT_SIZE, decode_unit
from orbitmq.store.timer_wheel import SLOT, SLOTS
from orbitmq.testing.clock import ManualClock
from tests.broker.test_timers import TOPIC, advance, bodies, settle
from tests.cli.test_simulate import Terminal

COUNT = 12
SECONDS = 3
STORE = StoreConfig(
    mapped_file_size=1 << 16,
    consume_queue_units=20,
    max_message_size=4096,
    max_hash_slot_num=16,
    max_index_num=64,
    timer_log_file_size=1 << 16,
)
SHAPE = ["--max-hash-slot-num", "16", "--max-index-num", "64"]


def running(root: Path, clock: ManualClock) -> EmbeddedBroker:
    return EmbeddedBroker(root, clock=clock, store_config=STORE)


@pytest.fixture
def directory(tmp_path: Path, clock: ManualClock) -> Path:
    """A store with timers of three seconds in its wheel, and some that were delivered."""
    root = tmp_path / "store"
    with running(root, clock) as broker:
        with Producer("makers", name_server=broker.name_server) as producer:
            producer.send(Message(TOPIC, b"first", delay_seconds=1))
            advance(broker, clock, 1000)
            for number in range(COUNT):
                seconds = 60 + number % SECONDS
                producer.send(Message(TOPIC, b"%d" % number, delay_seconds=seconds))
        settle(broker)
    return root


def run(action: str, directory: Path, *options: str) -> int:
    return main(["store", action, str(directory), *SHAPE, *options])


def overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def entries_file(root: Path) -> Path:
    (path,) = (root / "timerlog").iterdir()
    return path


def slot_place(root: Path) -> int:
    """Where in the wheel the slot of the log's last entry is."""
    data = entries_file(root).read_bytes()
    unit = decode_unit(data, UNIT_SIZE * COUNT)
    assert unit is not None
    return unit.time_ms // 1000 % SLOTS * SLOT.size


def empty_slot(root: Path) -> None:
    overwrite(root / "timerwheel", slot_place(root), bytes(SLOT.size))


def slot_elsewhere(root: Path) -> None:
    overwrite(root / "timerwheel", slot_place(root) + 16, (UNIT_SIZE * 7 + 1).to_bytes(8))


def slot_without_some(root: Path) -> None:
    overwrite(root / "timerwheel", slot_place(root) + 24, (1).to_bytes(4))


def short_wheel(root: Path) -> None:
    os.truncate(root / "timerwheel", 4096)


def no_wheel(root: Path) -> None:
    (root / "timerwheel").unlink()


def chain_elsewhere(root: Path) -> None:
    overwrite(entries_file(root), UNIT_SIZE * COUNT + 4, (UNIT_SIZE).to_bytes(8))


def no_message(root: Path) -> None:
    overwrite(entries_file(root), UNIT_SIZE * COUNT + 28, (77).to_bytes(8))


def cut_entries(root: Path) -> None:
    overwrite(entries_file(root), UNIT_SIZE * 9, bytes(UNIT_SIZE))


DAMAGES: dict[Callable[[Path], None], str] = {
    empty_slot: "the entries of 1 slots, from this one on, are in no slot",
    slot_elsewhere: "of the timer log, where no entry of it is",
    slot_without_some: "the slot has 1 timers from",
    short_wheel: "has 4096 of 38707200 bytes",
    no_wheel: "has 0 of 38707200 bytes",
    chain_elsewhere: f"the entry follows {UNIT_SIZE} in its chain, not",
    no_message: "the entry points at 77, where no message of rmq_sys_wheel_timer is",
    cut_entries: "its entries end here",
}


def test_sound_timers_have_no_problems(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", directory) == 0, capsys.readouterr().out
    assert "note: " not in capsys.readouterr().out


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_found_and_the_timers_come_after_the_repair(
    directory: Path,
    clock: ManualClock,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(directory)
    assert run("check", directory) == 1
    shown = capsys.readouterr().out
    problems = [line for line in shown.splitlines() if line.startswith("timers: ")]
    assert any(DAMAGES[damage] in line for line in problems), shown
    assert run("repair", directory, "--yes") == 0, capsys.readouterr().out
    assert "takes the timers in again from topic rmq_sys_wheel_timer" in capsys.readouterr().out
    with running(directory, clock) as broker:
        advance(broker, clock, 70_000)
        assert sorted(bodies(broker)) == sorted([b"first", *(b"%d" % n for n in range(COUNT))])
    assert run("check", directory) == 0, capsys.readouterr().out


def test_a_repair_tells_how_far_it_is(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_FLUSH_EVERY", 5)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    empty_slot(directory)
    assert run("repair", directory, "--yes") == 0
    shown = terminal.getvalue()
    told = re.findall(r"consume queues  \[#* *\] +(\d+)%", shown)
    assert [int(percent) for percent in told] == sorted(map(int, told))
    assert told[-1] == "100"
    assert "timers          [" in shown
