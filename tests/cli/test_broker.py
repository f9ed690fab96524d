"""``orbitmq broker`` as a user runs it: in a process of its own."""

from __future__ import annotations

import asyncio
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq import EmbeddedBroker
from orbitmq.net.busy_poll import BusyPoll
from orbitmq.net.connection import Connection
from tests.broker.remote import Client, bodies
from tests.waiting import until

COMMAND = [sys.executable, "-m", "orbitmq.cli", "broker"]
FREE_PORTS = ["--port", "0", "--name-server-port", "0"]
READY = re.compile(r"ready name-server=(\S+:\d+) broker=(\S+:\d+) store=(/\S+)\n")


class Started(NamedTuple):
    process: subprocess.Popen[str]
    name_server: str
    address: str
    store: Path


@contextmanager
def started(*options: str, before: str = "") -> Iterator[Started]:
    """A broker that runs; ``before`` is a shell command for its process to begin with."""
    command = [*COMMAND, *FREE_PORTS, *options]
    process = subprocess.Popen(
        ["sh", "-c", f"{before}; exec {shlex.join(command)}"] if before else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        match = READY.fullmatch(process.stdout.readline())
        assert match is not None
        yield Started(process, match[1], match[2], Path(match[3]))
    finally:
        process.kill()
        process.communicate()


def stopped(broker: Started, number: int) -> tuple[int, str, str]:
    broker.process.send_signal(number)
    rest, errors = broker.process.communicate(timeout=20)
    return broker.process.returncode, rest, errors


def exchange(address: str, body: bytes = b"") -> list[bytes]:
    async def main() -> list[bytes]:
        host, port = address.split(":")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(lambda *_: None), host, int(port)
        )
        client = Client(connection, [])
        if body:
            await client.send("T", body)
        answer = await client.pull("T")
        client.close()
        return bodies(answer)

    return asyncio.run(main())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_stops_cleanly(number: int) -> None:
    with started() as broker:
        assert exchange(broker.address, b"hello") == [b"hello"]
        assert broker.store.is_dir()
        assert stopped(broker, number) == (0, "", "")
        assert not broker.store.exists()


def test_messages_survive_a_kill(tmp_path: Path) -> None:
    with started("--store", str(tmp_path / "store"), "--flush", "sync") as broker:
        assert broker.store == tmp_path / "store"
        exchange(broker.address, b"one")
        broker.process.kill()
        broker.process.wait()
    with started("--store", str(tmp_path / "store")) as broker:
        assert exchange(broker.address) == [b"one"]
        assert stopped(broker, signal.SIGTERM)[0] == 0


def test_a_second_broker_joins_the_first_ones_name_server() -> None:
    with (
        started() as first,
        started("--name-server", first.name_server, "--broker-name", "broker-b") as second,
    ):
        assert second.name_server == first.name_server
        assert exchange(second.address, b"hello") == [b"hello"]
        assert stopped(second, signal.SIGTERM) == (0, "", "")


@pytest.mark.parametrize("options", [(), ("--workers", "1")])
def test_a_process_of_its_own_polls_busily(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from pathlib import Path\n"
        "from orbitmq.net.busy_poll import BusyPoll\n"
        f"BusyPoll.turn_ended = lambda _: Path({str(tmp_path / 'polled')!r}).touch()\n"
    )
    with started(*options, before=f"export PYTHONPATH={tmp_path}:$PYTHONPATH") as broker:
        for count in range(1, 6):  # what else is due may come between two requests
            assert len(exchange(broker.address, b"hello")) == count
    assert (tmp_path / "polled").exists()


def test_an_embedded_broker_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    polled: list[object] = []
    monkeypatch.setattr(BusyPoll, "turn_ended", polled.append)
    with EmbeddedBroker() as broker:
        assert exchange(broker.address, b"hello") == [b"hello"]
    assert not polled


def failure(*options: str) -> str:
    """The one line that the command ends with."""
    done = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    assert "unrecognized arguments: --queues 5; see orbitmq broker --help" in failure(
        "--queues", "5"
    )
    assert "argument --port: invalid int value: 'many'" in failure("--port", "many")
    assert "argument --flush: invalid choice: 'never'" in failure("--flush", "never")
    assert "port=70000" in failure("--port", "70000")
    assert "broker_name='a b'" in failure("--broker-name", "a b")
    assert "name_server='elsewhere'" in failure("--name-server", "elsewhere")
    file = tmp_path / "file"
    file.touch()
    assert str(file) in failure(*FREE_PORTS, "--store", str(file))


def test_a_port_and_a_store_in_use_are_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        line = failure("--port", "0", "--name-server-port", port)
        assert re.search(rf"another program listens on 127.0.0.1:{port}.*choose another port", line)
    with started("--store", str(tmp_path)):
        line = failure(*FREE_PORTS, "--store", str(tmp_path))
        assert re.search(rf"{tmp_path} is used by another broker.*of its own", line)


