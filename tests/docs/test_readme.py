"""Every snippet and claim of README.md."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.testing.wait import wait_until
from tests.docs.snippets import ROOT, run, snippet, snippets
from tests.spark.quick_java import QUICK_JAVA

README = "README.md"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@contextmanager
def steady_flights(name_server: str) -> Iterator[None]:
    """Flights of UA, AA and B6 are sent all the while."""
    done = threading.Event()

    def send() -> None:
        with Producer("background", name_server=name_server) as producer:
            while not done.wait(0.05):
                for carrier in ("UA", "AA", "B6"):
                    producer.send(Message("flights", b"-", tags=carrier, keys="N1"))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()


def read_all(name_server: str, topic: str, count: int) -> list[bytes]:
    with LitePullConsumer(
        "checker", name_server=name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    ) as consumer:
        consumer.subscribe(topic)
        bodies: list[bytes] = []

        def poll() -> bool:
            bodies.extend(message.body for message in consumer.poll(timeout=1))
            return len(bodies) >= count

        wait_until(poll, timeout=60)
    return bodies


def test_the_producer_in_three_lines(broker: EmbeddedBroker) -> None:
    run(snippet(README, "import Message, Producer\n\nwith"), broker.name_server)
    assert read_all(broker.name_server, "flights", 1) == [b"EWR-IAH"]


def test_a_transaction_in_a_few_lines(broker: EmbeddedBroker) -> None:
    run(snippet(README, "TransactionProducer"), broker.name_server)
    assert read_all(broker.name_server, "flights", 1) == [b"booked"]


def test_the_consumer_in_three_lines(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    code = snippet(README, 'subscribe("flights", "UA || AA")')
    output = ""
    with steady_flights(broker.name_server):
        for _ in range(5):
            run(code, broker.name_server)
            output += capsys.readouterr().out
            if output:
                break
    assert set(output.split("\n")) <= {"UA N1 b'-'", "AA N1 b'-'", ""}
    assert "UA N1" in output or "AA N1" in output


def test_the_push_consumer(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet(README, "def bill").replace("\n...\n", "\nwait()\n")
    billed = threading.Event()

    def note(*words: object) -> None:
        assert words == ("billed", "N1")
        billed.set()

    with steady_flights(broker.name_server):
        run(code, broker.name_server, wait=lambda: billed.wait(60), print=note)
    assert billed.is_set()


def test_the_asyncio_producer(broker: EmbeddedBroker) -> None:
    run(snippet(README, "AsyncProducer"), broker.name_server)
    assert read_all(broker.name_server, "flights", 1) == [b"JFK-MIA"]


def test_the_embedded_broker_in_a_pytest_test(tmp_path: Path) -> None:
    test = tmp_path / "test_orders.py"
    test.write_text(snippet(README, "EmbeddedBroker"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_spark_reader(broker: EmbeddedBroker) -> None:
    with Producer("orders", name_server=broker.name_server) as producer:
        for carrier in ("UA", "UA", "AA"):
            producer.send(Message("flights", b"-", tags=carrier))
    code = snippet(README, "local_session").replace("127.0.0.1:9876", broker.name_server)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=QUICK_JAVA,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    rows = {line.replace(" ", "") for line in done.stdout.splitlines()}
    assert {"|UA|2|", "|AA|1|"} <= rows, done.stdout + done.stderr


def test_no_snippet_is_left_untested() -> None:
    tested = (
        "import Message, Producer\n\nwith",
        'subscribe("flights", "UA || AA")',
        "def bill",
        "AsyncProducer",
        "TransactionProducer",
        "EmbeddedBroker",
        "local_session",
    )
    assert len(snippets(README)) == len(tested)


def test_the_documents_it_names_exist() -> None:
    text = (ROOT / README).read_text()
    for page in (
        *("architecture", "consumers", "settings", "from-java", "from-kafka", "clients"),
        *("broker", "spark", "benchmarks", "performance"),
    ):
        name = f"docs/{page}.md"
        assert f"({name})" in text
        assert (ROOT / name).is_file()
