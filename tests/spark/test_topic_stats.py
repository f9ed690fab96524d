"""The fast reader of a topic's statistics reads what the general one reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.message import MessageQueue
from orbitmq.spark.source.topic_stats import read_ranges
from orbitmq.wire.bodies import TopicOffset, TopicStatsTable

NUMBERS = st.integers(-1, 2**62)
NAMES = st.text('a-%}{:",\\ 0é', min_size=1)


@given(
    st.dictionaries(st.integers(0, 2000), st.builds(TopicOffset, NUMBERS, NUMBERS, NUMBERS)),
    NAMES,
    NAMES,
)
def test_ranges_by_queue_whatever_the_names(
    ranges: dict[int, TopicOffset], topic: str, broker_name: str
) -> None:
    table = {MessageQueue(topic, broker_name, number): item for number, item in ranges.items()}
    assert read_ranges(TopicStatsTable(table, 1.5).encode()) == ranges


JAVAS = (
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":7,'
    b'"maxOffset":9,"minOffset":2},{"brokerName":"b","queueId":3,"topic":"T"}:{'
    b'"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}'
)


@pytest.mark.parametrize(
    "body",
    [JAVAS, JAVAS.replace(b":{", b" : {"), JAVAS.replace(b'"queueId":0,', b'"queueId": 0 ,')],
)
def test_as_java_writes_it_and_with_blanks(body: bytes) -> None:
    assert read_ranges(body) == {0: TopicOffset(2, 9, 7), 3: TopicOffset(0, 0, 0)}


@pytest.mark.parametrize("body", [b"", b"{", JAVAS[:90], b'{"offsetTable":{{"queueId":0}}}'])
def test_anything_else_is_an_error(body: bytes) -> None:
    with pytest.raises(BodyError):
        read_ranges(body)
