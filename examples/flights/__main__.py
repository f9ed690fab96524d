"""The demo: flights through the embedded broker, balanced consumers and a Spark stream.

    python -m examples.flights [--flights N] [--output DIR]

Sends every flight, consumes them with consumers that come and go, aggregates them in Spark and
shows the result. It fails if one message is missing or an aeroplane's flights are out of order.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights import data, delays, report
from examples.flights.consume import Arrivals, CarrierListener, Reader, Seen
from orbitmq import EmbeddedBroker, Message, MessageQueue, Producer, SendResult, SendStatus

CARRIER = "UA"
PATIENCE_MS = 60_000  # a machine may be busy with something else
QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
console = Console()


def main() -> int:
    """Run the demo; the exit code says whether everything was as it must be."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--flights", type=int, help="only the first N flights (default: all)")
    parser.add_argument(
        "--output", type=Path, default=Path("build/demo"), help="where the PNG and Parquet go"
    )
    arguments = parser.parse_args()
    began = time.monotonic()
    flights = data.load_flights(arguments.flights)
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-demo-") as scratch:
            chart = run(flights, arguments.output, Path(scratch))
    except report.DemoError as error:
        console.print(f"[bold red]The demo failed:[/] {error}")
        return 1
    console.print(f"Everything arrived, in order, in {time.monotonic() - began:.0f} s.")
    console.print(f"Chart: {chart.resolve()}", soft_wrap=True)
    return 0


def run(flights: pd.DataFrame, output: Path, scratch: Path) -> Path:
    """All stages on a broker of their own; returns the chart's path."""
    with EmbeddedBroker() as broker:
        console.print(f"Broker ready: name server {broker.name_server}, store {broker.store}")
        with Stages() as stages:
            readers, listener = exchange(flights, broker.name_server, stages)
            console.print(shares([reader.arrivals for reader in readers]))
            parquet = output / "delays"
            shutil.rmtree(parquet, ignore_errors=True)  # of an earlier run
            result = pipeline(flights, broker.name_server, parquet, scratch, stages)
    check(flights, readers, listener)
    stages.check()
    report.check_delays(result, flights)
    table = report.by_carrier_and_hour(result)
    console.print(delay_table(table))
    console.print(stages.counts())
    chart = output / "departure-delays.png"
    report.save_chart(table, chart)
    return chart


class Stages(Progress):
    """The demo's progress bars."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description:<38}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[lag]}"),
            console=console,
        )

    def stage(self, description: str, total: int) -> Stage:
        """A new bar."""
        return Stage(self, description, total)

    def check(self) -> None:
        """Every stage must have seen exactly what is due to it."""
        for task in self.tasks:
            report.check_equal(task.description, int(task.completed), int(task.total or 0))

    def counts(self) -> Table:
        """What each stage counted."""
        table = Table("stage", title="Counts, as they must be")
        table.add_column("rows", justify="right")
        for task in self.tasks:
            table.add_row(task.description, f"{int(task.completed):,}")
        return table


class Stage:
    """One bar: call it with the number of rows done."""

    def __init__(self, stages: Stages, description: str, total: int) -> None:
        self.description = description
        self.done = 0
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._stages = stages
        self._task = stages.add_task(description, total=total, lag="")

    def __call__(self, rows: int) -> None:
        """Count rows as done."""
        with self._changed:
            self.done += rows
            self._changed.notify_all()
        self._stages.advance(self._task, rows)

    def tell_lag(self, messages: int) -> None:
        """Show how many messages are still to be read."""
        self._stages.update(self._task, lag=f"lag {messages:,}")

    def fail(self, error: BaseException) -> None:
        """Say that no more rows will come, and why."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def wait_for(self, rows: int, patience: float = 60.0) -> None:
        """Wait until so many rows are done; DemoError when none comes for ``patience`` seconds."""
        with self._changed:
            while self.done < rows:
                moved = self._changed.wait_for(self._has_news(self.done), patience)
                if self._failure is not None:
                    raise report.DemoError(f"{self.description}: {self._failure!r}")
                if not moved:
                    raise report.DemoError(f"{self.description}: stuck at {self.done:,}")

    def _has_news(self, before: int) -> Callable[[], bool]:
        return lambda: self.done != before or self._failure is not None


