"""The tables of settings in pages, while they change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.topics import TopicTable
from orbitmq.codes import RequestCode
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.topic_bodies import CreateTopicListRequestBody
from tests.broker.remote import Client, Running, with_broker

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


def test_a_long_list_is_taken_in_a_piece_at_a_time_and_all_or_none() -> None:
    async def scenario(node: Running, client: Client) -> None:
        async def make(names: list[str]) -> int:
            topics = [TopicConfig(name, 2, 2) for name in names]
            body = CreateTopicListRequestBody(topics).encode()
            return (await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)).code

        names = [f"T{number}" for number in range(1_000)]
        table = node.broker.topics
        assert await make([*names, "not a name"]) == codes.INVALID_PARAMETER
        assert not set(names) & table.topics.keys()
        assert await make(names) == codes.SUCCESS
        assert set(names) < table.topics.keys()
        assert not table.changes  # all are written down
        assert set(names) <= node.node.routes.topics().topic_list
        pieces = sum(1 for _ in table.updating([TopicConfig(name, 3, 3) for name in names]))
        assert pieces >= 4  # between which others have their turn
        assert {table.topics[name].read_queue_nums for name in names} == {3}

    with_broker(scenario)
