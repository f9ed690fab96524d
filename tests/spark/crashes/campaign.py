"""Kills at chosen points: a broker that counts what it stores, and a Spark driver that it crashes.

A point is where a count is reached, told on the broker's thread before any answer leaves. So what a
process that is killed there had stored is known, and that it did not learn of it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Dispatcher
from orbitmq.spark.sink.ledger import LEDGER_TOPIC, STAGING_TOPIC
from orbitmq.store.appended import Written, arrivals
from orbitmq.store.consume_queue import UNIT_SIZE
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.record import properties_of
from tests.marked_program import MarkedProgram
from tests.patience import eventually
from tests.spark.crashes.copying import GAVE_UP, Copy, Spec
from tests.spark.crashes.processes import Process, kill, kill_session, of_session, owners

ROOT = Path(__file__).parents[3]
log = logging.getLogger("orbitmq.tests")

# Spark 4.3 can break a session for good when two streams of a Python source that it discovered
# begin at one time: PythonStreamingSourceRunner.init puts four names into func.envVars, which is a
# scala.collection.mutable.Map of all of them (PythonUtils.createPythonFunction), without a lock.
# When both add the same name, the map counts 6 and holds 5, and from then on no task can be made:
# DefaultSerializationProxy.writeObject says "Illegal size 5 of collection, expected 6" each time.
# No kill and nothing of ours has a part in it; a session where it has not happened by the time that
# all streams have begun is safe, as the names are there then.
SESSIONS = 2
"""How many drivers may give up."""
LEASE_MS = 61_000
"""Longer than brokers keep the right to deliver for who has it."""

JVM, DRIVER, PLANNER, WRITER, EXECUTOR = "jvm", "driver", "planner", "writer", "executor"
"""What is killed: the driver's JVM, its Python, the Python processes that plan, those that send, or
an executor of one that sends."""
ENDING = (JVM, DRIVER)

STAGED = "batches that are staged"
DONE = "notes of what is delivered"
"""Counted as topics are."""

_PLANS = {RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_EARLIEST_MSG_STORETIME}
_SENDS = {
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
}


class Crash(NamedTuple):
    """Kill ``victim`` when the broker has stored ``more`` messages of ``topic`` than before."""

    victim: str
    topic: str
    more: int


class Port(NamedTuple):
    """Who asks from a port, and what it asked."""

    connection: Connection
    codes: set[int]


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
        environment = {
            "TMPDIR": str(home), "PYTHONPATH": _path(), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": _spark_home(home / "spark"),
        }  # fmt: skip
        super().__init__("copying", command, home, environment=environment, own_session=True)

    def processes(self) -> dict[int, Process]:
        """What lives of it."""
        return of_session(self.process.pid)

    def close(self, timeout: float = 0) -> None:
        """Kills all of it: nothing that it does at its end is of use."""
        kill_session(self.process.pid)
        super().close()

    def find(self, victim: str, ports: dict[int, Port]) -> list[int]:
        """The pids of a victim; ``ports`` says what was asked from which port."""
        if victim == DRIVER:
            return [self.process.pid]
        living = self.processes()
        javas = [one for one in living.values() if one.is_java]
        if victim == JVM:
            return [one.pid for one in javas if not one.is_executor]
        codes = _PLANS if victim == PLANNER else _SENDS
        asking = owners([number for number, port in ports.items() if port.codes & codes], living)
        if victim != EXECUTOR:
            return [*asking]
        executors = [_executor(living, pid) for pid in asking]
        return [pid for pid in executors if pid is not None][:1]


def _executor(living: dict[int, Process], pid: int) -> int | None:
    """The executor that a task's Python process belongs to; None for one beside the driver."""
    one = living.get(pid)
    while one is not None and not one.is_java:
        one = living.get(one.parent)
    return one.pid if one is not None and one.is_executor else None


