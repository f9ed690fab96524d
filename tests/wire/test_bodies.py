"""Command bodies are read from, and written as, what Apache's own classes of 4.9 and 5.5 give."""

from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.message import MessageQueue
from orbitmq.wire import fastjson, registration
from orbitmq.wire.bodies import (
    Body,
    BrokerData,
    CheckClientRequestBody,
    ClusterInfo,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    ConsumeType,
    DataVersion,
    ExponentialRetryPolicy,
    GetConsumerListByGroupResponseBody,
    GroupRetryPolicy,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    MessageQueues,
    ProducerData,
    QueueData,
    SimpleSubscriptionData,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicQueueMappingInfo,
    TopicRouteData,
    TopicStatsTable,
    UnlockBatchRequestBody,
)
from orbitmq.wire.registration import RegisterBrokerBody

GOLDEN: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "golden" / "bodies.json").read_text("utf-8")
)
NEWEST = GOLDEN["5.5.0"]
BEFORE = GOLDEN["4.9.7"]

# The same values as in golden/Bodies.java.
BROKER = BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911", 1: "127.0.0.2:10911"})
ROUTE = TopicRouteData([QueueData("broker-a", 8, 4, 6)], [BROKER])
MAPPING = TopicQueueMappingInfo(
    "flights", total_queues=8, bname="broker-a", epoch=5, curr_id_map={0: 3}
)
STATIC_ROUTE = TopicRouteData(
    ROUTE.queue_datas,
    ROUTE.broker_datas,
    order_topic_conf="broker-a:4",
    topic_queue_mapping_by_broker={"broker-a": MAPPING},
)
TAGS = SubscriptionData(
    "flights",
    "TagA || TagB",
    frozenset({"TagA", "TagB"}),
    frozenset({2598919, 2598920}),
    1700000000123,
)
HEARTBEAT = HeartbeatData(
    "192.168.0.1@4711#1",
    [ProducerData("orders")],
    [
        ConsumerData(
            "readers",
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            [TAGS],
        )
    ],
    1613323720,
)
QUEUE = MessageQueue("flights", "broker-a", 3)
VERSION = DataVersion(2, 1700000000456, 7)
TOPIC = TopicConfig("flights", 8, 4, 6, attributes={"+message.type": "NORMAL"})
REGISTRATION = RegisterBrokerBody(
    TopicConfigAndMappingSerializeWrapper(
        {"flights": TOPIC}, VERSION, mapping_data_version=DataVersion(0, 1700000000789, 1)
    ),
    ["127.0.0.1:9999"],
)
GROUP = SubscriptionGroupConfig("readers")

BODIES: dict[str, Body] = {
    "route": ROUTE,
    "route_static": STATIC_ROUTE,
    "heartbeat": HEARTBEAT,
    "heartbeat_empty": HeartbeatData(),
    "consumer_list": GetConsumerListByGroupResponseBody(["a@1", "b@2"]),
    "check_client": CheckClientRequestBody("a@1", "readers", TAGS),
    "lock_request": LockBatchRequestBody(
        "readers", "a@1", MessageQueues([QUEUE]), only_this_broker=True
    ),
    "lock_response": LockBatchResponseBody(MessageQueues([QUEUE])),
    "unlock_request": UnlockBatchRequestBody("readers", "a@1", MessageQueues([QUEUE])),
    "data_version": VERSION,
    "topic_config": TOPIC,
    "topic_config_table": TopicConfigSerializeWrapper({"flights": TOPIC}, VERSION),
    "register_broker": REGISTRATION,
    "subscription_group": GROUP,
    "subscription_group_full": SubscriptionGroupConfig(
        "writers",
        group_retry_policy=GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1000, 60000, 3)),
        subscription_data_set=[SimpleSubscriptionData("flights", "TAG", "*", 5)],
    ),
    "subscription_group_table": SubscriptionGroupWrapper({"readers": GROUP}, data_version=VERSION),
    "consumer_offsets": ConsumerOffsetSerializeWrapper({"flights@readers": {0: 5, 1: 6}}, VERSION),
    "cluster_info": ClusterInfo({"broker-a": BROKER}, {"DefaultCluster": frozenset({"broker-a"})}),
    "topic_stats": TopicStatsTable(
        {
            MessageQueue("flights", "broker-a", 0): TopicOffset(0, 10, 1700000000000),
            MessageQueue("flights", "broker-a", 1): TopicOffset(1, 11, 1700000000001),
        }
    ),
}


def test_every_captured_body_is_tried() -> None:
    rest = {"route_standard", "register_broker_compressed", "register_broker_static_compressed"}
    assert BODIES.keys() | rest == NEWEST.keys()
    assert NEWEST.keys() > BEFORE.keys()


