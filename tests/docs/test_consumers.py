"""The snippets of docs/consumers.md, from-java.md and from-kafka.md, and what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import orbitmq
from orbitmq import EmbeddedBroker, Message, MessageQueue, Producer
from orbitmq.aio.lite_pull_consumer import AsyncLitePullConsumer
from orbitmq.consumer.config import LitePullConfig
from orbitmq.testing.wait import wait_until
from tests.docs.snippets import ROOT, run, snippet, snippets

CONSUMERS = "docs/consumers.md"
KAFKA = "docs/from-kafka.md"
JAVA = "docs/from-java.md"
FROM_FIRST = 'consume_from_where="CONSUME_FROM_FIRST_OFFSET", name_server='


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def send(broker: EmbeddedBroker, topic: str, **settings: Any) -> None:
    with Producer("makers", name_server=broker.name_server) as producer:
        producer.send(Message(topic, b"hello", **settings))


def test_pulling(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    send(broker, "orders")
    code = snippet(CONSUMERS, "import PullConsumer,")
    run(code, broker.name_server)
    assert capsys.readouterr().out == "b'hello'\n"
    run(code, broker.name_server)
    assert capsys.readouterr().out == "", "the offset was not kept"


def test_pulling_on_a_schedule(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    send(broker, "orders")
    code = snippet(CONSUMERS, "PullConsumerScheduleService").replace("timeout=10", "timeout=1")
    run(code, broker.name_server)
    assert sum(map(int, capsys.readouterr().out.split())) == 1


def test_committing_what_a_loop_was_left_at(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, "orders")
    queue = MessageQueue("orders", "broker-a", 0)
    with Producer("makers", name_server=broker.name_server) as producer:
        for body in (b"first", b"last", b"next", b"last"):
            producer.send(Message("orders", body), queue=queue)
    code = snippet(CONSUMERS, "for message in consumer:").replace("name_server=", FROM_FIRST)
    printed = []
    for _ in range(2):
        run(code, broker.name_server)
        printed += capsys.readouterr().out.split()
    assert [line for line in printed if "hello" not in line] == [
        *("b'first'", "b'last'", "b'next'", "b'last'")
    ]


def test_choosing_by_properties(broker: EmbeddedBroker) -> None:
    for delay in ("61", "60"):
        send(broker, "flights", properties={"carrier": "UA", "delay": delay})
    code = snippet(CONSUMERS, "by_sql").replace("name_server=", FROM_FIRST)
    consumer = run(code, broker.name_server)["consumer"]
    assert isinstance(consumer, orbitmq.LitePullConsumer)
    with consumer:
        (message,) = consumer.poll(timeout=10)
        assert message.property("delay") == "61"
        assert consumer.poll(timeout=0.3) == []


def test_the_figures_in_the_program(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    run(snippet(CONSUMERS, "consume_status"), broker.name_server)
    assert "CONSUME_PASSIVELY" in capsys.readouterr().out


def test_a_hook(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    send(broker, "orders")
    code = snippet(CONSUMERS, "class Timing").replace("name_server=", FROM_FIRST)
    consumer = run(code, broker.name_server)["consumer"]
    assert isinstance(consumer, orbitmq.PushConsumer)
    consumer.subscribe("orders")
    printed: list[str] = []
    with consumer:
        wait_until(lambda: "CONSUME_SUCCESS" in "".join(printed + _read(capsys, printed)))


def _read(capsys: pytest.CaptureFixture[str], printed: list[str]) -> list[str]:
    printed.append(capsys.readouterr().out)
    return printed


def test_the_simulation_prints_what_is_shown() -> None:
    (command,) = snippets(CONSUMERS, "sh")
    arguments = command.split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = (ROOT / CONSUMERS).read_text()
    summary = shown[shown.index("strategy         min") :].split("```")[0]
    assert summary in done.stdout


def test_polling_as_one_used_to_kafka(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, "flights")
    code = snippet(KAFKA, "LitePullConsumer")
    run(code, broker.name_server)
    assert "b'hello'" in capsys.readouterr().out


def test_listening_as_one_used_to_kafka(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, "orders", tags="paid")
    code = snippet(KAFKA, "PushConsumer").replace("name_server=", FROM_FIRST)
    run(code.replace("timeout=10", "timeout=1"), broker.name_server)
    assert "b'hello'" in capsys.readouterr().out


def test_listening_as_one_used_to_java(broker: EmbeddedBroker) -> None:
    send(broker, "orders", tags="paid")
    scope = run(snippet(JAVA, "from orbitmq"), broker.name_server)
    consumer = scope["consumer"]
    assert isinstance(consumer, orbitmq.PushConsumer)
    try:
        wait_until(lambda: consumer.consume_status("orders").consume_ok_tps > 0)
    finally:
        consumer.shutdown()


def test_the_names_for_kafkas_exist() -> None:
    """Every call in the last column of its tables is one of a lite pull consumer."""
    text = (ROOT / KAFKA).read_text()
    names = [
        name
        for line in text[text.index("## Names") :].splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)\(", line.replace("\\|", "/").split("|")[-2])
    ]
    assert "poll" in names
    for name in names:
        assert hasattr(AsyncLitePullConsumer, name) or hasattr(orbitmq, name), name


def test_the_settings_for_kafkas_exist() -> None:
    text = (ROOT / KAFKA).read_text()
    rows = text[text.index("| configuration | here |") :].split("\n\n")[0].splitlines()[2:]
    settings = {field.name for field in msgspec.structs.fields(LitePullConfig)}
    names = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[2])}
    assert names
    assert names <= settings


def test_the_files_and_pages_they_name_exist() -> None:
    for page in (CONSUMERS, KAFKA, JAVA, "docs/clients.md"):
        text = (ROOT / page).read_text()
        for name in re.findall(r"`((?:client|wire|cli)/\w+\.py|allocate\.py)`", text):
            assert (ROOT / "src" / "orbitmq" / name).is_file(), name
        for name in re.findall(r"\]\((\w[\w.-]*\.md)\)", text):
            assert (ROOT / "docs" / name).is_file(), name


def test_every_python_snippet_is_run_here() -> None:
    assert len(snippets(CONSUMERS)) == 6
    assert len(snippets(KAFKA)) == 2
    assert len(snippets(JAVA)) == 1


def test_a_semicolon_would_end_a_statement_in_a_diagram() -> None:
    for page in (CONSUMERS, "docs/architecture.md"):
        diagrams = snippets(page, "mermaid")
        assert diagrams
        assert ";" not in "".join(diagrams)
