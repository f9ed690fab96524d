"""A topic to Parquet and back: exact, in order, and after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import Admin, EmbeddedBroker, Message, Producer
from orbitmq.cli import main
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.errors import ArchiveError, ConfigError, DataLossError
from orbitmq.spark.archives import archiving, replaying
from orbitmq.spark.archives import files as archive_files
from orbitmq.spark.archives.archiving import CommitFiles, archive, archive_schema
from orbitmq.spark.archives.replaying import replay
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import encode_properties
from tests.spark.topics import Topic

_OF_BROKERS = dict.fromkeys(("CLUSTER", "MSG_REGION", "TRACE_ON"), "")
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


@pytest.fixture
def small_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three messages a commit, and a row group."""
    monkeypatch.setattr(archiving, "_FIRST_COMMIT_ROWS", 3)
    monkeypatch.setattr(archiving, "_SMALLEST_COMMIT_ROWS", 3)
    monkeypatch.setattr(archiving, "FILE_BYTES", 1)
    monkeypatch.setattr(archiving, "ROW_GROUP_BYTES", 1)


def fill(topic: Topic, count: int, first: int = 0) -> None:
    """Messages with tags, keys and properties; every third in the second queue."""
    with closing(Sender((topic.broker.name_server,), "tests")) as sender:
        for number in range(first, first + count):
            pairs = {"TAGS": f"t{number % 2}", "KEYS": f"k{number}", "own": "ü", "n": str(number)}
            body = f"body {number}".encode()
            key = "1" if number % 3 == 0 else "0"
            sender.add(topic.name, Outgoing(body, encode_properties(pairs), key))
        sender.finish()


def table(directory: Path) -> Any:
    return ds.dataset(directory, partitioning="hive").to_table()


def places(directory: Path) -> list[tuple[int, int]]:
    found = table(directory)
    return sorted(zip(found["queueId"].to_pylist(), found["queueOffset"].to_pylist(), strict=True))


def in_topic(topic: Topic) -> list[tuple[int, int]]:
    return sorted(
        (view.queue_id, view.queue_offset) for views in topic.by_queue().values() for view in views
    )


def content(views: list[MessageView]) -> list[tuple[bytes, dict[str, str]]]:
    """What a replay keeps: all but what a broker says of itself."""
    return [
        (view.body, {**view.properties, **_OF_BROKERS, "UNIQ_KEY": view.message_id})
        for view in views
    ]


def bring_up(topic: Topic, directory: Path, **options: Any) -> tuple[int, int, int]:
    done = archive(topic.name, directory, name_server=topic.broker.name_server, **options)
    return done.messages, done.files, done.total


def send_again(broker: EmbeddedBroker, directory: Path, to: str, **options: Any) -> tuple[int, int]:
    done = replay(directory, to, name_server=broker.name_server, **options)
    return done.messages, done.found


def test_all_comes_back_queue_by_queue(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 10)
    assert bring_up(topic, tmp_path) == (10, 1, 10)
    rows = table(tmp_path)
    assert rows.schema.names[:-1] == archive_schema().names
    assert set(rows["topic"].to_pylist()) == {topic.name}
    other = Topic(topic.broker)
    assert send_again(topic.broker, tmp_path, other.name) == (10, 0)
    before, after = topic.by_queue(), other.by_queue()
    assert before.keys() == after.keys() == {0, 1}
    for queue, views in before.items():
        assert content(views) == content(after[queue])


def test_a_queue_stays_in_order_in_a_topic_of_fewer_queues(
    topic: Topic, tmp_path: Path, small_commits: None
) -> None:
    fill(topic, 12)
    bring_up(topic, tmp_path)
    one = Topic(topic.broker, queues=1)
    send_again(topic.broker, tmp_path, one.name)
    (merged,) = one.by_queue().values()
    for views in topic.by_queue().values():
        wanted = [view.body for view in views]
        assert [view.body for view in merged if view.body in wanted] == wanted


