"""The key index beside the storing: in which order it takes messages, and who may hurry it."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest

from orbitmq.store import key_index
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.index_file import IndexFile, IndexShape
from orbitmq.store.index_recovery import index_paths
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.record import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.store.support import TOPIC, draft, opened


def put(store: MessageStore, number: int, sys_flag: int = 0) -> int:
    properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all"}
    message = draft(b"x", f"{TOPIC}{number % 3}", properties=properties, sys_flag=sys_flag)
    return store.append(message).physical_offset


@pytest.mark.parametrize("piece", [8, 300, 1 << 20])
def test_messages_enter_in_the_order_of_the_log_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(key_index, "_PIECE", piece)
    with opened(tmp_path) as store:
        index = store.key_index
        assert index is not None
        places: dict[int, int] = {}
        for first in range(0, 60, 12):
            for number in range(first, first + 12):
                flag = {5: TRANSACTION_PREPARED, 7: TRANSACTION_ROLLBACK}.get(number % 12, 0)
                places[number] = put(store, number, flag)
            store.write()
        for number, place in places.items():
            expected = [] if number % 12 == 7 else [place]
            assert index.find(f"{TOPIC}{number % 3}", f"k{number}", 9).offsets == expected
        assert index.position == store.max_physical_offset
    offsets: list[int] = []
    for path in index_paths(tmp_path / "index"):
        file = IndexFile(FILE_OPS, path, IndexShape(16, 64))
        offsets += [offset for _, offset, *_ in file.entries(1, file.header.index_count)]
        file.close()
    assert offsets == sorted(offsets)
    assert len(offsets) == 3 * 55  # a unique key and two keys, of all but those rolled back


class Watched:
    """The module time, whose sleep() is noted and over at once."""

    def __init__(self) -> None:
        self.rests: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)


def test_whoever_looks_for_a_key_has_it_without_the_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched()
    monkeypatch.setattr(key_index, "time", watched)
    for name, value in {
        "_PIECE": 100,
        "_REST": 1e9,
        "_BUSY_REST": 1e9,
        "_SETTLE_SECONDS": 60,
    }.items():
        monkeypatch.setattr(key_index, name, value)
    with opened(tmp_path) as store:
        index = store.key_index
        assert index is not None
        with index._lock:  # it waits for that now
            places: list[int] = []
            for number in range(20):
                places.append(put(store, number))
                store.write()
            seeker = Thread(target=index.find, args=(f"{TOPIC}1", "k19", 9))
            seeker.start()
            wait_until(index._hurry.is_set, "somebody who looks for a key")
            watched.rests.clear()
        seeker.join()
        assert set(watched.rests) == {key_index._BREATH_SECONDS}
        assert index.find(f"{TOPIC}1", "k19", 9).offsets == places[-1:]
        wait_until(lambda: not index._hurry.is_set(), "nobody to look for a key")
        with index._lock:
            for number in range(20, 23):
                put(store, number)
                store.write()
        wait_until(lambda: max(watched.rests) > key_index._BREATH_SECONDS, "a pause")