@pytest.mark.parametrize("name", BODIES)
def test_written_as_java_5_writes_it(name: str) -> None:
    assert BODIES[name].encode().decode() == NEWEST[name]


@pytest.mark.parametrize("name", BODIES)
def test_what_java_5_writes_is_read(name: str) -> None:
    body = BODIES[name]
    assert type(body).decode(NEWEST[name].encode()) == body


@pytest.mark.parametrize("name", BODIES)
def test_written_for_standard_readers_it_is_standard_json(name: str) -> None:
    body = BODIES[name]
    if isinstance(body, TopicStatsTable):
        with pytest.raises(TypeError, match="no key"):
            body.encode(standard=True)
    else:
        data = body.encode(standard=True)
        json.loads(data)
        assert type(body).decode(data) == body


def test_a_route_for_clients_from_4_9_4_on() -> None:
    assert STATIC_ROUTE.encode(standard=True).decode() == NEWEST["route_standard"]
    assert TopicRouteData.decode(NEWEST["route_standard"].encode()) == STATIC_ROUTE


def contains(whole: Any, part: Any) -> bool:
    """Whether ``whole`` is ``part`` but for further members of its objects."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("name", sorted(BEFORE.keys() & BODIES.keys()))
def test_what_java_4_9_writes_is_read(name: str) -> None:
    """4.9 knows fewer fields; what it wrote comes back, among fields with their defaults."""
    body = type(BODIES[name]).decode(BEFORE[name].encode())
    assert contains(fastjson.decode(body.encode()), fastjson.decode(BEFORE[name].encode()))


def test_the_fields_4_9_writes() -> None:
    route = TopicRouteData.decode(BEFORE["route"].encode())
    assert (route.queue_datas, route.broker_datas) == (ROUTE.queue_datas, [BROKER])
    heartbeat = HeartbeatData.decode(BEFORE["heartbeat"].encode())
    assert heartbeat.consumer_data_set == HEARTBEAT.consumer_data_set
    assert heartbeat.heartbeat_fingerprint == 0
    lock = LockBatchRequestBody.decode(BEFORE["lock_request"].encode())
    assert lock.mq_set == MessageQueues([QUEUE])
    stats = TopicStatsTable.decode(BEFORE["topic_stats"].encode())
    assert stats == BODIES["topic_stats"]
    assert SubscriptionGroupConfig.decode(BEFORE["subscription_group"].encode()) == GROUP


def test_what_other_clients_send_is_read() -> None:
    """Numbers as strings and no tags (C++), nulls for empty sets, unknown fields, spaces."""
    data = b"""{
        "clientID": "a@1", "producerDataSet": null, "newField": {"x": [1]},
        "consumerDataSet": [{"groupName": "readers", "consumeType": null, "subscriptionDataSet": [
            {"topic": "T", "subString": "*", "subVersion": "1700000000123", "tagsSet": null},
            {"topic": "U", "subString": "A", "codeSet": ["65"], "tagsSet": ["A"]}
        ]}]
    }"""
    heartbeat = HeartbeatData.decode(data)
    assert heartbeat == HeartbeatData(
        "a@1",
        consumer_data_set=[
            ConsumerData(
                "readers",
                subscription_data_set=[
                    SubscriptionData("T", "*", sub_version=1700000000123),
                    SubscriptionData("U", "A", frozenset("A"), frozenset({65})),
                ],
            )
        ],
    )


@pytest.mark.parametrize("quote", [b"", b'"'])
def test_integer_keys_with_and_without_quotes(quote: bytes) -> None:
    data = b'{"brokerAddrs":{%b0%b:"h:1"},"brokerName":"b","cluster":"c"}' % (quote, quote)
    broker = BrokerData.decode(data)
    assert broker.broker_addrs == {0: "h:1"}
    assert broker.master_address == "h:1"
    assert BrokerData("c", "b", {1: "h:2"}).master_address is None


def test_a_buffer_of_the_connection_can_be_read() -> None:
    buffer = memoryview(bytearray(b"..." + NEWEST["cluster_info"].encode() + b"..."))
    assert ClusterInfo.decode(buffer[3:-3]) == BODIES["cluster_info"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "a value is missing"),
        (b"null", "Expected `object`, got `null`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `consumerGroup`"),
        (b'{"consumerGroup":1,"clientId":"c"}', "consumerGroup"),
        (b'{"consumerGroup":"g","clientId":"c","mqSet":7}', "mqSet"),
        (b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T"}]}', "brokerName"),
        (b'{"consumerGroup":"g\xff","clientId":"c"}', "byte 17"),
        (b'{0:{"consumerGroup":"g","clientId":"c"}', "byte 39"),
        (b"[" * 1_000_000, "nest"),
    ],
)
def test_a_bad_body_says_which_and_why(data: bytes, why: str) -> None:
    with pytest.raises(BodyError, match=f"^LockBatchRequestBody: .*{why}"):
        LockBatchRequestBody.decode(data)


def test_an_object_key_that_is_no_queue() -> None:
    with pytest.raises(BodyError, match=r"TopicStatsTable: .* is no key: .*topic"):
        TopicStatsTable.decode(b'{"offsetTable":{{"queueId":1}:{}}}')


@given(name=st.sampled_from(sorted(BODIES)), at=st.integers(0), change=st.binary(max_size=3))
def test_damaged_bodies_raise_nothing_but_body_error(name: str, at: int, change: bytes) -> None:
    data = NEWEST[name].encode()
    at %= len(data)
    with suppress(BodyError):
        type(BODIES[name]).decode(data[:at] + change + data[at + len(change) :])


names = st.text(st.characters(codec="utf-8"), max_size=20)
queues = st.builds(MessageQueue, names, names, st.integers(0, 2**31 - 1))
longs = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        TopicStatsTable,
        st.dictionaries(queues, st.builds(TopicOffset, longs, longs, longs)),
        st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_object_keyed_tables_come_back(table: TopicStatsTable) -> None:
    assert TopicStatsTable.decode(table.encode()) == table


@given(st.builds(LockBatchRequestBody, names, names, st.frozensets(queues).map(MessageQueues)))
def test_sets_of_queues_come_back(body: LockBatchRequestBody) -> None:
    assert LockBatchRequestBody.decode(body.encode()) == body


def test_data_versions_go_on() -> None:
    assert VERSION.next(1700000000999) == DataVersion(0, 1700000000999, 8)


# The compressed registration


def test_a_compressed_registration_of_java_is_read() -> None:
    body = RegisterBrokerBody.decode_compressed(bytes.fromhex(NEWEST["register_broker_compressed"]))
    topics = body.topic_config_serialize_wrapper
    assert topics.topic_config_table == {"flights": TOPIC}
    assert topics.data_version == VERSION
    assert body.filter_server_list == ["127.0.0.1:9999"]


def test_a_compressed_registration_with_static_topics_is_read() -> None:
    data = bytes.fromhex(NEWEST["register_broker_static_compressed"])
    topics = RegisterBrokerBody.decode_compressed(data).topic_config_serialize_wrapper
    assert topics.topic_queue_mapping_info_map == {"flights": MAPPING}


def test_a_compressed_registration_of_4_9_is_read() -> None:
    body = RegisterBrokerBody.decode_compressed(bytes.fromhex(BEFORE["register_broker_compressed"]))
    topics = body.topic_config_serialize_wrapper
    assert topics.topic_config_table == {"flights": TopicConfig("flights", 8, 4, 6)}
    assert topics.data_version == DataVersion(0, 1700000000456, 7)


def compressed(*parts: bytes | int) -> bytes:
    """A stream of counts and length-prefixed parts."""
    return zlib.compress(
        b"".join(
            struct.pack(">i", part)
            if isinstance(part, int)
            else struct.pack(">i", len(part)) + part
            for part in parts
        )
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is cut"),
        (b"{}", "cannot be unpacked"),
        (compressed(b"{}")[:-1], "is cut"),
        (compressed(b"{}", 1), "ends within a part of 4 bytes"),
        (compressed(b"{}", -1), "ends within a part of 4 bytes"),
        (compressed(b"{}", 1, b"T 1 2"), "has the topic b'T 1 2'"),
        (compressed(b"{}", 1, b"T one 2 6 SINGLE_TAG {}"), "has the topic"),
        (compressed(b"{}", 1, b"T 1 2 6 SINGLE_TAG {"), "has the topic"),
        (compressed(b"{}", 1, b"T 1 2 6 SINGLE_TAG []"), "has the topic"),
        (compressed(b"{}", 1, b"\xff 1 2 6 SINGLE_TAG"), "has the topic"),
        (compressed(b"[]", 0, b"[]"), "DataVersion"),
        (compressed(b"{}", 0, b"{}"), "Expected `array`"),
        (compressed(b"{}", 0, 1000), "ends within a part of 1000 bytes"),
    ],
)
def test_a_bad_compressed_registration_says_why(data: bytes, why: str) -> None:
    with pytest.raises(BodyError, match=why):
        RegisterBrokerBody.decode_compressed(data)


def test_a_compressed_registration_cannot_grow_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "MAX_INFLATED", 1000)
    with pytest.raises(BodyError, match="longer than 1000 bytes"):
        RegisterBrokerBody.decode_compressed(compressed(b"{}", 1, b"T" * 2000))
