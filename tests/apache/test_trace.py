"""Apache's own trace decoder reads our trace records, and its encoder writes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.wire.trace import RECORD_END, ConsumeTrace, ContextCode, TracedMessage
from tests.apache.java_program import JavaProgram, options

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def test_apaches_classes_read_and_write_the_same_records(apache: ApacheRelease) -> None:
    messages = [
        TracedMessage("orders", "7F0000010B7763947C65000A7D0C0000", "a-1 a-2", 0),
        TracedMessage("orders", "7F0000010B7763947C65000A7D0C0001", None, 3),
    ]
    trace = ConsumeTrace.begin("mailers", "DefaultRegion", 1_700_000_000_000, messages)
    records = trace.before()
    records += trace.after(12, ContextCode.SUCCESS, 1_700_000_000_024, success=True)
    records += trace.after(7, ContextCode.TIME_OUT, 1_700_000_000_014, success=False)
    arguments = options({"records": records.encode().hex()})
    with JavaProgram(apache, "TraceRecords", arguments) as program:
        program.wait()
        decoded = program.values("record")
    assert decoded == [record + RECORD_END for record in records.split(RECORD_END)[:-1]]
