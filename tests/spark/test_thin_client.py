"""With Spark Connect's thin client, pyspark-client, there is neither py4j nor a JVM."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys

# What pyspark has and pyspark-client has not.
for name in ("py4j", "pyspark.core", "pyspark.sql.classic"):
    sys.modules[name] = None

import importlib
import pkgutil

import orbitmq.spark
import pyspark_rocketmq
from orbitmq.errors import ConfigError
from pyspark.util import is_remote_only

assert is_remote_only()
for module in pkgutil.walk_packages(orbitmq.spark.__path__, "orbitmq.spark."):
    importlib.import_module(module.name)
for name in orbitmq.spark.__all__:
    getattr(orbitmq.spark, name)
try:
    orbitmq.spark.local_session(master="local[3]")
except ConfigError as error:
    print(error)
"""


def test_all_is_there_but_a_session_of_this_process() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == (
        "master='local[3]' is not allowed: here is pyspark-client alone, which needs a server: "
        "SparkSession.builder.remote('sc://HOST:15002'), or pip install 'orbitmq[spark]'\n"
    )
