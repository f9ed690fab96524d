"""Topics of RocketMQ as Spark sources and sinks: ``format("rocketmq")``.

Spark finds the format by itself wherever this package is installed; nothing is registered and
nothing here need be imported. Importing this package finds a Java for Spark where the machine has
none (see :func:`orbitmq.spark.java.provide_java`), and gives :func:`local_session`::

    from orbitmq.spark import local_session

    spark = local_session()
    flights = (
        spark.readStream.format("rocketmq")
        .option("nameServer", "127.0.0.1:9876")
        .option("topic", "flights")
        .load()
    )

The options are described in :mod:`orbitmq.spark.options`, the columns in
:mod:`orbitmq.spark.schema`.
"""

from __future__ import annotations

from orbitmq.spark.java import provide_java
from orbitmq.spark.session import local_session

__all__ = ["local_session", "provide_java"]

provide_java()
