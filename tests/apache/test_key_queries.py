"""The key index judged by Apache's: its files, its store on our directory, its clients on ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.store.check import check_store, find_layout
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.index_file import IndexShape, IndexWriter
from orbitmq.store.index_keys import KEY, key_hash
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.ids import tags_code
from orbitmq.wire.message_view import decode_record
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Draft, host_bytes
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram
from tests.marked_program import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]

TOPIC = "TopicTest"
HOST = host_bytes("127.0.0.1", 10911)
SHAPE = IndexShape(500, 160)
CONFIG = StoreConfig(
    mapped_file_size=1 << 16,
    consume_queue_units=1000,
    max_message_size=1 << 14,
    max_hash_slot_num=SHAPE.slots,
    max_index_num=SHAPE.entries,
)
COUNT = 120


class KeyQueries(JavaProgram):
    """Apache's side; see java/KeyQueries.java for its calls."""

    def __init__(self, version: str) -> None:
        super().__init__(release_or_skip(version), "KeyQueries")
        self.version = version
        self._answers = 0

    def ask(self, *words: object) -> Any:
        self.send_line(" ".join(map(str, words)))
        self._answers += 1

        def answers() -> list[Any]:
            return [mark for mark in self.marks if mark.kind in ("answer", "refused")]

        self.wait_until(lambda: len(answers()) == self._answers, f"the answer to {words}")
        kind, value = answers()[-1]
        if kind == "refused":
            raise ProgramError(f"{words[0]} is refused with code {value[0]}: {value[1]}")
        return value

    def open(self, directory: Path) -> None:
        sizes = (CONFIG.mapped_file_size, CONFIG.consume_queue_units, *SHAPE)
        assert self.ask("open", directory, *sizes) is True

    def finds(self, *keys: str) -> bool:
        """Whether each key leads to the message that has it as its body, by key and unique key."""
        return all(
            self.ask("find", TOPIC, key) == [key] == self.ask("find", TOPIC, f"U{key}")
            for key in keys
        )


@pytest.fixture(params=[OLDEST, NEWEST])
def java(request: pytest.FixtureRequest) -> Iterator[KeyQueries]:
    with KeyQueries(request.param) as program:
        yield program


def numbered(prefix: str, start: int = 0, stop: int = COUNT) -> list[str]:
    return [f"{prefix}{number}" for number in range(start, stop)]


def put(store: MessageStore, keys: list[str]) -> None:
    for key in keys:
        properties = encode_properties({"KEYS": key, "UNIQ_KEY": f"U{key}", "TAGS": "Ours"})
        code = tags_code("Ours")
        store.append(Draft(TOPIC, 0, key.encode(), properties, code, 0, 0, 1, HOST, HOST))
    store.write()
    index = store.key_index
    assert index is not None
    wait_until(lambda: index.position >= store.max_physical_offset, "the index")


def found(store: MessageStore, key: str) -> set[str]:
    """The bodies of the messages with a key; look-ups may give others with the same hash."""
    assert store.key_index is not None
    views = [
        decode_record(record)
        for place in store.key_index.find(TOPIC, key, 64).offsets
        if (record := store.record_at(place)) is not None
    ]
    wanted = {"KEYS": key} if not key.startswith("U") else {"UNIQ_KEY": key}
    return {view.body.decode() for view in views if wanted.items() <= dict(view.properties).items()}


def check_all(store: MessageStore, keys: list[str]) -> None:
    index = store.key_index
    assert index is not None
    wait_until(lambda: index.position >= store.max_physical_offset, "the index")
    assert [key for key in keys if found(store, key) != {key}] == []
    assert [key for key in keys if found(store, f"U{key}") != {key}] == []


def golden_keys(count: int) -> bytes:
    return b"".join(
        KEY.pack(
            n * 100,
            1_700_000_000_000 + n * 700,
            key_hash("Topic", f"schlüssel-{n // 2}" if n % 7 == 0 else f"key-{n // 3}"),
        )
        for n in range(count)
    )


def test_files_and_directories_go_over_and_come_back(java: KeyQueries, tmp_path: Path) -> None:
    """One program for all, since a JVM takes its time: golden bytes, swaps, clean and killed."""
    theirs, own = tmp_path / "20260101000000001", tmp_path / "20260101000000000"
    taken, offsets = java.ask("golden", theirs, 50, 300, 320)
    writer = IndexWriter(FILE_OPS, own, IndexShape(50, 300), create=True)
    assert writer.put(golden_keys(320)) == taken * KEY.size == 299 * KEY.size
    writer.flush()
    writer.save()
    writer.close()
    assert own.read_bytes() == theirs.read_bytes()
    assert offsets == [1700, 1600, 1500]

    # Ours, closed in order: Apache finds all and adds its own.
    ours = tmp_path / "ours"
    first, added = numbered("a"), numbered("j")
    with_store = MessageStore.open(ours, CONFIG)
    put(with_store, first)
    with_store.close()
    java.open(ours)
    assert java.finds(*first)
    assert java.ask("put", TOPIC, "j", COUNT) == ["true"]
    assert java.finds(*added)
    assert java.ask("close") is True
    assert check_store(ours, find_layout(ours, SHAPE)).problems == []
    store = MessageStore.open(ours, CONFIG)
    check_all(store, first + added)
    more = numbered("b")
    put(store, more)

    # Ours, killed: what Apache needs is in what was saved and in the log.
    killed = tmp_path / "killed"
    shutil.copytree(ours, killed)
    store.close()
    java.open(killed)
    assert java.finds(*(first + added + more))
    assert java.ask("put", TOPIC, "k", COUNT) == ["true"]

    # Apache's, killed.
    java.kill()
    store = MessageStore.open(killed, CONFIG)
    check_all(store, first + added + more + numbered("k"))
    store.close()


def test_javas_clients_query_our_broker(java: KeyQueries) -> None:
    with (
        EmbeddedBroker() as broker,
        Producer("queries", name_server=broker.name_server) as producer,
    ):
        sent = [
            producer.send(Message("Asked", f"body-{n}".encode(), keys=f"key-{n % 2}", tags="Red"))
            for n in range(4)
        ]
        java.ask("connect", broker.name_server)
        expected = [[sent[n].message_id, "key-1", f"body-{n}"] for n in (1, 3)]
        for call in ("query", "ask"):
            last_update, rows = java.ask(call, "Asked", "key-1")
            assert sorted(rows) == sorted(expected)
            assert last_update > 0
        with pytest.raises(ProgramError, match="208|no message|query message"):
            java.ask("query", "Asked", "nothing")
        for name in (sent[0].message_id, sent[0].offset_message_id):
            assert java.ask("view", "Asked", name)[1:] == ["key-0", "body-0"]
        low, high, filter_data, entries = java.ask(
            "entries", broker.address, "Asked", sent[0].message_queue.queue_id, 0, 10, "group"
        )
        assert (low, filter_data) == (0, "group@Asked is not online!")
        assert high == len(entries) >= 1
        assert all(code == tags_code("Red") and not eval_ for *_, code, eval_ in entries)
