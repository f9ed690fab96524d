"""Which files may go and when messages are refused, from times and the disk's use alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigError
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import DiskSpace
from orbitmq.store.retention import (
    DiskUse,
    LogFile,
    Verdict,
    count_to_delete,
    judge,
    refusal,
    used_ratio,
)

HOUR_MS = 3_600_000
CONFIG = StoreConfig(delete_when="04;16")
NOON = 12


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ((100, 100, 100), 0.0),
        ((100, 50, 50), 0.5),
        ((1000, 499, 499), 0.51),  # rounded up
        ((100, 50, 25), 0.67),  # what is root's alone does not count
        ((100, 0, 0), 1.0),
        ((0, 0, 0), -1.0),
    ],
)
def test_use_of_a_disk_as_java_counts_it(space: tuple[int, int, int], expected: float) -> None:
    assert used_ratio(DiskSpace(*space)) == expected


@pytest.mark.parametrize(
    ("use", "hour", "expected"),
    [
        (0.50, NOON, Verdict(refuses=False, deletes=False, at_once=False)),
        (0.50, 4, Verdict(refuses=False, deletes=True, at_once=False)),
        (0.50, 16, Verdict(refuses=False, deletes=True, at_once=False)),
        (0.75, NOON, Verdict(refuses=False, deletes=False, at_once=False)),
        (0.76, NOON, Verdict(refuses=False, deletes=True, at_once=False)),
        (0.86, NOON, Verdict(refuses=False, deletes=True, at_once=True)),
        (0.90, NOON, Verdict(refuses=False, deletes=True, at_once=True)),
        (0.91, NOON, Verdict(refuses=True, deletes=True, at_once=True)),
        (-1.0, NOON, Verdict(refuses=False, deletes=True, at_once=False)),
    ],
)
def test_what_is_done_at_which_use_and_hour(use: float, hour: int, expected: Verdict) -> None:
    assert judge(CONFIG, DiskUse(use, use), hour) == expected
    if use >= 0:
        assert judge(CONFIG, DiskUse(0.1, use), hour) == expected
        assert judge(CONFIG, DiskUse(use, 0.1), hour) == expected


def test_messages_are_taken_again_only_when_there_is_room() -> None:
    taken = [
        not judge(CONFIG, DiskUse(use, 0.1), NOON, refused=True).refuses
        for use in (0.95, 0.90, 0.86, 0.85, 0.2)
    ]
    assert taken == [False, False, False, True, True]


def test_an_operator_may_delete_at_any_hour() -> None:
    assert judge(CONFIG, DiskUse(0.1, 0.1), NOON, manual=True).deletes


def test_files_are_not_deleted_before_their_time_where_that_is_off() -> None:
    config = StoreConfig(clean_files_forcibly=False)
    verdict = judge(config, DiskUse(0.95, 0.1), NOON)
    assert verdict == Verdict(refuses=True, deletes=True, at_once=False)


def test_a_hundred_per_cent_is_never_exceeded() -> None:
    config = StoreConfig(disk_clean_forcibly_ratio=100, disk_warning_ratio=100)
    verdict = judge(config, DiskUse(1.0, 1.0), NOON)
    assert (verdict.refuses, verdict.at_once) == (False, False)


def test_old_files_go_up_to_the_first_that_is_not() -> None:
    now = 100 * HOUR_MS
    files = [LogFile(n, hour * HOUR_MS) for n, hour in enumerate([1, 28, 29, 3, 4])]
    verdict = Verdict(refuses=False, deletes=True, at_once=False)
    assert count_to_delete(CONFIG, verdict, files, now) == 2
    assert count_to_delete(CONFIG, verdict, files, now + HOUR_MS) == 4
    assert count_to_delete(CONFIG, verdict._replace(at_once=True), files, now) == 4
    assert count_to_delete(CONFIG, verdict._replace(deletes=False), files, 10 * now) == 0


@given(
    ages=st.lists(st.integers(0, 200), max_size=20),
    at_once=st.booleans(),
    batch=st.integers(1, 5),
)
def test_the_file_in_use_stays_and_a_batch_is_bounded(
    ages: list[int], batch: int, *, at_once: bool
) -> None:
    config = StoreConfig(delete_file_batch_max=batch)
    files = [LogFile(n, (200 - age) * HOUR_MS) for n, age in enumerate(ages)]
    verdict = Verdict(refuses=False, deletes=True, at_once=at_once)
    count = count_to_delete(config, verdict, files, 200 * HOUR_MS)
    assert count <= min(max(len(files) - 1, 0), batch)
    assert at_once or all(age >= 72 for age in ages[:count])


@pytest.mark.parametrize("text", ["24", "4,5", "four", "-1", "04;x"])
def test_hours_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="delete_when"):
        StoreConfig(delete_when=text)


def test_the_refusal_has_javas_words() -> None:
    text = refusal(DiskUse(0.91, 0.5))
    assert text.startswith("service not available now. It may be caused by one of the following")
    assert "the broker's disk is full [CL:  0.91 CQ:  0.50 INDEX:  0.50]" in text