def test_later_runs_take_what_is_new(topic: Topic, tmp_path: Path, small_commits: None) -> None:
    fill(topic, 7)
    assert bring_up(topic, tmp_path, on_progress=lambda *_: None)[0] == 7
    other = Topic(topic.broker)
    assert send_again(topic.broker, tmp_path, other.name) == (7, 0)
    assert bring_up(topic, tmp_path) == (0, 0, 7)
    fill(topic, 5, first=7)
    assert bring_up(topic, tmp_path)[::2] == (5, 12)
    assert places(tmp_path) == in_topic(topic)
    assert send_again(topic.broker, tmp_path, other.name) == (5, 0)
    assert send_again(topic.broker, tmp_path, other.name) == (0, 0)
    assert sorted(other.bodies()) == sorted(topic.bodies())
    assert send_again(topic.broker, tmp_path, other.name, restart=True) == (12, 0)


def test_latest_begins_where_the_first_run_was(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 4)
    assert bring_up(topic, tmp_path, starting_offsets="latest") == (0, 0, 0)
    fill(topic, 3, first=4)
    assert bring_up(topic, tmp_path, starting_offsets="latest") == (3, 1, 3)


def test_tags_choose(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 6)
    assert bring_up(topic, tmp_path, tags="t1") == (3, 1, 3)
    assert set(table(tmp_path)["tags"].to_pylist()) == {"t1"}
    assert bring_up(topic, tmp_path, tags="t1") == (0, 0, 3)
    with pytest.raises(ArchiveError, match="with tags 't1', not of"):
        bring_up(topic, tmp_path)


