"""Our name server and brokers as users run them, handled as Apache's are (cluster.py)."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeAlias

from tests.apache import remoting
from tests.apache.cluster import ApacheCluster
from tests.patience import PATIENCE_SECONDS


class OrbitBroker:
    """Our broker in a process of its own; without `name_server` with a name server beside it."""

    def __init__(self, name: str, store: Path, name_server: str | None = None) -> None:
        self.name = name
        self.name_server = name_server or ""
        self.address = ""
        self._options = ["--broker-name", name, "--store", str(store)]
        self._options += ["--name-server", name_server] if name_server else []
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the broker and waits until it serves; after its end again, where it was."""
        ports = [address.rpartition(":")[2] or "0" for address in (self.address, self.name_server)]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "orbitmq.cli", "broker", *self._options),
                *("--port", ports[0], "--name-server-port", ports[1]),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = self._process.stdout.readline().split() if self._process.stdout else []
        if ready[:1] != ["ready"]:
            self.kill()
            raise AssertionError(f"{self.name} did not start: {ready}")
        addresses = dict(word.split("=", 1) for word in ready[1:])
        self.name_server, self.address = addresses["name-server"], addresses["broker"]

    def stop(self) -> None:
        """Ends the broker in order; nothing when it has ended."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        finally:
            self.kill()
        assert code == 0, f"{self.name} ended with exit code {code}"

    def kill(self) -> None:
        """Ends the broker as a crash would."""
        with self._process:
            self._process.kill()


class OrbitCluster:
    """Our name server and two brokers, started by the command line; see ApacheCluster."""

    def __init__(self) -> None:
        self.brokers: list[OrbitBroker] = []
        self._topics = itertools.count()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            directory = Path(opened.enter_context(TemporaryDirectory(prefix="orbitmq-orbit-")))
            first = opened.enter_context(OrbitBroker("broker-a", directory / "a"))
            second = OrbitBroker("broker-b", directory / "b", first.name_server)
            self.brokers = [first, opened.enter_context(second)]
            self._open = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    @property
    def name_server(self) -> str:
        """host:port, as clients want it."""
        return self.brokers[0].name_server

    def new_topic(self, name: str = "topic", queues: int = 8, *, brokers: int = 1) -> str:
        """Creates a topic with a name of its own, beginning with `name`, and returns it.

        It has `queues` queues at each of the first `brokers` brokers.
        """
        topic = f"{name}-{next(self._topics)}"
        for broker in self.brokers[:brokers]:
            remoting.create_topic(self.name_server, broker.address, topic, queues)
        return topic


Cluster: TypeAlias = OrbitCluster | ApacheCluster
