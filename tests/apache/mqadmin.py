"""Apache's mqadmin under a test: a JVM that runs one command after another (java/Mqadmin.java)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.apache.java_program import SMALL_JVM, JavaProgram, options

if TYPE_CHECKING:
    from typing import Self

    from tests.apache.jars import ApacheRelease

# 4.9 wants this file; nothing of what it logs is looked at.
LOGBACK = '<configuration><root level="OFF"/></configuration>'

_BODY = re.compile(r"Message Body Path: +(/tmp/\S+)")


class Mqadmin(JavaProgram):
    """The tools of one release, asking one name server. What they write lies in ``home``."""

    def __init__(self, release: ApacheRelease, name_server: str) -> None:
        self._directory_of_home = tempfile.TemporaryDirectory(prefix="orbitmq-mqadmin-")
        home = Path(self._directory_of_home.name)
        (home / "conf").mkdir()
        (home / "conf" / "logback_tools.xml").write_text(LOGBACK)
        super().__init__(
            release,
            "Mqadmin",
            options({"nameServer": name_server}),
            jvm=[*SMALL_JVM, f"-Djava.io.tmpdir={home}"],
            home=home,
        )
        self.release = release

    def __enter__(self) -> Self:
        super().__enter__()
        self.commands = frozenset(self.wait_for("commands"))
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)
        finally:
            self._directory_of_home.cleanup()

    def run(self, command: str, *words: object, until: str | None = None) -> str:
        """All that a command printed, the stack trace of a failure included.

        ``until``: it goes on for ever, and is interrupted when it has printed this.
        """
        before = len(self.values("output"))
        line = [command, *map(str, words)]
        if until is not None:
            line.insert(0, f"until={until}")
        self.send_line("\t".join(line))
        self.wait_until(lambda: len(self.values("output")) > before, f"the end of {line}")
        output = str(self.values("output")[before])
        for path in _BODY.findall(output):  # wherever the JVM's directories are
            Path(path).unlink(missing_ok=True)
        return output
