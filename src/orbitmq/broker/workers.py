"""Several brokers of one cluster, in processes of their own, under one name server.

One process is one core: brokers that share the topics of a cluster use as many as there are
workers. The name server is in the process that starts them, which needs next to nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, cast

import msgspec

from orbitmq.broker import place
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.worker import Orders, Report
from orbitmq.broker.worker_plan import number_of, plan
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import WorkerError
from orbitmq.nameserver.routes import RouteTable
from orbitmq.net.tls import ClientTls, TlsMode

log = logging.getLogger("orbitmq.broker")

_PROGRAM: Final = "from orbitmq.broker.worker import main; main()"
_STEADY_SECONDS: Final = 60.0
"""A worker that ran for so long is started again at once when it ends."""
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0


class Workers:
    """``count`` worker processes with the brokers of :func:`~orbitmq.broker.worker_plan.plan`.

    ``name_server`` is its ``host:port`` as clients reach it, ``addresses`` those of the brokers,
    ``store_directory`` is what their directories are in. A worker that ends unasked is started
    again, on the same ports; the others go on meanwhile. Workers do not outlive this process.
    """

    def __init__(
        self,
        config: BrokerConfig,
        count: int,
        *,
        log_level: str = "warning",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config = config
        self.count = count
        self.name_server = ""
        self.store_directory = Path()
        self._log_level = log_level
        self._clock = clock
        self._workers: list[_Worker] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._open = AsyncExitStack()

    @property
    def addresses(self) -> list[str]:
        """Where the brokers serve, by their numbers."""
        served = {
            number_of(broker): address
            for worker in self._workers
            for broker, address in zip(worker.brokers, worker.addresses, strict=True)
        }
        return [served[number] for number in sorted(served)]

    async def start(self) -> None:
        """Start the name server and all workers; returns when they all serve.

        Raises ConfigError, StoreError or WorkerError when that cannot be as the settings say;
        nothing stays open then.
        """
        async with AsyncExitStack() as undo:
            await self._start(undo)
            self._open = undo.pop_all()

    async def close(self) -> None:
        """Stop all workers in order, then the name server, and remove a temporary store.

        Raises WorkerError when one could not save everything.
        """
        await self._open.aclose()

    async def _start(self, undo: AsyncExitStack) -> None:
        config = self.config
        host = place.advertised(config)
        self.store_directory = place.directory(config, undo)
        plans = plan(config, self.count, self.store_directory)
        given: dict[str, object] = {}
        self.name_server = ";".join(config.name_servers)
        if not config.name_servers:
            name_server = await place.start_name_server(
                config, self.store_directory, self._clock, RouteTable(), undo
            )
            self.name_server = place.address(host.name, name_server.port)
            given["name_server"] = place.address(place.local(config), name_server.port)
            given["name_server_tls"] = _own_tls(config)
        self._workers = [
            _Worker([msgspec.structs.replace(broker, **given) for broker in brokers])
            for brokers in plans
        ]
        undo.push_async_callback(self._stop)
        starts = [worker.start(self._log_level) for worker in self._workers]
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if outcome is not None:
                raise outcome
        self._keepers = [asyncio.create_task(self._keep(worker)) for worker in self._workers]

    async def _stop(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        failures = await asyncio.gather(*(worker.stop() for worker in self._workers))
        told = "; ".join(filter(None, failures))
        if told:
            raise WorkerError(told)

    async def _keep(self, worker: _Worker) -> None:
        """Start the worker again whenever it ends, after a pause when it does so often."""
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            began = loop.time()
            log.error(
                "worker %s: its process %s; it is started again, the others go on",
                worker.names,
                await worker.ended(),
            )
            if loop.time() - began > _STEADY_SECONDS:
                pause = 0.0
            while True:
                await asyncio.sleep(pause)
                pause = min(max(_FIRST_PAUSE_SECONDS, 2 * pause), _LONGEST_PAUSE_SECONDS)
                try:
                    await worker.start(self._log_level)
                except WorkerError as error:
                    log.error("%s; it is tried again in %g s", error, pause)  # noqa: TRY400
                else:
                    break
            log.warning("worker %s serves again", worker.names)


class _Worker:
    """A process and the ``brokers`` in it; ``addresses`` are theirs once it has started."""

    def __init__(self, brokers: list[BrokerConfig]) -> None:
        self.brokers = brokers
        self.addresses: list[str] = []
        self._process: Process | None = None  # None also once its end was told
        self._error = ""

    @property
    def names(self) -> str:
        """The names of its brokers, to be told."""
        return ", ".join(broker.broker_name for broker in self.brokers)

    async def start(self, log_level: str) -> None:
        """Start the process; returns when its brokers serve. Raises WorkerError.

        A process of before must have ended.
        """
        orders = Orders(self.brokers, log_level)
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # no code out of the working directory
                "-c",
                _PROGRAM,
                orders.names,  # for who lists processes
                stdin=PIPE,
                stdout=PIPE,
                env=_environment(),
                start_new_session=True,  # ^C is for this process, which stops the worker in order
            )
        except OSError as error:
            raise WorkerError(f"worker {self.names} cannot be started: {error}") from error
        self._error = ""
        cast(asyncio.StreamWriter, process.stdin).write(orders.encode())
        report = await self._read_report(process)
        if report is None or report.error:
            raise WorkerError(f"worker {self.names} does not start: it {await self.ended()}")
        self.addresses = report.addresses
        self.brokers = [
            msgspec.structs.replace(broker, port=int(address.rpartition(":")[2]))
            for broker, address in zip(self.brokers, report.addresses, strict=True)
        ]

    async def ended(self) -> str:
        """Wait until the process has ended, and say how."""
        process = self._process
        if process is None:
            return "has ended before"
        while await self._read_report(process):
            pass
        code = await process.wait()
        self._process = None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"{how}: {self._error}" if self._error else how

    async def stop(self) -> str:
        """Have it stop in order; returns what went wrong, empty when nothing did."""
        process = self._process
        if process is None:
            return ""
        cast(asyncio.StreamWriter, process.stdin).close()
        how = await self.ended()
        return f"worker {self.names} {how}" if process.returncode else ""

    async def _read_report(self, process: Process) -> Report | None:
        """What it says next; None when it ends."""
        output = cast(asyncio.StreamReader, process.stdout)
        while line := await output.readline():
            try:
                report = msgspec.json.decode(line, type=Report)
            except msgspec.DecodeError:
                log.warning("worker %s says %r", self.names, line)
            else:
                self._error = self._error or report.error
                return report
        return None


def _own_tls(config: BrokerConfig) -> ClientTls | None:
    """How workers speak to a name server beside them that takes nothing but TLS.

    It is that of the process that started them, on this machine: nobody verifies it, and it is
    shown the certificate it has itself, should it ask for one.
    """
    tls = config.tls
    if tls is None or tls.mode is not TlsMode.ENFORCING:
        return None
    return ClientTls(
        cert_file=str(tls.cert_file),
        key_file=None if tls.key_file is None else str(tls.key_file),
        key_password=tls.key_password,
        verify=False,
    )


def _environment() -> dict[str, str]:
    """This process's own, so that a worker finds the same code wherever it is installed."""
    root = str(Path(__file__).parents[2])
    if Path(root).name in {"site-packages", "dist-packages"}:
        return dict(os.environ)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