@pytest.mark.usefixtures("small_commits")
@pytest.mark.parametrize("step", ["write_manifest", "publish", "sync_file"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_failure_anywhere_loses_and_repeats_nothing(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    fill(topic, 10)
    calls = iter(range(1, 100))
    real = getattr(archiving, step)

    def fails(*arguments: Any) -> Any:
        if next(calls) == call:
            raise OSError("power cut")
        return real(*arguments)

    monkeypatch.setattr(archiving, step, fails)
    with pytest.raises(OSError, match="power cut"):
        bring_up(topic, tmp_path)
    seen = places(tmp_path) if [*tmp_path.glob("day=*/part*")] else []
    assert len(seen) == len(set(seen))
    monkeypatch.setattr(archiving, step, real)
    bring_up(topic, tmp_path)
    assert places(tmp_path) == in_topic(topic)
    assert set(seen) <= set(in_topic(topic))


def test_a_kill_between_manifest_and_names(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topic, 4)
    bring_up(topic, tmp_path)
    (part,) = tmp_path.glob("day=*/part-*.parquet")
    hidden = part.with_name("." + part.name)
    part.rename(hidden)  # commit 1 has not got its name yet, commit 2 never counted
    hidden.with_name(".part-00000002.parquet").write_bytes(b"half")
    assert bring_up(topic, tmp_path) == (0, 0, 4)
    assert places(tmp_path) == in_topic(topic)
    assert [*tmp_path.glob("day=*/.*")] == []


KILLED = """
import os, signal, sys
from orbitmq.spark.archives import archiving
from orbitmq.spark import archive
from orbitmq.spark import replay
archiving._FIRST_COMMIT_ROWS = archiving._SMALLEST_COMMIT_ROWS = 3
archiving.FILE_BYTES = archiving.ROW_GROUP_BYTES = 1
def on_progress(done, total):
    if done >= 5:
        os.kill(os.getpid(), signal.SIGKILL)
what, topic, directory, server = sys.argv[1:]
if what == "archive":
    archive(topic, directory, name_server=server, on_progress=on_progress)
else:
    replay(directory, topic, name_server=server, on_progress=on_progress)
"""


def kill_in(what: str, topic: Topic, directory: Path) -> None:
    server = topic.broker.name_server
    run = [sys.executable, "-c", KILLED, what, topic.name, str(directory), server]
    assert subprocess.run(run, check=False).returncode == -signal.SIGKILL


def test_what_is_killed_goes_on(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 20)
    kill_in("archive", topic, tmp_path)
    done = bring_up(topic, tmp_path)
    assert 0 < done[0] < 20
    assert places(tmp_path) == in_topic(topic)
    other = Topic(topic.broker)
    kill_in("replay", other, tmp_path)
    sent = len(other.bodies())
    assert sent > 0
    messages, _ = send_again(topic.broker, tmp_path, other.name)
    assert messages == 20 - sent
    for queue, views in topic.by_queue().items():
        assert content(views) == content(other.by_queue()[queue])


def test_what_a_killed_replay_sent_last_is_found(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topic, 8)
    bring_up(topic, tmp_path)
    other = Topic(topic.broker)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(replaying._Run, "_save", dies)  # all is sent, and nothing written down
        with pytest.raises(KeyboardInterrupt):
            send_again(topic.broker, tmp_path, other.name)
    other.send("of somebody else")
    assert send_again(topic.broker, tmp_path, other.name) == (0, 8)
    assert len(other.bodies()) == 9


def test_what_told_a_broker_to_wait_is_not_told_again(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    first = Topic(broker, queues=1)
    first.send("a")
    bring_up(first, tmp_path)
    part = next(tmp_path.glob("day=*/part-*"))
    import pyarrow.parquet as pq

    rows = pq.read_table(part)
    pairs = [[("DELAY", "18"), ("TRAN_MSG", "true"), ("own", "1")]]
    index = rows.schema.get_field_index("properties")
    field = rows.schema.field("properties")
    pq.write_table(rows.set_column(index, field, pa.array(pairs, field.type)), part)
    other = Topic(broker, queues=1)
    send_again(broker, tmp_path, other.name)
    ((view,),) = other.by_queue().values()
    assert view.body == b"a"
    assert view.properties["own"] == "1"
    assert view.properties.keys().isdisjoint({"DELAY", "TRAN_MSG"})
    (original,) = first.by_queue()[0]
    assert view.message_id == original.message_id


def test_flags_and_large_bodies_come_back(broker: EmbeddedBroker, tmp_path: Path) -> None:
    first, other = Topic(broker, queues=1), Topic(broker, queues=1)
    large = b"0123456789" * 500_000  # more than a broker takes, but for being compressed
    settings: Any = {"name_server": broker.name_server, "max_message_size": 2 * len(large)}
    with Producer("archived", **settings) as producer:
        producer.send(Message(first.name, b"small", flag=7))
        producer.send(Message(first.name, large, flag=8), timeout=60)
    bring_up(first, tmp_path)
    send_again(broker, tmp_path, other.name)
    (views,) = other.by_queue().values()
    assert [(view.body, view.flag) for view in views] == [(b"small", 7), (large, 8)]


def test_days_choose_what_is_replayed(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 3)
    bring_up(topic, tmp_path)
    day = next(tmp_path.glob("day=*")).name.removeprefix("day=")
    other = Topic(topic.broker)
    late = {"from_day": "2999-01-01", "checkpoint": tmp_path / "late.json"}
    assert send_again(topic.broker, tmp_path, other.name, **late) == (0, 0)
    assert send_again(topic.broker, tmp_path, other.name, from_day=day, until_day=day) == (3, 0)
    with pytest.raises(ArchiveError, match=f"from_day='{day}', not None: give another checkpoint"):
        send_again(topic.broker, tmp_path, other.name)
    with pytest.raises(ConfigError, match="until_day.*such as 2026-11-22"):
        send_again(topic.broker, tmp_path, other.name, until_day="yesterday")


def test_messages_that_are_gone_are_told(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 4)
    bring_up(topic, tmp_path)
    manifest = archive_files.read_manifest(tmp_path)
    assert manifest is not None
    manifest.queues["broker-a"]["0"] = 100
    archive_files.write_manifest(tmp_path, manifest)
    with pytest.raises(DataLossError, match="queue 0 of broker-a: offset 100 is not there"):
        bring_up(topic, tmp_path)
    fill(topic, 2, first=4)
    assert bring_up(topic, tmp_path, fail_on_data_loss=False)[0] > 0


def test_a_topic_made_anew_is_not_gone_on_with(topic: Topic, tmp_path: Path) -> None:
    """It may have more messages than the old one had, so offsets do not tell."""
    fill(topic, 4)
    bring_up(topic, tmp_path)
    with Admin(name_server=topic.broker.name_server) as admin:
        admin.delete_topic(topic.name)
    manifest = archive_files.read_manifest(tmp_path)
    assert manifest is not None
    wait_until(lambda: SYSTEM_CLOCK.now_ms() > max(manifest.seen.values()))
    topic.resize(2)
    fill(topic, 9, first=4)
    with pytest.raises(DataLossError, match="the topic was deleted and made again, offset"):
        bring_up(topic, tmp_path)
    assert bring_up(topic, tmp_path, fail_on_data_loss=False)[0] == 9
    assert bring_up(topic, tmp_path) == (0, 0, 13)
    fill(topic, 3, first=13)
    assert bring_up(topic, tmp_path)[0] == 3


def test_what_is_no_archive_is_left_alone(topic: Topic, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is no archive: it has no file _archive.json"):
        send_again(topic.broker, tmp_path, "other")
    (tmp_path / "day=2026-01-01").mkdir()
    with pytest.raises(ArchiveError, match="has data of something else"):
        bring_up(topic, tmp_path)
    (tmp_path / "_archive.json").write_text("{}")
    with pytest.raises(ArchiveError, match="is not the manifest of an archive"):
        bring_up(topic, tmp_path)
    (tmp_path / "_archive.json").write_text('{"topic": "t", "version": 9}')
    with pytest.raises(ArchiveError, match="of version 9, this OrbitMQ reads version 1"):
        bring_up(topic, tmp_path)
    (tmp_path / "_archive.json").write_text('{"topic": "t"}')
    with pytest.raises(ArchiveError, match="is the archive of topic 't' with"):
        bring_up(topic, tmp_path)


def test_two_do_not_work_in_one_directory(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 1)
    with (
        archive_files.opened(tmp_path, topic.name, "*"),
        pytest.raises(ArchiveError, match="another process is at work"),
    ):
        bring_up(topic, tmp_path)
    with pytest.raises(ConfigError, match="nameserver.*known are .*name_server"):
        archive(topic.name, tmp_path, nameserver="x")  # type: ignore[call-arg]


def test_the_commands(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    fill(topic, 5)
    monkeypatch.setenv("NAMESRV_ADDR", topic.broker.name_server)
    where = str(tmp_path / "archive")
    assert main(["archive", topic.name, where]) == 0
    assert capsys.readouterr().out == "archived 5 messages in 1 files, 5 in all\n"
    other = Topic(topic.broker)
    assert main(["replay", where, "--topic", other.name]) == 0
    assert capsys.readouterr().out == "replayed 5 messages\n"
    assert len(other.bodies()) == 5
    assert main(["archive", "absent", str(tmp_path / "b")]) == 2
    assert "topic 'absent' has no route" in capsys.readouterr().err
    missing = str(tmp_path / "secret")
    assert main(["replay", where, "--access-key", "a", "--secret-key-file", missing]) == 2
    assert "--secret-key-file" in capsys.readouterr().err


ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5 * DAY_MS)), max_size=30)


@given(batches=st.lists(ROWS, max_size=4))
@settings(max_examples=40, deadline=None)
def test_days_keep_the_order_of_each_queue(batches: list[list[tuple[int, int]]]) -> None:
    schema = pa.schema(
        [
            ("brokerName", pa.string()),
            ("queueId", pa.int32()),
            ("queueOffset", pa.int64()),
            ("storeTimestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    wanted: dict[int, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with CommitFiles(directory, 1, schema) as commit:
            for rows in batches:
                offsets = []
                for queue_id, _ in rows:
                    wanted[queue_id].append(len(wanted[queue_id]))
                    offsets.append(wanted[queue_id][-1])
                columns = [
                    pa.array(["b"] * len(rows)),
                    pa.array([queue_id for queue_id, _ in rows], pa.int32()),
                    pa.array(offsets, pa.int64()),
                    pa.array([ms * 1000 for _, ms in rows], pa.timestamp("us", tz="UTC")),
                ]
                commit.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        archive_files.publish(directory, 1)
        found: dict[int, list[int]] = defaultdict(list)
        for part in archive_files.parts(directory):
            for _, group in replaying._row_groups(part.path, 0, schema.names):
                pairs = zip(group["queueId"], group["queueOffset"], strict=True)
                for queue_id, offset in pairs:
                    found[queue_id.as_py()].append(offset.as_py())
    assert found == wanted
    assert commit.messages == sum(map(len, batches))
