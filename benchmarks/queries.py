"""How long a query by key takes, in stores of different sizes: ours, and Apache on the same store.

The store is filled without a network, closed in order, served by our broker and then by Apache's,
which takes the directory over. Keys are asked for in random places, one after the other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

from benchmarks.brokers import orbitmq_broker
from benchmarks.growth import await_index
from benchmarks.load import OK, call
from benchmarks.machine import WARM_JVM
from benchmarks.results import Result
from orbitmq.codes import RequestCode
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.command import encode_request
from orbitmq.wire.headers import QueryMessageRequestHeader
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Draft, host_bytes
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import ApacheRelease

SIZES = (10_000, 10_000_000)
QUERIES = 500
TOPIC = "bench-queries"
LOG_FILE = 1 << 30
_TICK = 500
_BODY = bytes(100)
_HOST = host_bytes("127.0.0.1", 10911)


def query_figures(apache: ApacheRelease | None, largest: int) -> Iterator[Result]:
    """The median and the 99th percentile for each size up to ``largest`` messages."""
    for size in SIZES:
        if size > largest:
            continue
        with TemporaryDirectory(prefix="orbitmq-queries-") as directory:
            store = Path(directory)
            _fill(store, size)
            with orbitmq_broker("async", store) as broker:
                ours = _ask(broker.address, size)
            theirs = None
            if apache:
                settings = {"mappedFileSizeCommitLog": LOG_FILE}
                with ApacheCluster(apache, settings, store=store, jvm=WARM_JVM) as cluster:
                    theirs = _ask(cluster.broker.address, size)
        for place, name in ((49, "p50"), (98, "p99")):
            of_apache = theirs[place] if theirs else None
            ratio = of_apache / ours[place] if of_apache else None
            title = f"query by key, {size:,} messages, {name}"
            yield Result(title, "ms", ours[place], of_apache, ratio)


def _fill(directory: Path, size: int) -> None:
    """A store with ``size`` messages, each with a unique key and a key, all of them indexed."""
    store = MessageStore.open(directory)
    for number in range(size):
        properties = {"UNIQ_KEY": f"7F0000010001{number:020X}", "KEYS": f"key-{number}"}
        pairs = encode_properties(properties)
        store.append(Draft(TOPIC, number % 8, _BODY, pairs, 0, 0, 0, 1, _HOST, _HOST))
        if number % _TICK == _TICK - 1:
            store.write()
    store.write()
    await_index(store)
    store.close()


def _ask(address: str, size: int) -> list[float]:
    """The percentiles of the time that a query takes, ms."""
    keys = random.Random(size)
    times = []
    for number in range(QUERIES):
        header = QueryMessageRequestHeader(
            topic=TOPIC,
            key=f"key-{keys.randrange(size)}",
            max_num=32,
            begin_timestamp=0,
            end_timestamp=2**62,
        )
        frame = encode_request(RequestCode.QUERY_MESSAGE, number, header)
        began = time.perf_counter()
        answer = call(address, frame)
        times.append((time.perf_counter() - began) * 1000)
        if OK not in answer:
            raise RuntimeError(f"{address} does not find {header.key}: {answer!r}")
    return quantiles(times, n=100)
