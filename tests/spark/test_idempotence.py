"""deliveryGuarantee=idempotent: whatever is run again, each row is in the topic once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructType

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ConfigError, NetworkError, RowError
from orbitmq.spark.sink import begins, ledger, sending
from orbitmq.spark.sink.ledger import LEDGER_TOPIC, Ledger
from orbitmq.spark.sink.message_rows import MessageRows
from orbitmq.spark.sink.options import WriteOptions, write_options
from orbitmq.spark.sink.row_ids import CONTENT_DIGITS, RowIds
from orbitmq.store.config import StoreConfig
from tests.spark.spark_tasks import FlakyConnections, Killed, Query, killed_after, rows
from tests.spark.topics import Topic

pytestmark = pytest.mark.usefixtures("soon")
BATCH = 50


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker, 3)


@pytest.fixture
def guarantee() -> str:
    return "idempotent"


def test_a_task_that_is_killed_and_run_again(query: Query, topic: Topic) -> None:
    plan = query.plan(0)
    first, second = rows(["a", "b", "b"]), rows(["c", "d"])
    with pytest.raises(Killed):
        query.task(plan, 0, killed_after([first, rows(["c"] * 5000)]))
    sent = topic.counted()
    assert sent["b"] == 2  # a full batch had left
    query.task(plan, 0, [second, first])
    assert topic.counted() - sent == Counter({"d": 1})


def test_a_batch_that_is_run_again_by_a_new_driver(query: Query, topic: Topic) -> None:
    for _ in range(3):
        plan = query.plan(7)
        query.task(plan, 0, [rows(["a", "a", "b"])])
        query.task(plan, 1, [rows(["a", "c"], "key")])
    assert topic.counted() == Counter({"a": 3, "b": 1, "c": 1})
    query.task(query.plan(8), 0, [rows(["a"])])
    assert topic.counted()["a"] == 4


def test_other_queries_and_partitions_are_others(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = query.plan(0)
    query.task(plan, 0, [rows(["a"])])
    query.task(plan, 1, [rows(["a"])])
    monkeypatch.setitem(query._properties, "sql.streaming.queryId", "q-2")
    query.task(query.plan(0), 0, [rows(["a"])])
    assert topic.counted() == Counter({"a": 3})


def test_row_keys_count_in_any_partition_and_whatever_the_row_is(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = StructType().add("body", BinaryType()).add("rowKey", StringType())
    query = Query(
        monkeypatch, schema, nameServer=topic.broker.name_server, topic=topic.name,
        deliveryGuarantee="idempotent",
    )  # fmt: skip

    def keyed(**by_key: str) -> pa.RecordBatch:
        values = {"body": [text.encode() for text in by_key.values()], "rowKey": list(by_key)}
        return pa.RecordBatch.from_pydict(values)

    plan = query.plan(0)
    query.task(plan, 0, [keyed(k1="one", k2="two")])
    query.task(plan, 1, [keyed(k3="three")])
    plan = query.plan(0)
    query.task(plan, 0, [keyed(k3="other")])
    query.task(plan, 1, [keyed(k1="other", k4="four")])
    assert topic.bodies() == ["four", "one", "three", "two"]
    with pytest.raises(RowError, match="row 1: its rowKey is null or empty"):
        query.task(plan, 2, [keyed(k5="five"), keyed(**{"": "six"})])


@pytest.mark.parametrize("seed", range(3))
def test_a_history_of_crashes_leaves_each_row_once(
    query: Query, topic: Topic, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks killed anywhere, answers lost, batches run again, rows in another order each time."""
    chance = random.Random(seed)
    flaky = FlakyConnections(monkeypatch, 0.1, seed)
    monkeypatch.setattr(sending, "SINGLES", BATCH)
    monkeypatch.setattr("orbitmq.spark.sink.lanes.BATCH_MESSAGES", BATCH)
    expected: Counter[str] = Counter()
    for batch_id in range(4):
        parts = {number: [f"{chance.randrange(400)}" for _ in range(400)] for number in range(2)}
        for bodies in parts.values():
            expected.update(bodies)
        done = False
        while not done:  # every turn is another driver's
            plan = query.plan(batch_id)
            done = chance.random() < 0.5
            for number, bodies in parts.items():
                key = "key" if number else None
                while chance.random() < 0.4:
                    chance.shuffle(bodies)
                    end = chance.randrange(len(bodies))
                    with pytest.raises(Killed):
                        query.task(plan, number, killed_after([rows(bodies[:end], key)]))
                chance.shuffle(bodies)
                query.task(plan, number, [rows(bodies[:150], key), rows(bodies[150:], key)])
    assert topic.counted() == expected
    assert flaky.broken
    flaky.close()


