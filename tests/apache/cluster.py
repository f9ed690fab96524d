"""Apache RocketMQ's own name server and brokers, on free ports, in a temporary directory.

Apache's programs are what OrbitMQ must get along with, so they run as their makers start them:
the main classes, a properties file each, small heaps (reference: docs of the Apache distribution,
`NamesrvStartup`, `BrokerStartup`).
"""

from __future__ import annotations

import itertools
import logging
import socket
import tempfile
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from tests.apache import remoting
from tests.apache.java_program import QUICK_JVM, JavaProgram, options
from tests.apache.ports import held_port
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.apache.jars import ApacheRelease

LOG = logging.getLogger("orbitmq.tests.apache")
HOST = "127.0.0.1"
NAME_SERVER_HEAP = ("-Xms128m", "-Xmx128m")
BROKER_HEAP = ("-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")
# 4.9 logs only what a file in its home directory tells it to; 5.x brings its own in the jar.
LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/logs/rocketmqlogs/%s.log</file>
    <encoder><pattern>%%d %%-5p %%t - %%m%%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


class _ApacheServer(ABC):
    """A server of Apache's, from its start to its end.

    Its ports are its own from when it is entered, so that it can start there again.
    """

    neighbours: ClassVar[tuple[int, ...]] = ()
    """Where else it listens: the distances from its port."""

    program: JavaProgram
    port: int

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.port = opened.enter_context(held_port(*self.neighbours))
            self.start()
            # A broker takes twelve seconds to end in order; nothing here is worth them.
            opened.callback(self.kill)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    @property
    def address(self) -> str:
        """host:port."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Starts the server and waits until it serves; after its end again, where it was."""
        self.program = self._new_program()
        self.program.__enter__()
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ends the server in order; a broker's store is then complete on disk."""
        self.program.stop()
        self.program.close()

    def kill(self) -> None:
        """Ends the server as a crash would."""
        self.program.kill()

    @abstractmethod
    def _new_program(self) -> JavaProgram:
        """The program that it is, not started."""

    def __str__(self) -> str:
        return f"{type(self).__name__} at {self.address}"

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            self.program.check_running()
            return self._is_ready()

        eventually(ready, f"the start of {self}", self.program.tail)


class ApacheNameServer(_ApacheServer):
    """Apache's name server."""

    def __init__(
        self, release: ApacheRelease, directory: Path, jvm: Sequence[str] = QUICK_JVM
    ) -> None:
        self._release = release
        self._jvm = (*NAME_SERVER_HEAP, *jvm)
        self._home = directory / "name-server"

    def _new_program(self) -> JavaProgram:
        settings = {
            "listenPort": self.port,
            "bindAddress": HOST,
            "kvConfigPath": self._home / "kvConfig.json",
            "configStorePath": self._home / "name-server.properties",
        }
        main = "namesrv.NamesrvStartup"
        return _server(self._release, main, self._home, settings, self._jvm)


class ApacheBroker(_ApacheServer):
    """Apache's broker, registered at a name server (Apache's or ours) once entered.

    The VIP channel listens on the port two below its own, replication on the one above.

    Args:
        release: which version.
        name_server: host:port of the name server to register at.
        directory: where its home directory goes.
        store: its store directory, new or with a store in it; one in its home by default.
        settings: broker.conf's lines, over the harness's own.
        name: the broker's name.
        jvm: options of the JVM, but for its heap.
    """

    neighbours = (-2, 1)

    def __init__(
        self,
        release: ApacheRelease,
        name_server: str,
        directory: Path,
        *,
        store: Path | None = None,
        settings: Mapping[str, object] | None = None,
        name: str = "broker-a",
        jvm: Sequence[str] = QUICK_JVM,
    ) -> None:
        self.name_server = name_server
        self.name = name
        self._jvm = (*BROKER_HEAP, *jvm)
        self._release = release
        self._home = directory / name
        self.store = store or self._home / "store"
        self._lines: dict[str, object] = {
            "brokerName": name,
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "bindAddress": HOST,
            "namesrvAddr": name_server,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": 64 * 1024 * 1024,
            "enablePropertyFilter": True,
            # Its first registration fails where it is not connected yet: then the next one, soon.
            "registerNameServerPeriod": 10_000,
            # A busy test machine is no reason to refuse a message.
            "brokerFastFailureEnable": False,
            "diskMaxUsedSpaceRatio": 95,
        }
        self._lines |= settings or {}

    def _new_program(self) -> JavaProgram:
        main = "broker.BrokerStartup"
        lines = self._lines | {"listenPort": self.port}
        return _server(self._release, main, self._home, lines, self._jvm)

    def _is_ready(self) -> bool:
        try:
            return remoting.knows_broker(self.name_server, self.address)
        except OSError as failure:
            LOG.warning("name server %s, asked about the broker: %s", self.name_server, failure)
            return False


class ApacheCluster:
    """A name server and brokers of Apache's, ready when entered, gone when left.

    Args:
        release: which version of Apache RocketMQ.
        settings: lines of broker.conf to add or change.
        store: a store directory for the first broker to use and leave there, instead of a temporary
            one. What must be complete in it needs `broker.stop()`; leaving the cluster ends the
            broker as a crash.
        brokers: how many; they are called broker-a, broker-b and so on.
        jvm: options of their JVMs, but for the heaps; by default what suits a short life.
    """

    def __init__(
        self,
        release: ApacheRelease,
        settings: Mapping[str, object] | None = None,
        *,
        store: Path | None = None,
        brokers: int = 1,
        jvm: Sequence[str] = QUICK_JVM,
    ) -> None:
        self.release = release
        self.brokers: list[ApacheBroker] = []
        self._settings = settings
        self._store = store
        self._count = brokers
        self._jvm = jvm
        self._topics = itertools.count()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            temporary = opened.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-apache-"))
            directory = Path(temporary)
            self._server = opened.enter_context(
                ApacheNameServer(self.release, directory, self._jvm)
            )
            self.brokers = [
                ApacheBroker(
                    self.release,
                    self._server.address,
                    directory,
                    store=self._store if place == 0 else None,
                    settings=self._settings,
                    name=f"broker-{letter}",
                    jvm=self._jvm,
                )
                for place, letter in enumerate("abcdefgh"[: self._count])
            ]
            with ThreadPoolExecutor(self._count) as starting:
                for started in [
                    starting.submit(opened.enter_context, broker) for broker in self.brokers
                ]:
                    started.result()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    @property
    def name_server(self) -> str:
        """host:port, as clients want it."""
        return self._server.address

    @property
    def broker(self) -> ApacheBroker:
        """The first broker."""
        return self.brokers[0]

    def new_topic(self, name: str = "topic", queues: int = 8, *, brokers: int = 1) -> str:
        """Creates a topic with a name of its own, beginning with `name`, and returns it.

        It has `queues` queues at each of the first `brokers` brokers.
        """
        topic = f"{name}-{next(self._topics)}"
        for broker in self.brokers[:brokers]:
            remoting.create_topic(self.name_server, broker.address, topic, queues)
        return topic


def _server(
    release: ApacheRelease,
    main: str,
    home: Path,
    settings: Mapping[str, object],
    jvm: Sequence[str],
) -> JavaProgram:
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "server.conf").write_text("\n".join(options(settings)))
    if release.version.startswith("4."):
        for name in ("namesrv", "broker", "tools"):
            (conf / f"logback_{name}.xml").write_text(LOGBACK % name)
    return JavaProgram(
        release,
        "Hosted",
        [f"org.apache.rocketmq.{main}", "-c", str(conf / "server.conf")],
        jvm=jvm,
        classpath=[conf],
        home=home,
    )
