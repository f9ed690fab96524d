"""Kills at chosen points: a broker that counts what it stores, and a Spark driver that it crashes.

A point is where a count is reached, told on the broker's thread before any answer leaves. So what a
process that is killed there had stored is known, and that it did not learn of it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.codes import RequestCode
from orbitmq.names import HALF_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Dispatcher
from orbitmq.spark.ledger import LEDGER_TOPIC
from orbitmq.store.appended import Written
from orbitmq.store.consume_queue import UNIT_SIZE
from orbitmq.wire.command import RemotingCommand
from tests.marked_program import MarkedProgram
from tests.patience import eventually
from tests.spark.crashes.copying import Copy, Spec
from tests.spark.crashes.processes import Process, kill, kill_session, of_session, owners

ROOT = Path(__file__).parents[3]
LEASE_MS = 61_000
"""Longer than brokers keep the right to commit for who has it."""

JVM, DRIVER, PLANNER, WRITER, EXECUTOR = "jvm", "driver", "planner", "writer", "executor"
"""What is killed: the driver's JVM, its Python, the Python process that plans, one that sends, or
the executor of one that sends."""
ENDING = (JVM, DRIVER)

HALVES = HALF_TOPIC
DONE = "notes of what is committed"
"""Counted as topics are."""

_SENDS = {
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
}


class Crash(NamedTuple):
    """Kill ``victim`` when the broker has stored ``count`` messages of ``topic`` in all."""

    victim: str
    topic: str
    count: int


class LeapingClock:
    """The machine's clock, which a test may move forward."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self._ahead_ms

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self._ahead_ms / 1000

    def leap(self, ms: int) -> None:
        self._ahead_ms += ms


class Driver(MarkedProgram):
    """The program `copying`, and all that it started."""

    def __init__(self, spec: Spec) -> None:
        command = [sys.executable, "-m", "tests.spark.crashes.copying", json.dumps(spec)]
        home = Path(spec["home"])
        home.mkdir(parents=True, exist_ok=True)
        # All that a killed program leaves goes with the test's directory.
        environment = {"TMPDIR": str(home), "PYTHONPATH": _path(), "SPARK_LOCAL_IP": "127.0.0.1"}
        super().__init__("copying", command, home, environment=environment, own_session=True)

    def processes(self) -> dict[int, Process]:
        """What lives of it."""
        return of_session(self.process.pid)

    def close(self, timeout: float = 0) -> None:
        """Kills all of it: nothing that it does at its end is of use."""
        kill_session(self.process.pid)
        super().close()

    def find(self, victim: str, ports: dict[int, int]) -> list[int]:
        """The pids of a victim; ``ports`` says what was asked last from which port."""
        if victim == DRIVER:
            return [self.process.pid]
        living = self.processes()
        javas = [one for one in living.values() if one.is_java]
        if victim == JVM:
            return [one.pid for one in javas if not one.is_executor]
        planning = {RequestCode.GET_TOPIC_STATS_INFO}
        codes = planning if victim == PLANNER else _SENDS
        asking = owners([port for port, code in ports.items() if code in codes], living)
        found = next(asking, None)
        if victim == EXECUTOR:
            while found is not None and not living[found].is_executor:
                parent = living[found].parent
                found = parent if parent in living else None
        return [] if found is None else [found]


