"""What holds between processes: one at a time, and nothing acknowledged lost by a kill."""

from __future__ import annotations

import fcntl
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import StoreLockedError
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from tests.store.support import TOPIC, bodies, log_records, messages, opened, put, small

QUEUES = 3
KILLED = StoreConfig(
    mapped_file_size=64 * 1024,
    consume_queue_units=500,
    queue_flush_interval_ms=3,
    mark_interval_ms=10,
    flush_interval_ms=5,
)

WRITER = """
import sys
from pathlib import Path
from orbitmq.store.message_store import MessageStore
from tests.store.support import draft
from tests.store.test_processes import KILLED, QUEUES

store = MessageStore.open(Path(sys.argv[1]), KILLED)
next_number = [store.max_offset("TopicTest", queue_id) for queue_id in range(QUEUES)]
print("ready", flush=True)
while True:
    for number in range(37):
        queue_id = number % QUEUES
        body = b"%d " % next_number[queue_id] + b"x" * (number * 31 % 400)
        place = store.append(draft(body, queue_id=queue_id, tags="T"))
        assert place.queue_offset == next_number[queue_id]
        next_number[queue_id] += 1
    store.write()
    print(*next_number, flush=True)
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": "src:."},
    )


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    ticks = random.Random(7)
    acknowledged = [0] * QUEUES
    for _ in range(6):
        with python(WRITER, str(tmp_path)) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            lines = [writer.stdout.readline() for _ in range(ticks.randrange(1, 60))]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.readlines()  # acknowledged before it died
            last = [line for line in lines if line.endswith("\n")][-1]
            acknowledged = [int(number) for number in last.split()]
        assert writer.returncode == -signal.SIGKILL
        with opened(tmp_path, KILLED) as store:
            for queue_id in range(QUEUES):
                found = messages(store, TOPIC, queue_id)
                assert len(found) >= acknowledged[queue_id]
                assert [int(view.body.split()[0]) for view in found] == list(range(len(found)))
            stored = sum(len(messages(store, TOPIC, queue_id)) for queue_id in range(QUEUES))
        assert len(log_records(tmp_path, 64 * 1024)[0]) == stored
    assert min(acknowledged) > 0


def test_a_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"x")
        for _ in range(2):
            with pytest.raises(StoreLockedError, match="give this one a directory") as raised:
                MessageStore.open(tmp_path, small())
            assert str(tmp_path) in str(raised.value)
        code = """
import sys
from pathlib import Path
from orbitmq.errors import StoreLockedError
from orbitmq.store.message_store import MessageStore
try:
    MessageStore.open(Path(sys.argv[1]))
except StoreLockedError:
    print("locked")
"""
        with python(code, str(tmp_path)) as other:
            assert other.communicate()[0] == "locked\n"
        assert bodies(store) == [b"x"]
    with opened(tmp_path) as store:
        assert bodies(store) == [b"x"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs locks of open file descriptions")
def test_apaches_lock_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's FileChannel.tryLock(0, 1, false) is a POSIX lock on the first byte."""
    monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)  # not all Pythons name it
    code = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("held", flush=True)
    sys.stdin.read()
"""
    with python(code, str(tmp_path / "lock")) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError):
            MessageStore.open(tmp_path, small())
    with opened(tmp_path):
        probe = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("kept out")
"""
        with python(probe, str(tmp_path / "lock")) as apache:
            assert apache.communicate()[0] == "kept out\n"