class Campaign:
    """A broker and the copies that are made on it, through crashes.

    ``started`` counts drivers, ``gave_up`` those that ended by themselves, ``failures`` are the
    errors of queries that were started again, and ``progress`` says of each copy, at the last
    crash, the last batch that Spark had planned and the last it had committed; -1 is none.
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
        self.gave_up = 0
        self.progress: dict[str, tuple[int, int]] = {}
        self._home = home
        self._ports: dict[int, Port] = {}
        self._crashes: list[Crash] = []
        self._since: Counter[str] = Counter()
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
            broker.call(lambda node: self._watch(node.broker.store))
            try:
                yield
            finally:
                self._end()

    def crash(self, *crashes: Crash) -> int:
        """Go on until one after the other has happened; how many did before all was copied.

        The last may end the driver, those before it may not.
        """
        self._crashes = [*crashes]
        self._since = self.stored.copy()
        self._go_on(lambda driver: not self._crashes or bool(driver.values("done")))
        if self._error is not None:
            raise self._error
        left, self._crashes = len(self._crashes), []
        driver = self._running_driver()
        if not left and crashes[-1].victim in ENDING:
            eventually(lambda: not driver.processes(), "the end of all", driver.processes)
            self._end()
        return len(crashes) - left

    def finish(self) -> None:
        """Go on until all is copied."""
        self._go_on(lambda driver: bool(driver.values("done")))
        self._end()

    def _go_on(self, reached: Callable[[Driver], bool]) -> None:
        """Run a driver until it has ``reached`` what is awaited.

        Spark's session can be broken for good by what was killed: then its supervisor's turn comes.
        """

        def is_reached() -> bool:
            driver = self._running_driver()
            if reached(driver):
                return True
            code = driver.process.poll()
            if code is not None:
                driver.close()
                if reached(driver):
                    return True
                gave_up = code == GAVE_UP and self.gave_up < SESSIONS
                assert gave_up, f"{code}, {driver.values('failed')}, {driver.tail()}"
                self._end()
                self.gave_up += 1
                log.warning("a driver gave up: %s", self.failures)
            return False

        eventually(is_reached, "what was awaited", lambda: (self._crashes, self.stored))

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
        """Keep what was asked from which port."""
        dispatch, ports = Dispatcher.dispatch, self._ports

        def note(self: Dispatcher, command: RemotingCommand, connection: Connection) -> None:
            number = int(connection.peer.rpartition(":")[2])
            port = ports.get(number)
            if port is None or port.connection is not connection:
                port = ports[number] = Port(connection, set())
            port.codes.add(command.code)
            dispatch(self, command, connection)

        patch.setattr(Dispatcher, "dispatch", note)

    def _watch(self, store: MessageStore) -> None:
        self._store = store
        store.add_write_listener(self._written)

    def _written(self, written: Written) -> None:
        """Count; on the broker's thread, before it answers."""
        for queue, runs in written.by_queue.items():
            self.stored[queue.topic] += sum(len(run.units) for run in runs) // UNIT_SIZE
            if queue.topic == STAGING_TOPIC:
                self.stored[STAGED] += sum(len(run.units) for run in runs) // UNIT_SIZE
            elif queue.topic == LEDGER_TOPIC:
                records = [self._store.record_at(place) for *_, place in arrivals(runs)]
                notes = [properties_of(record) for record in records if record is not None]
                self.stored[DONE] += sum(b":done" in note for note in notes)
        try:
            self._crash_now()
        except Exception as error:  # noqa: BLE001 - raised where the crash is awaited
            self._error, self._crashes = error, []

    def _crash_now(self) -> None:
        driver = self._driver
        if not self._crashes or driver is None:
            return
        crash = self._crashes[0]
        if self.stored[crash.topic] - self._since[crash.topic] < crash.more:
            return
        pids = driver.find(crash.victim, self._ports)
        if pids:
            self.progress = {
                copy["name"]: (_last(copy, "offsets"), _last(copy, "commits"))
                for copy in self.copies
            }
            # Who had the right to deliver has it no longer.
            self.clock.leap(LEASE_MS)
            self._since = self.stored.copy()
            del self._crashes[0]
            kill(pids)


def _last(copy: Copy, log: str) -> int:
    """The number of the last batch in one of Spark's logs of a query."""
    names = [path.name for path in (Path(copy["checkpoint"]) / log).glob("*")]
    return max([int(name) for name in names if name.isdecimal()], default=-1)


def _spark_home(directory: Path) -> str:
    """Spark as it is installed; its workers write beside it."""
    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (directory / entry.name).symlink_to(entry)
    return str(directory)


def _path() -> str:
    """What a program finds its modules by: this process's own, and the tests."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
