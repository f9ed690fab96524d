"""Topics and groups on the disk: what is answered for is kept, and costs the same in any table."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.broker.beside import BIG_TABLE
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.codes import RequestCode
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.config_file import ConfigFile
from orbitmq.store.file_ops import FileOps
from orbitmq.store.journal import Journal
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import TopicConfig, TopicConfigSerializeWrapper
from orbitmq.wire.ids import host_bytes
from tests.broker.remote import SMALL_STORE, connect, running
from tests.store.support import draft
from tests.waiting import until

HOST = host_bytes("127.0.0.1", 10911)
PROGRAM = """
import sys, threading
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import StoreError
from orbitmq.store.config_file import ConfigFile

def fail(file, content):
    raise StoreError("no table can be saved as a whole", str(file.path))

ConfigFile.save = fail  # so that it is not by luck that something is kept
with EmbeddedBroker(sys.argv[1], offset_save_interval_ms=1 << 30) as broker:
    print(broker.address, flush=True)
    threading.Event().wait()
"""


def open_broker(directory: Path, clock: ManualClock | None = None) -> Broker:
    return Broker(BrokerConfig(store_config=SMALL_STORE), directory, HOST, clock or ManualClock())


def settle(broker: Broker) -> None:
    asyncio.run(until(lambda: not broker.saved.saving, "the tables saved"))


def users_topics(broker: Broker) -> set[str]:
    return {name for name in broker.topics.topics if not broker.topics.is_reserved(name)}


def config_files(directory: Path) -> set[str]:
    return {path.name for path in (directory / "config").iterdir()}


@contextmanager
def killed(directory: Path) -> Iterator[Path]:
    """The directory as a kill at this moment leaves it."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "store"
        shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("commitlog"))
        yield copy


@contextmanager
def process(store: Path) -> Iterator[str]:
    """A broker in a process of its own, killed in the end; its address."""
    command = [sys.executable, "-c", PROGRAM, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            yield broker.stdout.readline().strip()
        finally:
            broker.kill()


def test_what_was_answered_for_survives_a_kill(tmp_path: Path) -> None:
    async def change(address: str) -> None:
        client = await connect(address)
        for topic in ("kept", "gone"):
            assert (await client.send(topic)).code == codes.SUCCESS
        await client.heartbeat("readers", "kept")
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})
        client.close()

    async def look(address: str) -> None:
        client = await connect(address)
        for topic, code in (("kept", 0), ("%RETRY%readers", 0), ("gone", codes.TOPIC_NOT_EXIST)):
            assert (await client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).code == code
        groups = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert b'"groupName":"readers"' in bytes(groups.body)
        client.close()

    with process(tmp_path) as address:
        asyncio.run(change(address))
        assert "topics.json" not in config_files(tmp_path)
    for _ in range(2):
        with process(tmp_path) as address:
            asyncio.run(look(address))


def test_a_broker_that_closes_leaves_apaches_files_and_nothing_else(tmp_path: Path) -> None:
    async def make(name: str) -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            await client.send(name)
            await client.heartbeat(name, "T")

    for name in ("A", "B"):
        asyncio.run(make(name))
        assert not [name for name in config_files(tmp_path) if "journal" in name]
        table = TopicConfigSerializeWrapper.decode(
            (tmp_path / "config" / "topics.json").read_bytes()
        )
        assert {name, f"%RETRY%{name}", "TBW102"} <= set(table.topic_config_table)


def test_a_new_topic_costs_the_same_in_a_big_table_and_nothing_of_it_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savers = set[str]()
    save = ConfigFile.save

    def noted(file: ConfigFile, content: bytes) -> None:
        savers.add(threading.current_thread().name)
        save(file, content)

    clock = ManualClock()
    broker = open_broker(tmp_path, clock)
    journal = tmp_path / "config" / "topics.json.journal"
    file = tmp_path / "config" / "topics.json"

    def make(name: str) -> int:
        before = journal.stat().st_size if journal.exists() else 0
        broker.topics.put(TopicConfig(name, 4, 4))
        broker.saved.save_changes()
        return journal.stat().st_size - before

    try:
        monkeypatch.setattr(ConfigFile, "save", noted)
        first = make("topic-0000")
        for number in range(1, 3_000):
            broker.topics.put(TopicConfig(f"topic-{number:04}", 4, 4))
        broker.saved.save_changes()
        assert make("topic-3000") <= first + 10  # more digits in a version
        assert not savers
        clock.advance(5_000)
        broker.run_due()
        settle(broker)
        assert savers == {"orbitmq-saver_0"}
        assert b"topic-3000" in file.read_bytes()
        assert not journal.exists()
    finally:
        broker.close()