def test_a_lost_answer_costs_no_double_and_no_order(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky = FlakyConnections(monkeypatch, 0.3)
    monkeypatch.setattr("orbitmq.spark.sink.lanes.BATCH_MESSAGES", 10)
    bodies = [f"{number:04}" for number in range(300)]
    query.task(query.plan(0), 0, [rows(bodies, "key")])
    (views,) = topic.by_queue().values()
    assert [view.body.decode() for view in views] == bodies
    assert flaky.broken > 3
    flaky.close()


def test_a_batch_write_is_run_again_under_its_id(broker: EmbeddedBroker) -> None:
    from orbitmq.spark.sink.writer import RocketMQWriter

    topic = Topic(broker)
    schema = StructType().add("body", BinaryType()).add("shardingKey", StringType())

    def write(**options: str) -> None:
        given = {"nameServer": broker.name_server, "topic": topic.name, **options}
        how = write_options({**given, "deliveryGuarantee": "idempotent"})
        RocketMQWriter(schema, how, overwrite=False).write(iter([rows(["a", "b"])]))

    write(writeId="orders of May")
    write(writeId="orders of May")
    assert topic.bodies() == ["a", "b"]
    write()
    write()
    assert topic.counted() == Counter({"a": 3, "b": 3})


def test_a_broker_of_an_earlier_run_must_be_there(query: Query, topic: Topic) -> None:
    query._options["brokerWaitMs"] = "0"
    begin = begins.Begin("stream:q-1:0", "other-run", 0, {0: 0}, ["broker-a", "gone"])
    book = Ledger(topic.broker.address, "broker-a", "tests")
    book.write(f"stream:q-1:0:0:{topic.name}", msgspec.json.encode(begin))
    with pytest.raises(RowError, match="stream:q-1:0 may have left messages on gone"):
        query.task(query.plan(0), 0, [rows(["a"])])


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """One that has no notes yet."""
    with EmbeddedBroker(store_config=StoreConfig(message_index_enable=False)) as running:
        yield running


def test_a_broker_that_does_not_show_its_notes_is_named(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "NOTE_WAIT_SECONDS", 0)
    monkeypatch.setattr(Ledger, "find", lambda *_: [])
    query._options["brokerWaitMs"] = "0"
    with pytest.raises(RowError, match="does not show it after 0 s"):
        query.task(query.plan(0), 0, [rows(["a"])])


def test_all_notes_of_a_key_are_found_and_no_others(
    own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a broker without a key index, for Apache's loses some of its when it is killed."""
    book = Ledger(own_broker.address, "broker-a", "tests")
    assert book.find("some") == []
    monkeypatch.setattr(ledger, "LEDGER_QUEUES", 1)  # all keys in one queue
    offsets = [book.write(key, b"%d" % number) for number in range(200) for key in ("some", "more")]
    own, notes = book.write_and_find("some", b"last")
    assert [note.log_offset for note in notes] == [*offsets[::2], own]
    assert [note.body for note in notes] == [*(b"%d" % number for number in range(200)), b"last"]
    monkeypatch.setattr(ledger, "_tag", lambda _: "the same")
    assert len(book.write_and_find("other", b"")[1]) == 1
    assert book.find("others") == []
    with pytest.raises(NetworkError):
        Ledger("127.0.0.1:1", "b", "tests").find("some")
    assert LEDGER_TOPIC == "orbitmq_spark_writes"


@given(st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=20), st.randoms())
def test_ids_depend_on_the_content_alone(bodies: list[bytes], order: random.Random) -> None:
    options = WriteOptions(name_servers=("127.0.0.1:1",), topic="T")

    def ids(values: list[bytes], scope: str = "q:0") -> list[bytes]:
        made = MessageRows(pa.RecordBatch.from_pydict({"body": values}), options, 65_530)
        return [bytes(row) for row in RowIds(scope).of(made)]

    first = ids(bodies)
    assert len(set(first)) == len(bodies)
    contents = {body: row[:CONTENT_DIGITS] for body, row in zip(bodies, first, strict=True)}
    assert len(set(contents.values())) == len(contents)
    again = order.sample(bodies, len(bodies))
    for body, row in zip(again, ids(again), strict=True):
        assert row[:CONTENT_DIGITS] == contents[body]
        assert len(bytes.fromhex(row.decode())) == 16
    assert not {row[:CONTENT_DIGITS] for row in ids(bodies, "q:1")} & {*contents.values()}


def test_delays_are_refused(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="delayMs='5'.*at_least_once"):
        write_options({"nameServer": "a:1", "deliveryGuarantee": "idempotent", "delayMs": "5"})
    with pytest.raises(ConfigError, match="deliveryGuarantee='twice'.*idempotent"):
        write_options({"nameServer": "a:1", "deliveryGuarantee": "twice"})
    with pytest.raises(ConfigError, match="writeId=.x.*exactly_once alone"):
        write_options({"nameServer": "a:1", "writeId": "x"})
    maps = pa.array([[("DELAY", "3")]], pa.map_(pa.string(), pa.string()))
    table = StructType().add("body", BinaryType()).add("delayTimeLevel", IntegerType())
    query._schema = table.add("properties", MapType(StringType(), StringType()))
    batch = pa.RecordBatch.from_pydict({"body": [b"a"], "properties": maps})
    with pytest.raises(RowError, match="row 0: a delay, which needs deliveryGuarantee"):
        query.task(query.plan(0), 0, [batch])
