"""``orbitmq answer-checks``: brokers are told what became of exactly_once writes of Spark's."""

from __future__ import annotations

import argparse
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from orbitmq.cli.archive import check_extra
from orbitmq.cli.cluster import add_cluster, cluster_settings
from orbitmq.errors import ConfigError, TopicNotFoundError

if TYPE_CHECKING:
    from orbitmq.producer.local_transactions import LocalTransactionState

DEFAULT_GROUP: Final = "orbitmq_spark"
_REMEMBERED: Final = 10_000


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "answer-checks",
        help="answer brokers that ask about exactly_once writes",
        description="Answer brokers that ask about half messages of Spark's writes with "
        "deliveryGuarantee=exactly_once, also when their driver is gone: what was decided and not "
        "finished is committed, all of it; the rest is dropped. It runs until it is told to stop "
        "(Ctrl-C, SIGTERM); several may run.",
        epilog="Exit code: 0; 2, it cannot be done as asked. Needs orbitmq[spark], but no Java.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--group",
        default=DEFAULT_GROUP,
        help=f"the option group of the writes (default: {DEFAULT_GROUP})",
    )
    parser.add_argument(
        "--take-over",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long after its decision a write that is not finished is taken for one whose "
        "driver is gone, and is finished here; longer than a driver needs to deliver a batch "
        "(default: 60)",
    )
    add_cluster(parser)
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> None:
    """Answer until told to stop. Raises OrbitMQError when it cannot be as asked."""
    check_extra()
    if not 0 <= options.take_over < float("inf"):
        raise ConfigError("--take-over", options.take_over, "0 seconds or more")
    settings = cluster_settings(options)
    told = _Told()
    from orbitmq.broker.process import log_to_stderr
    from orbitmq.spark import answer_checks

    log_to_stderr("warning")
    note = _notes_are_there(settings)
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    answering = answer_checks(
        options.group,
        take_over_ms=int(options.take_over * 1000),
        on_answer=told,
        **settings,
    )
    try:
        for number in before:
            signal.signal(number, lambda *_: stop.set())
        with answering:
            print(f"answering for group {options.group}{note}; Ctrl-C ends it", flush=True)
            stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(f"answered {told.answers:,} times, about {told.writes:,} writes")


def _notes_are_there(settings: Any) -> str:
    """What is to be said of the notes; raises an OrbitMQError where the cluster does not answer."""
    from orbitmq.spark.cluster import cluster_of
    from orbitmq.spark.sink.ledger import LEDGER_TOPIC
    from orbitmq.spark.source.routes import fetch_route

    cluster = cluster_of(settings)
    try:
        fetch_route(cluster.name_servers, LEDGER_TOPIC, cluster.access)
    except TopicNotFoundError:
        return f", though there was no such write yet: no topic {LEDGER_TOPIC}"
    return ""


class _Told:
    """Prints what becomes of each write, once."""

    def __init__(self) -> None:
        self.answers = 0
        self.writes = 0
        self._last: dict[str, LocalTransactionState] = {}
        self._lock = threading.Lock()

    def __call__(self, write: str, answer: LocalTransactionState) -> None:
        with self._lock:
            self.answers += 1
            self.writes += write not in self._last
            if self._last.get(write) is answer:
                return
            if len(self._last) >= _REMEMBERED:
                self._last.clear()
            self._last[write] = answer
        print(f"{write}: {_MEANING[answer.name]}", flush=True)


_MEANING: Final = {
    "UNKNOWN": "not decided, or being delivered; half messages are kept",
    "ROLLBACK": "decided; half messages that are left over are dropped",
}