def exchange(
    flights: pd.DataFrame, name_server: str, stages: Stages
) -> tuple[list[Reader], CarrierListener]:
    """Send every flight while a group reads them: two, then three, then two consumers."""
    total = len(flights)
    of_carrier = int((flights["carrier"] == CARRIER).sum())
    sent = stages.stage("send, one message a flight", total)
    read = stages.stage("lite pull consumers, one group", total)
    pushed = stages.stage(f"push consumer, tag {CARRIER}", of_carrier)

    seen = Seen()
    readers = [Reader(f"reader-{n}", name_server, seen, read) for n in (1, 2, 3)]
    listener = CarrierListener(CARRIER, name_server, pushed)
    first, second, third = readers
    with Producer(
        "flight-sender", name_server=name_server, send_timeout_ms=PATIENCE_MS
    ) as producer:
        producer.send(Message("demo-check", b"ready"))
        sender = threading.Thread(target=send_flights, args=(producer, flights, sent), daemon=True)
        sender.start()
        sent.wait_for(1)
        listener.start()
        first.start()
        second.start()
        read.wait_for(total // 3)
        third.start()
        read.wait_for(total * 2 // 3)
        second.leave()
        sender.join()
        sent.wait_for(total)
        read.wait_for(total)
        pushed.wait_for(of_carrier)
    listener.stop()
    first.leave()
    third.leave()
    return readers, listener


def send_flights(producer: Producer, flights: pd.DataFrame, sent: Stage) -> None:
    """Send without waiting for each answer; every answer is counted, a failure ends the demo."""

    def answered(result: SendResult | None, error: BaseException | None) -> None:
        if error is not None:
            sent.fail(error)
        elif result is not None and result.status is SendStatus.SEND_OK:
            sent(1)

    for message in data.to_messages(flights):
        producer.send_async(message, answered)


def pipeline(
    flights: pd.DataFrame, name_server: str, parquet: Path, scratch: Path, stages: Stages
) -> pd.DataFrame:
    """Aggregate in Spark to Parquet and to a topic, and read both back."""
    from orbitmq.spark import local_session

    to_parquet = stages.stage("Spark stream to Parquet", len(flights) + 1)
    to_topic = stages.stage("Spark stream to a topic", len(flights) + 1)
    # four attempts a task: a busy machine may start a Python worker too late for Spark
    with local_session("flights", master="local[2,4]", config=QUIET) as spark:

        def run_to_end() -> None:
            for_files = delays.departure_delays(spark, name_server, "delays-to-parquet")
            delays.follow(
                lambda: delays.write_parquet(for_files, parquet, scratch / "p"),
                to_parquet,
                to_parquet.tell_lag,
            )
            for_topic = delays.departure_delays(spark, name_server, "delays-to-topic")
            delays.follow(
                lambda: delays.send_delays(for_topic, name_server, scratch / "t"),
                to_topic,
                to_topic.tell_lag,
            )

        run_to_end()
        send_end_of_year(name_server)
        run_to_end()  # goes on from the checkpoints; the marker closes the last windows
        result = delays.read_back(spark, name_server)
        stages.stage("hourly results in Parquet", len(result))(
            spark.read.parquet(str(parquet)).count()
        )
        stages.stage("hourly results read back", len(result))(len(result))
    return result


def send_end_of_year(name_server: str) -> None:
    """Send the row that is later than every flight."""
    with Producer(
        "flight-sender", name_server=name_server, send_timeout_ms=PATIENCE_MS
    ) as producer:
        producer.send(Message(data.TOPIC, msgspec.json.encode(data.END_OF_YEAR), tags="--"))


def check(flights: pd.DataFrame, readers: list[Reader], listener: CarrierListener) -> None:
    """Nothing missing, nothing out of order, for each kind of consumer."""
    arrivals = [reader.arrivals for reader in readers]
    report.check_complete("lite pull consumers", arrivals, set(flights.index))
    report.check_order(arrivals)
    of_carrier = set(flights.index[flights["carrier"] == CARRIER])
    report.check_complete("push consumer", [listener.arrivals], of_carrier)


def shares(arrivals: list[Arrivals]) -> Table:
    """Which reader took how many messages of which queue."""
    table = Table(title="Messages by reader and queue (reader-3 joined, reader-2 left)")
    queues: list[MessageQueue] = sorted({queue for one in arrivals for queue in one.queues})
    for heading in ("", *(f"queue {queue.queue_id}" for queue in queues), "all"):
        table.add_column(heading, justify="right")
    for one in arrivals:
        counts: Counter[MessageQueue] = one.queues
        row = [f"{counts[queue]:,}" for queue in queues]
        table.add_row(one.name, *row, f"{sum(counts.values()):,}")
    return table


def delay_table(delays_by_hour: pd.DataFrame) -> Table:
    """Average delay in minutes by carrier, for some hours of the day."""
    table = Table(title="Average departure delay in minutes, by scheduled hour in New York")
    hours = [hour for hour in delays_by_hour.columns if hour % 3 == 0]
    for heading in ("carrier", *(f"{hour}h" for hour in hours)):
        table.add_column(heading, justify="right")
    for carrier, row in delays_by_hour[hours].iterrows():
        values = ["" if pd.isna(value) else f"{value:.1f}" for value in row]
        table.add_row(str(carrier), *values)
    return table


if __name__ == "__main__":
    sys.exit(main())
