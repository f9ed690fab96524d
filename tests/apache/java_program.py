"""Java programs under a Python test: compiled once, run, read line by line, stopped, never left.

A program prints lines `@@ kind json` (java/Marked.java); they are collected here as marks. All
else that it prints is kept for the error message. A program ends when its stdin says `stop` or
closes, hence also when the test process is killed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from tests.apache.jars import OPEN_MODULES, ApacheRelease, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SOURCES = Path(__file__).with_name("java")
# Short lives: with the quick compiler alone they take half the time of the processor.
SMALL_JVM = ("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TAIL_LINES = 20


class JavaProgramError(AssertionError):
    """A Java program failed, or did not say in time what was waited for; ends with its output."""


class Mark(NamedTuple):
    """One marked line: what kind it is, and the JSON value behind."""

    kind: str
    value: Any


class JavaProgram:
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
        self.main = main
        self.marks: list[Mark] = []
        self._changed = threading.Condition()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._ended = False
        self._temporary = None if home else tempfile.TemporaryDirectory(prefix="orbitmq-java-")
        self.home = home or Path(self._temporary.name if self._temporary else "")
        classes = compile_program(release, main)
        self._command = [
            *(release.java, *jvm, *OPEN_MODULES, f"-Duser.home={self.home}"),
            *(f"-Drocketmq.home.dir={self.home}", "-Dfile.encoding=UTF-8"),
            *("-cp", release.classpath(*classpath, classes), main, *arguments),
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            cwd=self.home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name=f"java-{self.main}", daemon=True
        )
        self._reader = reader
        reader.start()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.close()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running JVM."""
        if self._process is None:
            raise JavaProgramError(f"{self.main} has not been started")
        return self._process

    def values(self, kind: str) -> list[Any]:
        """The values of all marks of one kind so far."""
        return [mark.value for mark in list(self.marks) if mark.kind == kind]

    def wait_for(self, kind: str, timeout: float = 60) -> Any:
        """The value of the first mark of this kind, waiting up to `timeout` seconds for it."""
        self.wait_until(lambda: bool(self.values(kind)), f"a line @@ {kind}", timeout)
        return self.values(kind)[0]

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Waits until the condition on the marks holds; fails after `timeout` seconds.

        Raises:
            JavaProgramError: the time is over, or the program ended before.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    reason = "ended" if self._ended else f"took over {timeout:g} s"
                    raise JavaProgramError(f"{self.main} {reason} before {what}\n{self.tail()}")
                self._changed.wait(left)

    def send_line(self, line: str) -> None:
        """Writes one line to the program's stdin."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.closed:
            stdin.write(line + "\n")
            stdin.flush()

    def stop(self, timeout: float = 30) -> None:
        """Asks the program to end and waits for it; its last marks are here when this returns.

        Raises:
            JavaProgramError: it did not end in time, or ended with an exit code other than 0.
        """
        self.send_line("stop")
        self.wait(timeout)

    def wait(self, timeout: float = 60) -> None:
        """Waits for the program's own end, as `stop` does."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            text = f"{self.main} did not end within {timeout:g} s\n{self.tail()}"
            raise JavaProgramError(text) from None
        self._reader.join(timeout)
        if code != 0:
            raise JavaProgramError(f"{self.main} ended with exit code {code}\n{self.tail()}")

    def close(self, timeout: float = 15) -> None:
        """Ends the program, by force if it does not go when its stdin closes."""
        process = self.process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(timeout)
        if process.stdout is not None:
            process.stdout.close()

    def kill(self) -> None:
        """Ends the program at once, as a crash would."""
        self.process.kill()
        self.close()

    def tail(self) -> str:
        """The end of what the program printed unmarked, and of its log files."""
        parts = ["--- output", *self._tail]
        for log in sorted(self.home.glob("logs/rocketmqlogs/*.log")):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            if lines:
                parts += [f"--- {log.name}", *lines[-TAIL_LINES:]]
        return "\n".join(parts)

    def _read(self, output: IO[str]) -> None:
        for line in output:
            with self._changed:
                if line.startswith("@@ "):
                    kind, _, value = line[3:].partition(" ")
                    self.marks.append(Mark(kind, json.loads(value)))
                else:
                    self._tail.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


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
            raise JavaProgramError(f"{main}.java does not compile:\n{done.stdout}")
        built.rename(classes)


def options(values: Mapping[str, object]) -> list[str]:
    """`name=value` as java/Marked.java and Apache's properties files read it."""
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in values.items()
    ]
