"""What a query has read becomes its group's offsets."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import ConnectionLostError, NetworkError
from orbitmq.net.blocking import Access, ConnectionCache
from orbitmq.spark.source.offsets import Offsets
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire.headers import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from tests.spark.planners import Topic


def test_what_is_durably_done_becomes_the_groups_offset(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b")
    planner = topic.planner(group="spark-readers")

    def committed() -> int:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group="spark-readers", topic=topic.name, queue_id=0,
            set_zero_if_not_found=False,
        )  # fmt: skip
        found = topic.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return found.header(OffsetResponseHeader).offset

    end = planner.latest_offset({"initial": "earliest"})
    reader = RangeReader(topic.name, "spark-readers", "*", fail_on_data_loss=True)
    list(reader.read(planner.ranges({"initial": "earliest"}, end)))
    planner.latest_offset(end)
    assert committed() == 2


def test_a_groups_offset_that_did_not_reach_its_broker_is_committed_again(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(broker)
    topic.send("a", "b")
    planner = topic.planner(group="spark-tellers")
    end = planner.latest_offset({"initial": "earliest"})
    asked: list[Offsets] = []
    commit = TopicClient.commit

    def noted(self: TopicClient, group: str, offsets: Offsets) -> Offsets:
        asked.append(offsets)
        return commit(self, group, offsets)

    monkeypatch.setattr(TopicClient, "commit", noted)
    with monkeypatch.context() as patch:
        patch.setattr(ConnectionCache, "borrow", refused)
        with suppress(NetworkError):
            planner.latest_offset(end)
    assert "offsets of group spark-tellers were not committed" in caplog.text
    planner.latest_offset(end)
    planner.latest_offset(end)
    assert len(asked) == 2
    assert asked[0] == asked[1]


def refused(_cache: ConnectionCache, address: str, _access: Access) -> NoReturn:
    raise ConnectionLostError("the broker is killed", address)
