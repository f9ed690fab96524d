"""Apache's Java consumers subscribe by SQL92 on our broker, beside ours, and all get the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import LitePullConsumer, Message, MessageSelector, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import SUBSCRIPTION_PARSE_FAILED
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram, options
from tests.apache.python_clients import PATIENT, new_producer
from tests.consumer.push.pushing import Inbox
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq import MessageView, Producer

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]

WANTED = "(price BETWEEN 10 AND 20 OR note IS NULL) AND carrier NOT IN ('DL')"
COUNT = 200
FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"


def offer(number: int) -> Message:
    properties = {"price": str(number % 40), "carrier": ("UA", "AA", "DL")[number % 3]}
    if number % 7:
        properties["note"] = "dear" if number % 40 > 20 else "cheap"
    return Message("offers", b".", keys=f"k{number}", properties=properties)


def is_wanted(number: int) -> bool:
    return (10 <= number % 40 <= 20 or number % 7 == 0) and number % 3 != 2


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_java_consumers_are_filtered_for_as_ours(version: str) -> None:
    release = release_or_skip(version)
    wanted = sorted(f"k{number}" for number in range(COUNT) if is_wanted(number))
    with EmbeddedBroker() as broker, new_producer("senders", broker.name_server) as sender:
        send(sender, range(COUNT // 2))
        arguments = {
            "nameServer": broker.name_server,
            "topic": "offers",
            "sql": WANTED,
            "broken": "price >",
        }
        with JavaProgram(release, "SqlConsumers", options(arguments)) as java:
            code, words = java.wait_for("refused")
            assert code == SUBSCRIPTION_PARSE_FAILED
            assert "expression='price >' is not allowed: at its end" in words
            assert consumed_by_ours(broker.name_server, sender, len(wanted)) == [wanted, wanted]
            java.wait_until(lambda: len(java.values("pushed")) >= len(wanted), "all pushed")
            java.wait_until(lambda: len(java.values("polled")) >= len(wanted), "all polled")
            java.stop()
    assert sorted(java.values("pushed")) == wanted
    assert sorted(java.values("polled")) == wanted


def send(producer: Producer, numbers: Iterable[int]) -> None:
    for number in numbers:
        producer.send(offer(number))


def consumed_by_ours(server: str, producer: Producer, count: int) -> list[list[str]]:
    """What our consumers get, both kinds, while the second half of the offers is sent."""
    pushed = Inbox()
    polled: list[MessageView] = []
    settings: dict[str, Any] = {"name_server": server, "consume_from_where": FROM_FIRST, **PATIENT}
    with (
        PushConsumer("our-pushed", pushed, **settings) as push,
        LitePullConsumer("our-polled", **settings) as pull,
    ):
        push.subscribe("offers", MessageSelector.by_sql(WANTED))
        pull.subscribe("offers", MessageSelector.by_sql(WANTED))
        send(producer, range(COUNT // 2, COUNT))
        while len(polled) < count:
            messages = pull.poll(PATIENCE_SECONDS)
            assert messages, f"{len(polled)} of {count} polled"
            polled += messages
        eventually(lambda: len(pushed.messages) >= count, f"{count} pushed")
    return [sorted(str(message.keys) for message in got) for got in (pushed.messages, polled)]
