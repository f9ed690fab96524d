"""Messages that the key index does not have yet are found by their topic's queues."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store import unindexed
from orbitmq.store.index_keys import key_hash
from orbitmq.store.key_index import KeyIndex, KeyMatches
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from tests.store.support import TOPIC, draft, opened

FOR_EVER = 2**62


class Hold:
    """Keeps key indexes from working; lets them when told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.held = False
        self._working = Lock()
        work = KeyIndex._work

        def unless_held(index: KeyIndex, *, save: bool) -> None:
            with self._working:
                if not self.held or save:
                    work(index, save=save)

        patch.setattr(KeyIndex, "_work", unless_held)

    def catch_up(self, store: MessageStore) -> None:
        assert store.key_index is not None
        index = store.key_index
        self.held = False
        index._wake.set()
        wait_until(lambda: index.position >= store.max_physical_offset, "the index")
        with self._working:
            self.held = True


def put(store: MessageStore, topic: str, key: str, queue_id: int = 0) -> int:
    properties = {"UNIQ_KEY": f"U{store.max_physical_offset}", "KEYS": f"{key} other"}
    placed = store.append(draft(b"body", topic, queue_id, properties=properties))
    store.write()
    return placed.physical_offset


def newest(store: MessageStore, topic: str, key: str, end: int = FOR_EVER) -> KeyMatches | None:
    assert store.unindexed is not None
    return store.unindexed.find(topic, key_hash(topic, key), 0, end)


def found(store: MessageStore, topic: str, key: str, most: int = 64) -> list[int]:
    """As a broker looks a key up."""
    assert store.key_index is not None
    late = newest(store, topic, key)
    assert late is not None
    return store.key_index.find(topic, key, most, settle=False).with_newest(late, most).offsets


ACTIONS = st.one_of(
    st.tuples(st.sampled_from("AB"), st.sampled_from(["k1", "k2"]), st.integers(0, 2)),
    st.none(),
)


@settings(max_examples=25)
@given(actions=st.lists(ACTIONS, max_size=25))
def test_wherever_the_index_is_all_is_found(actions: list[tuple[str, str, int] | None]) -> None:
    """None: the index catches up."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        hold = Hold(patch)
        expected: dict[tuple[str, str], list[int]] = {}
        with opened(Path(directory)) as store:
            hold.catch_up(store)
            for action in actions:
                if action is None:
                    hold.catch_up(store)
                    continue
                topic, key, queue_id = action
                expected.setdefault((topic, key), []).append(put(store, topic, key, queue_id))
                for (wanted, of), offsets in expected.items():
                    assert found(store, wanted, of) == offsets
                    assert found(store, wanted, of, 2) == offsets[-2:]
                assert found(store, topic, "k3") == []


def test_too_many_are_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unindexed, "MOST", 4)
    hold = Hold(monkeypatch)
    with opened(tmp_path) as store:
        put(store, TOPIC, "k")
        hold.catch_up(store)
        for queue_id in (0, 1, 0, 1):
            put(store, TOPIC, "k", queue_id)
        assert newest(store, TOPIC, "k") is not None
        put(store, TOPIC, "k")
        assert newest(store, TOPIC, "k") is None
        for _ in range(6):
            put(store, "Other", "k")
        assert newest(store, "Other", "k") is None
        for queue_id in range(5):
            put(store, "Wide", "k", queue_id)
        hold.catch_up(store)
        assert newest(store, "Wide", "k") is None
        assert newest(store, "None", "k") == KeyMatches([], 0, 0)


def test_times_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Hold(monkeypatch)
    with opened(tmp_path) as store:
        hold.catch_up(store)
        offset = put(store, TOPIC, "k")
        now = store.store_timestamp_at(TOPIC, 0, 0)
        assert newest(store, TOPIC, "k", now) == KeyMatches([offset], now, offset)
        assert newest(store, TOPIC, "k", now - 1) == KeyMatches([], now, offset)


def test_what_was_there_before_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        offset = put(store, TOPIC, "k")
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    (tmp_path / "checkpoint").unlink()
    hold = Hold(monkeypatch)
    hold.held = True
    with opened(tmp_path) as store:
        assert newest(store, TOPIC, "k") is None
        hold.catch_up(store)
        assert found(store, TOPIC, "k") == [offset]
