"""Directories whose first files are gone: ours taken over by Apache's brokers, theirs by ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message, MessageQueue, PullConsumer, PullStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.message_view import decode_records
from tests.apache.cluster import ApacheCluster
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.python_clients import PATIENT, new_producer
from tests.patience import eventually
from tests.store.support import draft

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]

TOPIC = "Retained"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
CONFIG = StoreConfig(
    mapped_file_size=1 << 16,
    consume_queue_units=100,
    delete_when=";".join(map(str, range(24))),
    clean_interval_ms=3_600_000,
    disk_clean_forcibly_ratio=100,
    disk_warning_ratio=100,
)
APACHES = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxMessageSize": 1 << 15,
    "autoCreateTopicEnable": True,
    "diskSpaceWarningLevelRatio": 90,
}


def body(number: int) -> bytes:
    return b"%04d" % number + b"x" * 1000


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def write_and_expire(directory: Path, count: int) -> int:
    """A store of ours whose first three log files retention has deleted; its minimum offset."""
    store = MessageStore.open(directory, CONFIG)
    try:
        for number in range(count):
            store.append(draft(body(number), TOPIC))
            store.write()
        for path in log_files(directory)[:3]:
            os.utime(path, (1, 1))
        assert store.cleaner.clean() == 3
        return store.min_offset(TOPIC, 0)
    finally:
        store.close()


def stored(store: MessageStore) -> Iterator[bytes]:
    offset = store.min_offset(TOPIC, 0)
    while offset < store.max_offset(TOPIC, 0):
        result = store.get_messages(TOPIC, 0, offset, 100, 1 << 20)
        views = decode_records(b"".join(result.slices))
        assert [view.queue_offset for view in views] == list(range(offset, offset + len(views)))
        yield from (view.body for view in views)
        offset = result.next_begin_offset


def pulled(consumer: PullConsumer, low: int, high: int) -> list[bytes]:
    found: list[bytes] = []
    while low + len(found) < high:
        result = consumer.pull(QUEUE, "*", low + len(found), 32)
        assert result.status is PullStatus.FOUND
        found += [message.body for message in result.messages]
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_directories_whose_first_files_are_gone(tmp_path: Path, version: str) -> None:
    release = release_or_skip(version)
    directory = tmp_path / "store"
    count = 400
    low = write_and_expire(directory, count)
    assert low > 150
    first = log_files(directory)[0].name
    with ApacheCluster(release, APACHES, store=directory) as cluster:
        settings: dict[str, Any] = {"name_server": cluster.name_server, **PATIENT}
        with new_producer("senders", cluster.name_server) as producer:
            for number in range(count, count + 100):
                producer.send(Message(TOPIC, body(number)), queue=QUEUE)
        with PullConsumer("readers", topics=TOPIC, **settings) as consumer:
            eventually(lambda: consumer.max_offset(QUEUE) == count + 100, "the messages sent")
            assert consumer.min_offset(QUEUE) == low
            result = consumer.pull(QUEUE, "*", 0, 32)
            assert result.status is PullStatus.OFFSET_ILLEGAL
            assert (result.next_begin_offset, result.min_offset) == (low, low)
            expected = [body(number) for number in range(low, count + 100)]
            assert pulled(consumer, low, count + 100) == expected
        cluster.broker.kill()
    assert log_files(directory)[0].name == first
    for path in log_files(directory)[:2]:  # as Apache's own retention does
        path.unlink()
    for _ in range(2):
        store = MessageStore.open(directory, CONFIG)
        try:
            low = store.min_offset(TOPIC, 0)
            assert low > 250
            assert store.min_physical_offset == int(log_files(directory)[0].name)
            assert store.max_offset(TOPIC, 0) == count + 100
            assert list(stored(store)) == [body(number) for number in range(low, count + 100)]
        finally:
            store.close()
