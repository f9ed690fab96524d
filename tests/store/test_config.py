"""Settings, delay levels, the replaced-as-a-whole files, and the clocks."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.errors import ConfigError, CorruptStoreError, DiskFullError, StoreError
from orbitmq.store.config import StoreConfig
from orbitmq.store.config_file import ConfigFile
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.file_ops import FileOps
from orbitmq.testing.clock import ManualClock


@pytest.mark.parametrize(
    "setting",
    [
        {"mapped_file_size": 1023},
        {"mapped_file_size": 2**31},
        {"consume_queue_units": 0},
        {"max_message_size": 0},
        {"flush_interval_ms": 0},
        {"queue_flush_interval_ms": -1},
        {"mark_interval_ms": -1},
        {"mark_bytes": 0},
        {"delay_levels": "1s 5x"},
        {"delay_levels": "s"},
        {"delay_levels": "-1s"},
        {"delay_levels": ""},
        {"delay_levels": " "},
        {"delay_levels": "1s 99999999999999999999d"},
        {"delay_levels": "1s " * 1001},
        {"timer_precision_ms": 300},
        {"timer_max_delay_seconds": 0},
        {"timer_roll_window_slots": 1},
        {"timer_log_file_size": 67},
    ],
)
def test_settings_out_of_range_are_named(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        StoreConfig(**setting)
    assert {raised.value.name: raised.value.value} == setting


def test_delay_levels_are_javas() -> None:
    levels = DelayLevels()
    assert levels.max_level == 18
    assert levels.delivery_time(1, 1_000) == 2_000
    assert levels.delivery_time(18, 0) == 7_200_000
    assert levels.delivery_time(19, 500) == 1_500
    assert DelayLevels("1d").delays_ms == (86_400_000,)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        (b"DELAY\x011\x02", 1_050),
        (b"DELAY\x013\x02", 2_050),
        (b"DELAY\x010\x02", 7),
        (b"DELAY\x01-1\x02", 7),
        (b"DELAY\x01x\x02", 7),
        (b"", 7),
    ],
)
def test_the_tags_code_of_a_delayed_message(properties: bytes, code: int) -> None:
    assert DelayLevels("1s 2s").queue_tags_code(properties, 7, 50) == code


def test_a_config_file_is_replaced_and_kept_as_backup(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "config" / "topics.json")
    assert file.load() is None
    assert file.load_backup() is None
    file.save(b"one")
    file.save(b"two")
    assert file.load() == b"two"
    assert file.load_backup() == b"one"
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [
        "topics.json",
        "topics.json.bak",
    ]
    file.path.unlink()
    assert file.load() == b"one"
    file.path.touch()
    assert file.load() == b"one"


def test_an_empty_config_file_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = ConfigFile(tmp_path / "topics.json")
    for empty in ([file.path], [file.path, file.backup_path], [file.backup_path]):
        for path in empty:
            path.touch()
        with pytest.raises(CorruptStoreError, match=rf"{empty[0]} is empty.*delete it"):
            file.load()
        for path in empty:
            path.unlink()
    assert file.load() is None
    file.path.touch()
    file.backup_path.write_bytes(b"one")
    assert file.load() == b"one"
    assert f"{file.path} is empty: its backup" in caplog.text


class Stopping(FileOps):
    """Fails at the given step, and at every one after it."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path: Path, flags: int) -> int:
        self.step()
        return super().open(path, flags)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self.step()
        return super().pwrite(fd, memoryview(data)[:2], position)

    def fdatasync(self, fd: int) -> None:
        self.step()
        super().fdatasync(fd)

    def fsync_directory(self, path: Path) -> None:
        self.step()
        super().fsync_directory(path)

    def replace(self, source: Path, target: Path) -> None:
        self.step()
        super().replace(source, target)


def test_a_config_file_is_whole_wherever_saving_stops(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    outcomes = []
    for steps in range(8):
        ConfigFile(path).save(b"old")
        with pytest.raises(DiskFullError, match="cannot save"):
            ConfigFile(path, Stopping(steps)).save(b"newer")
        outcomes.append(ConfigFile(path).load())
    assert outcomes == [b"old"] * 7 + [b"newer"]
    ConfigFile(path, Stopping(8)).save(b"newest")
    assert ConfigFile(path).load() == b"newest"


def test_a_config_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "topics.json").mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        ConfigFile(tmp_path / "topics.json").load()


def test_the_manual_clock_moves_when_told() -> None:
    clock = ManualClock(5_000)
    clock.advance(1_500)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)
    clock.set_wall_clock(10)
    assert (clock.now_ms(), clock.monotonic()) == (10, 1.5)
    with pytest.raises(ValueError, match="0 ms or more"):
        clock.advance(-1)


def test_the_system_clock_tells_the_time() -> None:
    assert abs(SYSTEM_CLOCK.now_ms() - time.time() * 1000) < 10_000
    assert SYSTEM_CLOCK.monotonic() <= SYSTEM_CLOCK.monotonic()