class Campaign:
    """A broker and the copies that are made on it, through crashes.

    ``started`` counts drivers, ``failures`` are the errors of queries that were started again, and
    ``progress`` says of each copy, at the last crash, the last batch that Spark had planned and
    the last it had committed; -1 is none.
    """

    def __init__(self, patch: pytest.MonkeyPatch, home: Path) -> None:
        self.clock = LeapingClock()
        # Nobody answers for half messages here, so asking would only store them again.
        self.broker = EmbeddedBroker(clock=self.clock, transaction_check_interval_ms=10**9)
        self.stored: Counter[str] = Counter()
        self.copies: list[Copy] = []
        self.master = "local[2,4]"
        self.failures: list[str] = []
        self.started = 0
        self.progress: dict[str, tuple[int, int]] = {}
        self._home = home
        self._ports: dict[int, int] = {}
        self._crash: Crash | None = None
        self._crashed = threading.Event()
        self._error: BaseException | None = None
        self._driver: Driver | None = None
        self._note_requests(patch)

    def add(self, name: str, source: str, sink: str, guarantee: str, **options: str) -> Copy:
        """One more copy, of the driver that is started next."""
        copy = Copy(
            name=name, name_server=self.broker.name_server, source=source, sink=sink,
            guarantee=guarantee, checkpoint=str(self._home / "checkpoints" / name),
            options=options,
        )  # fmt: skip
        self.copies.append(copy)
        return copy

    @contextmanager
    def running(self) -> Iterator[None]:
        """The broker runs in the block; after it nothing does."""
        with self.broker as broker:
            broker.call(lambda node: node.broker.store.add_write_listener(self._written))
            try:
                yield
            finally:
                self._end()

    def crash(self, victim: str, topic: str, count: int) -> None:
        """Go on until the point is reached and the victim killed."""
        assert self.stored[topic] < count, f"{topic} has {self.stored[topic]} messages already"
        self._crashed.clear()
        self._crash = Crash(victim, topic, count)
        driver = self._running_driver()

        def crashed() -> bool:
            if self._crashed.is_set():
                return True
            driver.check_running()
            return False

        eventually(crashed, f"{self._crash}", lambda: (self.stored, driver.tail()))
        if self._error is not None:
            raise self._error
        if victim in ENDING:
            eventually(lambda: not driver.processes(), "the end of all", driver.processes)
            self._end()
        self.clock.leap(LEASE_MS)

    def finish(self) -> None:
        """Go on until all is copied."""
        driver = self._running_driver()
        driver.wait_for("done")
        self._end()

    def _running_driver(self) -> Driver:
        if self._driver is None:
            home = str(self._home / f"driver-{self.started}")
            driver = Driver(Spec(master=self.master, home=home, copies=self.copies))
            self._driver = driver.__enter__()
            self.started += 1
        return self._driver

    def _end(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()
            self.failures += [f"{name}: {text}" for name, text in driver.values("failed")]

    def _note_requests(self, patch: pytest.MonkeyPatch) -> None:
        """Keep what was asked last from which port."""
        dispatch, ports = Dispatcher.dispatch, self._ports

        def note(self: Dispatcher, command: RemotingCommand, connection: Connection) -> None:
            ports[int(connection.peer.rpartition(":")[2])] = command.code
            dispatch(self, command, connection)

        patch.setattr(Dispatcher, "dispatch", note)

    def _written(self, written: Written) -> None:
        """Count; on the broker's thread, before it answers."""
        for queue, runs in written.by_queue.items():
            self.stored[queue.topic] += sum(len(run.units) for run in runs) // UNIT_SIZE
            if queue.topic == LEDGER_TOPIC:
                notes = [properties for run in runs for properties in run.properties]
                self.stored[DONE] += sum(b":done" in bytes(note) for note in notes)
        try:
            self._crash_now()
        except BaseException as error:
            self._error, self._crash = error, None
            self._crashed.set()

    def _crash_now(self) -> None:
        crash, driver = self._crash, self._driver
        if crash is None or driver is None or self.stored[crash.topic] < crash.count:
            return
        pids = driver.find(crash.victim, self._ports)
        if pids:
            self._crash = None
            self.progress = {
                copy["name"]: (_last(copy, "offsets"), _last(copy, "commits"))
                for copy in self.copies
            }
            self._crashed.set()
            kill(pids)


def _last(copy: Copy, log: str) -> int:
    """The number of the last batch in one of Spark's logs of a query."""
    names = [path.name for path in (Path(copy["checkpoint"]) / log).glob("*")]
    return max([int(name) for name in names if name.isdecimal()], default=-1)


def _path() -> str:
    """What a program finds its modules by: this process's own, and the tests."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