def test_clients_are_told_the_advertised_host() -> None:
    with started("--advertised-host", "localhost") as broker:
        assert broker.name_server.startswith("localhost:")
        assert broker.address.startswith("localhost:")
        assert exchange(broker.address, b"hello") == [b"hello"]


def test_the_sizes_of_a_store_are_options(tmp_path: Path) -> None:
    sizes = ["--mapped-file-size", "65536", "--consume-queue-units", "50"]
    with started("--store", str(tmp_path), *sizes, "--max-message-size", "10") as broker:
        exchange(broker.address, b"x" * 10)
        assert exchange(broker.address, b"x" * 11) == [b"x" * 10]
        assert stopped(broker, signal.SIGTERM)[0] == 0
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_size == 65_536
    assert (tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)).stat().st_size == 1_000
    line = failure(*FREE_PORTS, "--store", str(tmp_path))
    assert "has 65536 bytes, but mapped_file_size makes 1073741824" in line
    assert "mapped_file_size=5" in failure("--mapped-file-size", "5")


def test_a_damaged_log_is_cut_only_when_told_so(tmp_path: Path) -> None:
    with started("--store", str(tmp_path)) as broker:
        for body in (b"one", b"two", b"three"):
            exchange(broker.address, body)
        assert stopped(broker, signal.SIGTERM)[0] == 0
    log = tmp_path / "commitlog" / ("0" * 20)
    with log.open("r+b") as file:
        file.seek(file.read(1 << 16).index(b"two"))
        file.write(b"\xff")
    (tmp_path / "checkpoint").unlink()
    with started("--store", str(tmp_path)) as broker:
        assert exchange(broker.address) == [b"one"]  # two is passed over by the next pull
        _, _, errors = stopped(broker, signal.SIGTERM)
        assert "is damaged at physical offset" in errors
    (tmp_path / "checkpoint").unlink()
    with started("--store", str(tmp_path), "--cut-damaged-log") as broker:
        assert exchange(broker.address) == [b"one"]
        _, _, errors = stopped(broker, signal.SIGTERM)
        assert "all that follows is given up" in errors


def test_a_close_that_fails_is_no_success(tmp_path: Path) -> None:
    with started("--store", str(tmp_path)) as broker:
        exchange(broker.address, b"x")
        (tmp_path / "checkpoint").unlink(missing_ok=True)
        (tmp_path / "checkpoint").mkdir()
        code, _, errors = stopped(broker, signal.SIGTERM)
        assert code == 2
        assert "orbitmq: cannot close the store" in errors


def test_help_names_every_option() -> None:
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    options = ["host", "advertised-host", "port", "name-server-port", "store", "flush"]
    options += ["broker-name", "cluster", "mapped-file-size", "consume-queue-units"]
    for option in [*options, "max-message-size", "cut-damaged-log"]:
        assert f"--{option}" in done.stdout


def test_it_takes_all_the_descriptors_it_may_have() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with started(before="ulimit -Sn 64") as broker:
        limits = Path(f"/proc/{broker.process.pid}/limits")
        if not limits.exists():
            pytest.skip("this system does not tell of another process's limits")
        (files,) = (line for line in limits.read_text().splitlines() if "open files" in line)
        assert files.split()[3:5] == [str(hard), str(hard)]


def test_silent_connections_leave_it_what_it_needs(tmp_path: Path) -> None:
    topics = [f"T{number}" for number in range(60)]

    def is_saved(topic: str) -> bool:
        """Whether it is in the table, or in its journal."""
        for file in (tmp_path / "config").glob("topics.json*"):
            with suppress(FileNotFoundError):  # replaced meanwhile
                if topic.encode() in file.read_bytes():
                    return True
        return False

    async def main(address: str) -> None:
        host, port = address.split(":")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(lambda *_: None), host, int(port)
        )
        client = Client(connection, [])
        for topic in topics[:-1]:
            await client.send(topic, topic.encode())
        silent = [socket.create_connection((host, int(port))) for _ in range(300)]
        queue = tmp_path / "consumequeue" / topics[-2] / "0"
        await until(queue.exists, "the queues' files")
        await client.send(topics[-1], topics[-1].encode())
        assert [bodies(await client.pull(topic)) for topic in topics] == [
            [topic.encode()] for topic in topics
        ]
        await until(lambda: is_saved(topics[-1]), "the topic saved")
        client.close()
        for each in silent:
            each.close()

    with started("--store", str(tmp_path), before="ulimit -n 256") as broker:
        asyncio.run(main(broker.address))
        code, _, errors = stopped(broker, signal.SIGTERM)
        assert code == 0
        (line,) = errors.splitlines()
        assert "is refused: this process may have 256 files and connections open" in line
