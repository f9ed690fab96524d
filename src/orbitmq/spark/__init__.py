"""Topics of RocketMQ as Spark sources and sinks: ``format("rocketmq")``.

Spark finds the format by itself wherever this package is installed; nothing is registered and
nothing here need be imported. Importing this package finds a Java for Spark where the machine has
none (see :func:`orbitmq.spark.java.provide_java`), has its workers run the Python of this process
(:func:`orbitmq.spark.python.provide_python`), and gives :func:`local_session`::

    from orbitmq.spark import local_session

    spark = local_session()
    flights = (
        spark.readStream.format("rocketmq")
        .option("nameServer", "127.0.0.1:9876")
        .option("topic", "flights")
        .load()
    )

The options are described in :mod:`orbitmq.spark.source.options`, the columns in
:mod:`orbitmq.spark.source.schema`. What else there is here is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from orbitmq.spark.java import provide_java
from orbitmq.spark.python import provide_python
from orbitmq.spark.session import local_session

if TYPE_CHECKING:
    from orbitmq.spark.archives.archiving import archive
    from orbitmq.spark.archives.replaying import replay
    from orbitmq.spark.bodies.decoding import decode
    from orbitmq.spark.bodies.expectations import check_expectations
    from orbitmq.spark.bodies.undecoded import dead_letter_rows, dead_letters
    from orbitmq.spark.listeners.process import process
    from orbitmq.spark.progress.bar import show_progress
    from orbitmq.spark.progress.listener import ProgressListener
    from orbitmq.spark.progress.metrics import serve_metrics
    from orbitmq.spark.sink.check_backs import answer_checks

__all__ = [
    "ProgressListener",
    "answer_checks",
    "archive",
    "check_expectations",
    "dead_letter_rows",
    "dead_letters",
    "decode",
    "local_session",
    "process",
    "provide_java",
    "replay",
    "serve_metrics",
    "show_progress",
]

# Spark's workers import this package to read and write, and need nothing of these.
_HOMES: Final = {
    "answer_checks": "orbitmq.spark.sink.check_backs",
    "ProgressListener": "orbitmq.spark.progress.listener",
    "archive": "orbitmq.spark.archives.archiving",
    "check_expectations": "orbitmq.spark.bodies.expectations",
    "dead_letter_rows": "orbitmq.spark.bodies.undecoded",
    "dead_letters": "orbitmq.spark.bodies.undecoded",
    "decode": "orbitmq.spark.bodies.decoding",
    "process": "orbitmq.spark.listeners.process",
    "serve_metrics": "orbitmq.spark.progress.metrics",
    "show_progress": "orbitmq.spark.progress.bar",
    "replay": "orbitmq.spark.archives.replaying",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


provide_java()
provide_python()
