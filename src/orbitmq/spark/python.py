"""The Python of Spark's workers: the one that runs the program, unless the user says otherwise.

Spark's workers run PYSPARK_PYTHON, and without it the ``python3`` on the PATH, which in a notebook
or an environment that is not activated is another one, without this package.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path

from orbitmq.spark.java import started_by_spark

log = logging.getLogger("orbitmq.spark")


def provide_python() -> None:
    """Set the environment variable PYSPARK_PYTHON where the PATH leads to another Python.

    Does nothing where it is set, and in a process that Spark started: its workers know theirs. On a
    cluster whose machines have their Python elsewhere, set PYSPARK_PYTHON to the path there.
    """
    if started_by_spark() or os.environ.get("PYSPARK_PYTHON"):
        return
    found = shutil.which("python3")
    # Not resolved: the python of a virtual environment is a link to that of the system.
    if found is None or Path(found).parent != Path(sys.executable).parent:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        log.info("python3 on the PATH is %s: Spark's workers run %s", found, sys.executable)
