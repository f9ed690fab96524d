"""Java programs under a Python test: compiled once, run as marked programs (java/Marked.java)."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.apache.jars import OPEN_MODULES, ApacheRelease, exclusive
from tests.marked_program import TAIL_LINES, MarkedProgram, ProgramError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCES = Path(__file__).with_name("java")
# Where all else gets the processor, connecting may take longer than the 3 s that RocketMQ gives it.
PATIENT_JVM = ("-Dcom.rocketmq.remoting.client.connect.timeout=60000",)
# Short lives: with the quick compiler alone they take half the time of the processor.
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SMALL_JVM = ("-Xms32m", "-Xmx256m", *QUICK_JVM)


class JavaProgram(MarkedProgram):
    """A class of tests/apache/java, run against the jars of one release.

    Args:
        release: which jars to compile and run against.
        main: the class with the main method, as its file is called.
        arguments: what its main method gets.
        jvm: options of the JVM; small heaps by default.
        classpath: directories to put before the jars.
        home: the working directory, and `user.home`, where the libraries write their logs and
            local offsets; a temporary one by default.
    """

    def __init__(
        self,
        release: ApacheRelease,
        main: str,
        arguments: Sequence[str] = (),
        *,
        jvm: Sequence[str] = SMALL_JVM,
        classpath: Sequence[Path] = (),
        home: Path | None = None,
    ) -> None:
        self._temporary = None if home else tempfile.TemporaryDirectory(prefix="orbitmq-java-")
        self.home = home or Path(self._temporary.name if self._temporary else "")
        classes = compile_program(release, main)
        command = [
            *(release.java, *jvm, *PATIENT_JVM, *OPEN_MODULES, f"-Duser.home={self.home}"),
            *(f"-Drocketmq.home.dir={self.home}", "-Dfile.encoding=UTF-8"),
            *("-cp", release.classpath(*classpath, classes), main, *arguments),
        ]
        super().__init__(main, command, self.home)

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    def tail(self) -> str:
        """The end of what the program printed unmarked, and of its log files."""
        parts = [super().tail()]
        for log in sorted(self.home.glob("logs/rocketmqlogs/*.log")):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            if lines:
                parts += [f"--- {log.name}", *lines[-TAIL_LINES:]]
        return "\n".join(parts)


def compile_program(release: ApacheRelease, main: str) -> Path:
    """The directory with the program's classes, compiled unless a past session did it already."""
    digest = hashlib.sha256(main.encode())
    for source in sorted(SOURCES.glob("*.java")):
        digest.update(source.read_bytes())
    classes = release.cache / "classes" / digest.hexdigest()[:16]
    if not classes.is_dir():
        with exclusive(release.cache):
            if not classes.is_dir():
                _compile(release, main, classes)
    return classes


def _compile(release: ApacheRelease, main: str, classes: Path) -> None:
    classes.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=classes.parent, prefix=".compile-") as directory:
        built = Path(directory) / "classes"
        done = subprocess.run(
            [
                *(release.javac, "-nowarn", "-proc:none", "-encoding", "UTF-8"),
                *("-cp", release.classpath(), "-sourcepath", str(SOURCES)),
                *("-d", str(built), str(SOURCES / f"{main}.java")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ProgramError(f"{main}.java does not compile:\n{done.stdout}")
        built.rename(classes)


def options(values: Mapping[str, object]) -> list[str]:
    """`name=value` as java/Marked.java and Apache's properties files read it."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in values.items()
    ]