@pytest.mark.parametrize("mode", list(FlushMode))
def test_only_with_sync_a_change_is_on_the_disk_before_it_is_answered_for(
    tmp_path: Path, mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fdatasync = FileOps.fdatasync

    def noted(ops: FileOps, fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fdatasync(ops, fd)

    config = BrokerConfig(store_config=StoreConfig(mapped_file_size=1 << 20, flush_mode=mode))
    broker = Broker(config, tmp_path, HOST, ManualClock())
    try:
        monkeypatch.setattr(FileOps, "fdatasync", noted)
        broker.topics.put(TopicConfig("T"))
        broker.saved.save_changes()
        assert ("topics.json.journal" in synced) is (mode is FlushMode.SYNC)
    finally:
        monkeypatch.undo()
        broker.close()


def test_changes_are_not_made_to_a_table_that_another_broker_has_saved_since(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = open_broker(tmp_path)
    broker.topics.put(TopicConfig("first"))
    broker.close()
    broker = open_broker(tmp_path)
    broker.topics.put(TopicConfig("ours"))
    broker.saved.save_changes()
    with killed(tmp_path) as copy:
        file = ConfigFile(copy / "config" / "topics.json")
        table = TopicConfigSerializeWrapper.decode(file.load() or b"")
        file.save(
            TopicConfigSerializeWrapper(
                table.topic_config_table | {"theirs": TopicConfig("theirs")},
                table.data_version.next(1_900_000_000_000),
            ).encode()
        )
        caplog.clear()
        again = open_broker(copy)
        assert users_topics(again) == {"first", "theirs"}
        assert "1 changes in topics.json.journal are left out" in caplog.text
        again.close()
        assert not [name for name in config_files(copy) if "journal" in name]
    broker.close()


def test_a_topic_deleted_just_before_a_kill_leaves_no_messages(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    for topic in ("gone", "kept"):
        broker.topics.put(TopicConfig(topic))
        broker.store.append(draft(b"old", topic))
    broker.write()
    broker.close()
    broker = open_broker(tmp_path)
    broker.topics.delete("gone")
    broker.saved.save_changes()
    broker.store.close()  # the queues' files were to be removed
    broker = open_broker(tmp_path)
    assert broker.store.topics() == {"kept": [0]}
    broker.topics.put(TopicConfig("gone"))
    broker.close()
    broker = open_broker(tmp_path)
    assert broker.store.topics() == {"kept": [0]}
    broker.close()


def test_a_torn_change_is_left_out_and_what_comes_later_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path / "t.journal")
    journal.append([b"one", b"two"])
    journal.close()
    journal.path.write_bytes(journal.path.read_bytes() + b"0badc0de torn\n00000000 an")
    journal = Journal(tmp_path / "t.journal")
    assert journal.read() == [b"one", b"two"]
    assert "torn at byte 26" in caplog.text
    journal.append([b"three"])
    journal.retire()
    journal.append([b"four"])
    journal.retire()  # which waits, as others are put aside
    journal.close()
    journal = Journal(tmp_path / "t.journal")
    assert journal.read() == [b"one", b"two", b"three", b"four"]
    journal.drop_retired()
    journal.append([b"five"])
    assert Journal(tmp_path / "t.journal").read() == [b"four", b"five"]
    journal.remove()
    assert Journal(tmp_path / "t.journal").read() is None


def test_changes_that_cannot_be_written_down_are_kept_and_saved_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = open_broker(tmp_path)
    blocker = tmp_path / "config" / "topics.json.journal"
    blocker.mkdir(parents=True)
    for topic in ("A", "B"):
        broker.topics.put(TopicConfig(topic))
        broker.saved.save_changes()
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "topics.json is kept in memory" in errors[0].getMessage()
    blocker.rmdir()
    broker.topics.put(TopicConfig("C"))
    broker.saved.save_changes()
    with killed(tmp_path) as copy:
        again = open_broker(copy)
        assert users_topics(again) == {"A", "B", "C"}
        again.close()
    broker.close()


def test_a_new_topic_and_group_are_soon_in_the_files_that_apache_reads(tmp_path: Path) -> None:
    def is_there(name: str, word: bytes) -> bool:
        try:
            return word in (tmp_path / "config" / name).read_bytes()
        except FileNotFoundError:  # not yet, or just being replaced
            return False

    async def main() -> None:
        async with running(tmp_path, ManualClock()) as node:  # no interval passes
            client = await node.connect()
            await client.send("fresh")
            await client.heartbeat("readers", "fresh")
            for name, word in (
                ("topics.json", b'"fresh"'),
                ("subscriptionGroup.json", b'"readers"'),
            ):
                async with asyncio.timeout(10):
                    while not is_there(name, word):
                        await client.settle()

    asyncio.run(main())


def test_a_big_table_is_not_saved_for_each_change(tmp_path: Path) -> None:
    clock = ManualClock()
    broker = open_broker(tmp_path, clock)
    file = tmp_path / "config" / "topics.json"
    for number in range(BIG_TABLE):  # besides the built-in ones
        broker.topics.put(TopicConfig(f"T{number}"))
    broker.saved.save_changes()
    broker.saved.save_small_tables()
    assert (broker.topics.changed, broker.saved.saving) == (True, False)
    broker.topics.delete("T0")
    for name in set(broker.topics.topics) - {f"T{number}" for number in range(BIG_TABLE)}:
        broker.topics.delete(name)
    broker.saved.save_changes()
    broker.saved.save_small_tables()
    settle(broker)
    assert set(TopicConfigSerializeWrapper.decode(file.read_bytes()).topic_config_table) == {
        f"T{number}" for number in range(1, BIG_TABLE)
    }
    broker.close()


def test_what_cannot_be_saved_at_once_is_saved_within_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    broker = open_broker(tmp_path, clock)
    blocker = tmp_path / "config" / "topics.json.tmp"
    blocker.mkdir(parents=True)
    broker.topics.put(TopicConfig("T"))
    broker.saved.save_small_tables()
    settle(broker)
    assert broker.topics.changed
    blocker.rmdir()
    broker.saved.save_small_tables()
    assert not broker.saved.saving  # a broker whose disk is full does not try all the time
    clock.advance(1_000)
    broker.run_due()
    settle(broker)
    assert b'"T"' in (tmp_path / "config" / "topics.json").read_bytes()
    broker.close()


STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("ABC"), st.integers(1, 9)),
    st.tuples(st.just("delete"), st.sampled_from("ABC"), st.just(0)),
    st.tuples(
        st.sampled_from(["answer", "save", "spoil", "mend", "kill"]), st.just(""), st.just(0)
    ),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_whatever_happens_a_kill_leaves_what_was_answered_for(
    steps: list[tuple[str, str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory, clock = Path(place), ManualClock()
        broker = open_broker(directory, clock)
        blocker = directory / "config" / "topics.json.tmp"
        answered: dict[str, int] = {}

        def now() -> dict[str, int]:
            return {name: broker.topics.topics[name].perm for name in users_topics(broker)}

        for step, name, perm in steps:
            clock.advance(5_000)
            if step == "put":
                broker.topics.put(TopicConfig(name, perm=perm))
            elif step == "delete":
                broker.topics.delete(name)
            elif step == "spoil":  # nothing can be saved as a whole now
                blocker.mkdir(exist_ok=True)
            elif step == "mend" and blocker.exists():
                blocker.rmdir()
            elif step == "save":
                broker.run_due()
                settle(broker)
                answered = now()
            elif step == "answer":
                broker.saved.save_changes()
                answered = now()
            elif step == "kill":
                broker.store.close()  # of the tables nothing more is saved
                broker = open_broker(directory, clock)
                assert now() == answered
        if blocker.exists():
            blocker.rmdir()
        expected = now()
        broker.close()
        assert not [name for name in config_files(directory) if "journal" in name]
        broker = open_broker(directory, clock)
        assert now() == expected
        broker.close()
