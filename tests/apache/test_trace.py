"""Traces: Apache's own decoder reads our records, and its encoder writes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq import LitePullConsumer, MessageType, PushConsumer
from orbitmq.wire.trace import (
    FIELD_END,
    RECORD_END,
    ConsumeTrace,
    ContextCode,
    SentMessage,
    TracedMessage,
    recalled,
)
from tests.apache.exchanges import send_messages
from tests.apache.java_program import JavaProgram, options
from tests.apache.python_clients import PATIENT
from tests.consumer_program import FROM_FIRST
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from orbitmq import MessageView
    from tests.apache.jars import ApacheRelease
    from tests.apache.orbit import Cluster

COUNT = 6

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def by_apache(release: ApacheRelease, records: str) -> list[str]:
    """The records, decoded and encoded again by Apache's class."""
    arguments = options({"records": records.encode().hex()})
    with JavaProgram(release, "TraceRecords", arguments) as program:
        program.wait()
        return [str(value) for value in program.values("record")]


def cut(records: str) -> list[str]:
    return [record + RECORD_END for record in records.split(RECORD_END)[:-1]]


def test_apaches_classes_read_and_write_the_same_records(apache: ApacheRelease) -> None:
    messages = [
        TracedMessage("orders", "7F0000010B7763947C65000A7D0C0000", "a-1 a-2", 0),
        TracedMessage("orders", "7F0000010B7763947C65000A7D0C0001", None, 3),
    ]
    trace = ConsumeTrace.begin("mailers", "DefaultRegion", 1_700_000_000_000, messages)
    records = trace.before()
    records += trace.after(12, ContextCode.SUCCESS, 1_700_000_000_024, success=True)
    records += trace.after(7, ContextCode.TIME_OUT, 1_700_000_000_014, success=False)
    sent = SentMessage("orders", "ID", "paid", None, "127.0.0.1:10911", MessageType.DELAY)
    records += sent.published(
        "shops",
        "DefaultRegion",
        1_700_000_000_000,
        4,
        body_length=7,
        offset_message_id="OFFSET",
        success=True,
    )
    records += sent.transaction_ended(
        "shops",
        "DefaultRegion",
        1_700_000_000_000,
        transaction_id="ID",
        state="ROLLBACK_MESSAGE",
        from_check=True,
    )
    records += recalled("shops", "DefaultRegion", 1_700_000_000_000, "orders", "ID", success=False)
    assert by_apache(apache, records) == cut(records)


def test_a_consumer_is_traced_on_every_broker(cluster: Cluster, apache: ApacheRelease) -> None:
    topic = cluster.new_topic("traced", 2, brokers=2)
    traces = cluster.new_topic("traces", 1, brokers=2)
    send_messages(cluster.name_server, topic, range(COUNT))
    consumed: list[MessageView] = []
    consumer = PushConsumer(
        f"{topic}-workers",
        consumed.extend,
        name_server=cluster.name_server,
        consume_from_where=FROM_FIRST,
        enable_trace=True,
        trace_topic=traces,
        **PATIENT,
    )
    consumer.subscribe(topic)
    with consumer:
        eventually(lambda: len(consumed) == COUNT, f"{COUNT} messages", lambda: consumed)
    records = ""
    with LitePullConsumer(
        f"{topic}-auditors",
        name_server=cluster.name_server,
        consume_from_where=FROM_FIRST,
        **PATIENT,
    ) as auditor:
        auditor.subscribe(traces)
        while records.count(RECORD_END) < 2 * COUNT:
            polled = auditor.poll(timeout=PATIENCE_SECONDS)
            assert polled, f"only these came: {records!r}"
            records += "".join(message.body.decode() for message in polled)
    ids = {message.message_id for message in consumed}
    told = [record.split(FIELD_END) for record in by_apache(apache, records)]
    assert {record[5] for record in told if record[0] == "SubBefore"} == ids
    assert {record[2] for record in told if record[0] == "SubAfter"} == ids
    assert len(told) == 2 * COUNT
