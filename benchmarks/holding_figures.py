"""What a rebalance costs, and what many queues and idle consumers take of the machine.

Ours beside Apache's Java consumer, on our broker, in turn.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.brokers import RunningBroker
from benchmarks.generator import OK, call
from benchmarks.results import Result, compare
from orbitmq.codes import RequestCode
from orbitmq.wire.command import encode_request
from orbitmq.wire.headers import CreateTopicRequestHeader
from tests.apache.jars import OPEN_MODULES, ApacheRelease

COUNTS = (10, 1_000, 10_000)
IDLE = 50
MEASURES = (
    ("first rebalance", "s"),
    ("rebalance without a change", "ms"),
    ("a second consumer takes half", "s"),
    ("share of a processor", "%"),
    ("memory each", "KB"),
)


def holding_figures(
    apache: ApacheRelease | None, broker: RunningBroker, seconds: float, rounds: int
) -> Iterator[Result]:
    """All of them."""
    programs = [[sys.executable, "-m", "benchmarks.holding"]]
    if apache:
        source = Path(__file__).with_name("java") / "Holding.java"
        programs.append([apache.java, *OPEN_MODULES, "-cp", apache.classpath(), str(source)])
    for count in COUNTS:
        make_topic(broker, count)
        # What few queues take when nothing happens tells nothing of the queues.
        most = count == COUNTS[-1]
        held = seconds if most else 0
        measured = _measure(programs, broker, "queues", count, count, held, rounds)
        for index, (name, unit) in enumerate(MEASURES if most else MEASURES[:3]):
            rows = [[side[index] for side in row] for row in measured]
            yield compare(f"{count:,} queues, {name}", unit, rows, None, less=True)
    measured = _measure(programs, broker, "idle", COUNTS[0], IDLE, seconds, rounds)
    for index, (name, unit) in enumerate(
        [("an idle consumer and its process", "MB"), ("each further idle consumer", "KB")]
    ):
        yield compare(
            name, unit, [[side[index] for side in row] for row in measured], None, less=True
        )


def make_topic(broker: RunningBroker, queues: int) -> None:
    """A topic named for its number of queues."""
    header = CreateTopicRequestHeader(
        topic=f"bench-holding-{queues}",
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
    answer = call(broker.address, encode_request(RequestCode.UPDATE_AND_CREATE_TOPIC, 1, header))
    if OK not in answer:
        raise RuntimeError(f"{broker.address} does not create {header.topic}: {answer!r}")


def _measure(
    programs: list[list[str]],
    broker: RunningBroker,
    measure: str,
    queues: int,
    count: int,
    seconds: float,
    rounds: int,
) -> list[list[list[float]]]:
    """What each program prints, in each round."""
    topic = f"bench-holding-{queues}"
    return [
        [
            _figures(
                [
                    *(*program, measure, broker.name_server, topic),
                    *(f"{measure}-{count}-{number}-{row}", str(count), str(seconds)),
                ]
            )
            for number, program in enumerate(programs)
        ]
        for row in range(rounds)
    ]


def _figures(command: list[str]) -> list[float]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return [float(word) for word in done.stdout.rpartition("@@")[2].split()]
