"""``orbitmq spark-env``: the Java and the Python that Spark's own commands are to run."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orbitmq.errors import OrbitMQError


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "spark-env",
        help="what a shell must know for spark-submit and others to run",
        description="Print commands for a shell: PYSPARK_PYTHON, JAVA_HOME and PATH, as far as "
        "they are not set to what will do, so that spark-submit, spark-class, spark-pipelines and "
        'pyspark find this Python and a Java. Copy: eval "$(orbitmq spark-env)"',
        epilog="Exit code: 0; 2, Spark or a Java is missing. Needs orbitmq[spark].",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, parser=parser)


def run(_: argparse.Namespace) -> None:
    """Print them. Raises OrbitMQError where something is missing."""
    for name, value in missing_environment().items():
        print(f"export {name}={shlex.quote(value)}")


def missing_environment() -> dict[str, str]:
    """What Spark's commands need beyond this process's environment, by name.

    Raises OrbitMQError where Spark or a Java is missing.
    """
    if find_spec("pyspark") is None:
        raise OrbitMQError("pyspark is not installed: pip install 'orbitmq[spark]'")
    before = dict(os.environ)
    try:
        from orbitmq.spark.java import NO_JAVA, provide_java

        if not provide_java():
            raise OrbitMQError(NO_JAVA)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        home = Path(sys.executable).parent
        if shutil.which("spark-submit") is None and (home / "spark-submit").exists():
            os.environ["PATH"] = f"{home}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {name: value for name, value in os.environ.items() if before.get(name) != value}
    finally:
        os.environ.clear()
        os.environ.update(before)
