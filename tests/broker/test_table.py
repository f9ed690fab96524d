"""The tables of settings in pages, while they change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.topics import TopicTable
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import TopicConfig

STEPS = st.tuples(
    st.sampled_from(["put", "delete", "page"]), st.sampled_from("ABCDE"), st.integers(0, 20)
)


@given(st.lists(STEPS, max_size=30))
def test_pages_are_those_of_the_table_as_it_is(steps: list[tuple[str, str, int]]) -> None:
    table = TopicTable(BrokerConfig(), ManualClock().now_ms, 18)
    for kind, name, number in steps:
        if kind == "put":
            table.put(TopicConfig(name, number, number))
        elif kind == "delete":
            table.delete(name)
        else:
            names = sorted(table.topics)[number : number + 3]
            assert list(table.page(table.version, number, 3)) == names
            first = sorted(table.topics)[:3]
            assert list(table.page(None, number, 3)) == first
