"""The brokers under measurement: ours as a user starts it, and Apache's from Maven Central."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.generator import OK, Outcome, Plan, call, create_topic, send_frame
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import NEWEST, ApacheMissingError, ApacheRelease, find_release

GENEROUS_PULLS = {
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferBytesOnMessageInMemory": 16 << 20,
}
"""Apache caps a pull at 32 messages; this lifts it so that both are asked the same."""


@dataclass
class RunningBroker:
    """A broker that answers: where it is, its processes, and how soon it took a message."""

    name_server: str
    address: str
    pids: list[int]
    first_message_seconds: float

    def anonymous_memory(self) -> int:
        """RssAnon of all its processes, in bytes: mapped log files do not count."""
        return sum(_status_bytes(pid, "RssAnon") for pid in self.pids)


@contextmanager
def orbitmq_broker(flush: str, store: Path | None = None) -> Iterator[RunningBroker]:
    """``orbitmq broker`` on free ports; without a store with a temporary one."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "orbitmq.cli", "broker", "--port", "0"]
    command += ["--store", str(store)] if store else []
    process = subprocess.Popen(
        [*command, "--name-server-port", "0", "--flush", flush], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        send_first_message(words["broker"])
        took = time.perf_counter() - began
        yield RunningBroker(words["name-server"], words["broker"], [process.pid], took)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


@contextmanager
def apache_broker(
    release: ApacheRelease, flush: str, store: Path | None = None
) -> Iterator[RunningBroker]:
    """Apache's name server and broker, as a user of its distribution has them."""
    began = time.perf_counter()
    settings = {**GENEROUS_PULLS, "flushDiskType": f"{flush.upper()}_FLUSH"}
    with ApacheCluster(release, settings, store=store) as cluster:
        address = cluster.broker.address
        send_first_message(address)
        took = time.perf_counter() - began
        yield RunningBroker(cluster.name_server, address, _java_children(os.getpid()), took)


def send_first_message(address: str) -> None:
    """Make a topic and send one message to it."""
    create_topic(address, "bench-first")
    response = call(address, send_frame("bench-first", 0))
    if OK not in response:
        raise RuntimeError(f"{address} refuses the first message: {response!r}")


def fill(broker: RunningBroker, topic: str, messages: int, body: int = 100) -> None:
    """A topic with so many messages, whose bodies have so many bytes."""
    generate(Plan("fill", broker.address, topic, messages, body=body))


def generate(plan: Plan) -> Outcome:
    """Run the load generator in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.generator", msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return msgspec.json.decode(output, type=Outcome)


def find_apache() -> ApacheRelease | None:
    """Apache's newest release, or None where Java or Maven is missing."""
    try:
        return find_release(NEWEST)
    except ApacheMissingError as error:
        print(f"Without Apache's broker, so without ratios: {error}", file=sys.stderr)
        return None


def _java_children(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if "java" in Path(f"/proc/{pid}/comm").read_text()]


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} has no {name}")
