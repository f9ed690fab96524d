"""Offsets in a file of the client, in Java's form: what is read, written, and survives a crash."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.consumer.offsets import NO_OFFSET, LocalFileOffsetStore, ReadOffset
from orbitmq.errors import CorruptStoreError
from orbitmq.message import MessageQueue

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))
BILLS = MessageQueue("bills", "broker-b", 7)
GOLDEN: dict[str, str] = json.loads(
    (Path(__file__).parent / "golden" / "local_offsets.json").read_text(encoding="utf-8")
)["files"]
"""Files as LocalFileOffsetStore of Java writes them, by release (tests/apache/test_offsets.py)."""


def file_store(root: Path) -> LocalFileOffsetStore:
    return LocalFileOffsetStore("10.0.0.1@one", "readers", root)


@pytest.mark.parametrize("release", sorted(GOLDEN))
def test_a_file_of_java_is_read_and_written_in_its_form(tmp_path: Path, release: str) -> None:
    store = file_store(tmp_path)
    assert store.path == tmp_path / "10.0.0.1@one" / "readers" / "offsets.json"
    store.path.parent.mkdir(parents=True)
    store.path.write_text(GOLDEN[release])
    asyncio.run(store.load())
    assert store.clone() == {Q0: 4, Q1: 8, BILLS: 2**40}
    assert asyncio.run(store.read(BILLS, ReadOffset.STORE)) == 2**40
    store.update(Q0, 5)
    asyncio.run(store.persist_all([Q0]))
    text = store.path.read_bytes()
    assert b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}:5' in text
    assert b'{"brokerName":"broker-b","queueId":7,"topic":"bills"}:1099511627776' in text
    assert b"},:" not in text
    assert text.startswith(b'{"offsetTable":{{')
    assert b":4" in store.path.with_name("offsets.json.bak").read_bytes()


def test_no_file_is_made_before_there_is_an_offset(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    asyncio.run(store.load())
    asyncio.run(store.persist_all([Q0]))
    assert asyncio.run(store.read(Q0, ReadOffset.STORE)) == NO_OFFSET
    assert list(tmp_path.iterdir()) == []


def test_saving_some_queues_keeps_the_others(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.update(Q0, 1)
    store.update(Q1, 2)
    asyncio.run(store.persist([Q0, Q1]))
    store.update(Q1, 3)
    asyncio.run(store.persist([Q1]))
    again = file_store(tmp_path)
    asyncio.run(again.load())
    assert again.clone() == {Q0: 1, Q1: 3}


@pytest.mark.parametrize("damage", [b"", b'{"offsetTable":{{"brok', b"\x00" * 50])
def test_a_damaged_file_gives_way_to_its_backup(tmp_path: Path, damage: bytes) -> None:
    store = file_store(tmp_path)
    for offset in (5, 6):
        store.update(Q0, offset)
        asyncio.run(store.persist([Q0]))
    store.path.write_bytes(damage)
    again = file_store(tmp_path)
    asyncio.run(again.load())
    assert again.get(Q0) == 5
    again.update(Q0, 9)
    asyncio.run(again.persist([Q0]))
    assert asyncio.run(file_store(tmp_path).read(Q0, ReadOffset.STORE)) == 9


def test_unchanged_offsets_are_not_written_again(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.update(Q0, 5)
    asyncio.run(store.persist([Q0]))
    written = store.path.stat().st_ino
    asyncio.run(store.persist([Q0]))
    assert store.path.stat().st_ino == written


def test_where_backup_and_file_are_damaged_nothing_is_made_up(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    for offset in (5, 6):
        store.update(Q0, offset)
        asyncio.run(store.persist([Q0]))
    for name in ("offsets.json", "offsets.json.bak"):
        store.path.with_name(name).write_bytes(b'{"offsetTable":{{"brok')
    again = file_store(tmp_path)
    with pytest.raises(CorruptStoreError, match="delete both") as caught:
        asyncio.run(again.load())
    assert caught.value.path == str(store.path)
    again.update(Q0, 9)
    asyncio.run(again.persist([Q0]))  # only logged
    assert store.path.read_bytes() == b'{"offsetTable":{{"brok'


def test_a_damaged_file_without_a_backup_is_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b'{"offsetTable":{{"brok')
    asyncio.run(store.load())
    assert store.clone() == {}
    assert "is damaged, its backup is read instead" in caplog.text


class LocalOffsets(RuleBasedStateMachine):
    """Random use of the file, with crashes, against dicts: memory, the file, and its backup."""

    queues = st.sampled_from([Q0, Q1, BILLS])

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(prefix="orbitmq-offsets-")
        self.store = file_store(Path(self.directory.name))
        self.memory: dict[MessageQueue, int] = {}
        self.file: dict[MessageQueue, int] = {}
        self.backup: dict[MessageQueue, int] = {}
        self.torn = False

    def teardown(self) -> None:
        self.directory.cleanup()

    def readable(self) -> dict[MessageQueue, int]:
        return self.backup if self.torn else self.file

    def saved(self, offsets: dict[MessageQueue, int]) -> None:
        before = self.readable()
        if before != before | offsets:
            self.backup = before or self.backup
            self.file = before | offsets
            self.torn = False

    @rule(queue=queues, offset=st.integers(0, 2**62))
    def update(self, queue: MessageQueue, offset: int) -> None:
        self.store.update(queue, offset)
        self.memory[queue] = offset

    @rule(owned=st.sets(queues))
    def persist(self, owned: set[MessageQueue]) -> None:
        asyncio.run(self.store.persist(owned))
        self.saved({queue: self.memory[queue] for queue in owned if queue in self.memory})

    @rule(owned=st.sets(queues, min_size=1))
    def persist_all(self, owned: set[MessageQueue]) -> None:
        asyncio.run(self.store.persist_all(owned))
        self.memory = {queue: at for queue, at in self.memory.items() if queue in owned}
        self.saved(self.memory)

    @rule(queue=queues)
    def remove(self, queue: MessageQueue) -> None:
        self.store.remove(queue)
        self.memory.pop(queue, None)

    @rule()
    def begin_again(self) -> None:
        self.store = file_store(Path(self.directory.name))
        asyncio.run(self.store.load())
        self.memory = dict(self.readable())

    @rule(garbage=st.binary(max_size=20))
    def crash_while_writing(self, garbage: bytes) -> None:
        """Of ours only the new file is left behind, unfinished."""
        if self.store.path.parent.exists():
            self.store.path.with_name("offsets.json.tmp").write_bytes(garbage)
        self.begin_again()

    @precondition(lambda self: self.file)
    @rule(generator=st.randoms(use_true_random=False))
    def crash_while_java_writes(self, generator: random.Random) -> None:
        """Java writes over the file, which may end anywhere."""
        data = self.store.path.read_bytes()
        if data:
            self.store.path.write_bytes(data[: generator.randrange(len(data))])
            self.torn = True
        self.begin_again()

    @invariant()
    def store_and_model_agree(self) -> None:
        assert self.store.clone() == self.memory
        for queue in (Q0, Q1, BILLS):
            offset = asyncio.run(self.store.fetch(queue))
            assert offset == self.readable().get(queue, NO_OFFSET)


TestLocalOffsets = LocalOffsets.TestCase
TestLocalOffsets.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
