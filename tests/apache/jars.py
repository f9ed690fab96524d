"""Apache RocketMQ's jars, fetched once with Maven into the user's cache.

The tests that judge OrbitMQ by the real thing need Apache's own programs. They come from Maven
Central, take some ten seconds to fetch, and stay outside the checkout, one directory a version.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NEWEST = "5.5.0"
OLDEST = "4.9.7"
POM = Path(__file__).with_name("pom.xml")
# Netty and the mapped files reach into the JDK; Java 17 wants that said.
OPEN_MODULES = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class ApacheMissingError(Exception):
    """Apache's programs cannot run here; the text names what is missing."""


@dataclass(frozen=True, slots=True)
class ApacheRelease:
    """One version of Apache RocketMQ, ready to run: its jars and the JDK's programs."""

    version: str
    lib: Path
    java: str
    javac: str

    @property
    def cache(self) -> Path:
        """Where what belongs to this version is kept between sessions."""
        return self.lib.parent

    def classpath(self, *before: Path) -> str:
        """All jars, preceded by the given directories."""
        return os.pathsep.join([*map(str, before), f"{self.lib}/*"])


def find_release(version: str = NEWEST) -> ApacheRelease:
    """The release named, fetched if it is not in the cache yet.

    Raises:
        ApacheMissingError: no JDK, no Maven, or Maven could not fetch the jars.
    """
    java, javac = find_program("java"), find_program("javac")
    lib = find_jars(POM, Path("apache") / version, f"-Drocketmq.version={version}")
    return ApacheRelease(version, lib, java, javac)


def find_jars(pom: Path, name: Path, *settings: str) -> Path:
    """The directory with the jars that ``pom`` names; ``name`` is its place in the cache.

    Raises:
        ApacheMissingError: they are not there yet, and cannot be fetched.
    """
    directory = _cache_directory() / name
    lib = directory / "lib"
    if not lib.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        with exclusive(directory):
            if not lib.is_dir():
                _fetch(pom, settings, lib)
    return lib


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Holds the directory's lock, against test workers that prepare the same thing."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "orbitmq"


def find_program(name: str) -> str:
    """Where a program of the JDK or Maven is. Raises ApacheMissingError."""
    found = shutil.which(name)
    if found is None:
        raise ApacheMissingError(f"{name} is not on the PATH: install a JDK (17) and Maven")
    return found


def _fetch(pom: Path, settings: Sequence[str], lib: Path) -> None:
    command = [
        *(find_program("mvn"), "--quiet", "--batch-mode", "--file", str(pom)),
        *settings,
        "dependency:copy-dependencies",
    ]
    with tempfile.TemporaryDirectory(dir=lib.parent, prefix=".fetch-") as directory:
        fetched = Path(directory) / "lib"
        done = subprocess.run(
            [*command, f"-DoutputDirectory={fetched}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ApacheMissingError(
                f"Maven could not fetch what {pom} names {' '.join(settings)}:\n"
                f"{done.stdout[-2000:]}"
            )
        fetched.rename(lib)
