"""The snippets of docs/admin.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq import Admin, EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.testing.wait import wait_until
from tests.docs.snippets import run, snippet, snippets

PAGE = "docs/admin.md"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_the_first_steps(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PAGE, "create_topic"), broker.name_server)
    assert capsys.readouterr().out.splitlines() == [f"broker-a {queue} 0 0" for queue in range(8)]


def test_the_progress_of_groups(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with Producer("makers", name_server=broker.name_server) as producer:
        producer.send(Message("flights", b"hello"))
    with LitePullConsumer("mailers", name_server=broker.name_server) as consumer:
        consumer.subscribe("flights")
        consumer.poll(timeout=0)
        with Admin(name_server=broker.name_server) as admin:
            wait_until(lambda: "%RETRY%mailers" in admin.list_topics())
        run(snippet(PAGE, "groups_progress"), broker.name_server)
        assert "mailers 1 " in capsys.readouterr().out
        run(snippet(PAGE, "consumer_progress"), broker.name_server)
        assert capsys.readouterr().out.startswith("1 0.0\n")


def test_partial_failures_and_dead_letters_compile() -> None:
    for code in snippets(PAGE):
        compile(code, PAGE, "exec")


def test_an_answer_of_a_topic(broker: EmbeddedBroker) -> None:
    with Producer("makers", name_server=broker.name_server) as producer:
        producer.send(Message("flights", b"hello"))
    found = run(snippet(PAGE, "PartialFailureError as error"), broker.name_server)
    assert found["stats"]
