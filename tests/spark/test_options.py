"""Options are read as given, and refused by name, value and what may be."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigError
from orbitmq.spark.option_values import duration_ms, size_bytes
from orbitmq.spark.sink.options import WriteOptions, write_options
from orbitmq.spark.source.boundaries import Ago, Times
from orbitmq.spark.source.choice import Choice
from orbitmq.spark.source.offsets import Queue
from orbitmq.spark.source.options import Admission, ReadOptions, read_options
from orbitmq.spark.source.planning import TaskLimits

LEAST = {"nameserver": "127.0.0.1:9876", "topic": "flights"}


def read(options: dict[str, str] | None = None, *, streaming: bool | None = False) -> ReadOptions:
    return read_options(LEAST | (options or {}), streaming=streaming)


def test_defaults() -> None:
    batch = read()
    assert batch.name_servers == ("127.0.0.1:9876",)
    assert (batch.starting_offsets, batch.ending_offsets) == ("earliest", "latest")
    assert batch.tags is None
    assert batch.reading_group == "TOOLS_CONSUMER"
    assert batch.fail_on_data_loss
    assert batch.tasks.most >= 1
    assert (batch.tasks.split_queues, read(streaming=True).tasks.split_queues) == (True, False)
    assert read(streaming=True).starting_offsets == "latest"
    assert write_options(LEAST) == WriteOptions(name_servers=batch.name_servers, topic="flights")


def test_every_option_is_read() -> None:
    options = read_options(
        {
            "nameServer": "ns1:9876; [::1]:9877",
            "namespace": "prod",
            "topics": "flights,bookings",
            "tags": "UA || AA",
            "group": "readers",
            "startingOffsets": '{"flights": {"broker-a": {"0": 3}}}',
            "startingOffsetsByTimestampStrategy": "error",
            "newQueueOffsets": "latest",
            "minOffsetsPerTrigger": "50",
            "maxOffsetsPerTrigger": "500",
            "minBytesPerTrigger": "1k",
            "maxBytesPerTrigger": "1m",
            "maxTriggerDelay": "2m",
            "failOnDataLoss": "FALSE",
            "maxTasks": "3",
            "minPartitions": "2",
            "maxRecordsPerPartition": "1000",
            "idleWaitMs": "0",
            "brokerWaitMs": "500",
            "checkpointLocation": "/somewhere",
            "queryName": "flights",
        },
        streaming=True,
    )
    assert options == ReadOptions(
        name_servers=("ns1:9876", "[::1]:9877"),
        namespace="prod",
        choice=Choice(("flights", "bookings")),
        tags=frozenset({"UA", "AA"}),
        expression="UA || AA",
        group="prod%readers",
        starting_offsets={Queue("flights", "broker-a", 0): 3},
        late_start_is_error=True,
        new_queue_offsets="latest",
        admission=Admission(
            min_offsets=50,
            max_offsets=500,
            min_bytes=1024,
            max_bytes=2**20,
            max_delay_ms=120_000,
        ),
        fail_on_data_loss=False,
        tasks=TaskLimits(most=3, least=2, most_rows=1000, split_queues=True),
        idle_wait_ms=0,
        broker_wait_ms=500,
    )
    assert options.reading_group == "prod%readers"
    assert options.wire_topic("flights") == "prod%flights"


def test_begins_and_ends() -> None:
    assert read({"startingtimestamp": "5"}).starting_offsets == Times(5)
    by_queue = '{"broker-a": {"0": 7}}'
    times = Times(None, {Queue("flights", "broker-a", 0): 7})
    assert read({"startingoffsetsbytimestamp": by_queue}).starting_offsets == times
    assert read({"endingoffsetsbytimestamp": by_queue}).ending_offsets == times
    assert read({"endingtimestamp": "5"}).ending_offsets == Times(5)
    assert read({"endingoffsets": "-10m"}).ending_offsets == Ago(600_000)
    assert read({"startingoffsets": "group", "group": "g"}).starting_offsets == "group"


def test_a_condition_in_sql() -> None:
    options = read({"sql": "price > 10 AND carrier IN ('UA', 'AA')"})
    assert options.expression_type == "SQL92"
    assert options.expression == "price > 10 AND carrier IN ('UA', 'AA')"
    assert options.tags is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "a,b"}, "topics='a,b' .* topic is given too; leave one out"),
        ({"tags": "UA", "sql": "a = 1"}, "tags='UA' .* sql is given too"),
        ({"startingtimestamp": "5", "startingoffsets": "latest"}, "startingTimestamp is given too"),
        ({"startingoffsets": "group"}, "give the option group, whose offsets they are"),
        ({"minoffsetspertrigger": "9", "maxoffsetspertrigger": "5"}, "no more than maxOffsets"),
        ({"maxtriggerdelay": "5m"}, "no effect without a least"),
        ({"maxrecordsperpartition": "5", "splitqueues": "false"}, "leave one of them out"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(options, streaming=None)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("nameServer", "localhost", "'localhost' is not host:port"),
        ("nameServer", "a:1;b:70000", "'b:70000' is not host:port"),
        ("nameServer", " ", "is not host:port"),
        ("topic", "no spaces", "illegal character"),
        ("tags", "||", "tags as in"),
        ("group", "a b", "illegal character"),
        ("startingOffsets", "begin", "earliest, latest, group, the last"),
        ("maxTasks", "0", "a whole number, 1 or more"),
        ("maxTasks", "two", "a whole number, 1 or more"),
        ("failOnDataLoss", "no", "true or false"),
        ("sql", "price >", "here must be a property"),
        ("sql", "a = 1 b = 2", "brokers would ignore 'b = 2'"),
        ("namespace", "a%b", "without %"),
        ("newQueueOffsets", "group", "one of earliest, latest"),
        ("maxTriggerDelay", "soon", "a time such as"),
        ("startingTimestamp", "2026-01-01", "with its zone"),
    ],
)
def test_a_bad_value_is_refused(name: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read({name.lower(): value}, streaming=None)
    assert (caught.value.name, caught.value.value) == (name, value)
    assert allowed in caught.value.allowed


@pytest.mark.parametrize("name", ["subscribePattern", "topics", "assign"])
def test_bad_choices_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='\\['"):
        read_options({"nameServer": "127.0.0.1:9876", name: "["}, streaming=False)


@pytest.mark.parametrize("name", ["nameServer", "topic"])
def test_what_must_be_given(name: str) -> None:
    options = {key: value for key, value in LEAST.items() if key != name.lower()}
    with pytest.raises(ConfigError, match=rf'{name}=None .*\.option\("{name}"'):
        read_options(options, streaming=False)


def test_an_unknown_option_is_refused_with_the_nearest_known() -> None:
    with pytest.raises(ConfigError, match="startingofset='x'.*did you mean startingOffsets?"):
        read({"startingofset": "x"})
    with pytest.raises(ConfigError, match="writing has nameServer, .*topic, "):
        write_options(LEAST | {"endingoffsets": "latest"})


def test_what_spark_adds_is_let_through_and_what_resembles_it_is_not() -> None:
    """Spark hands on queryName and checkpointLocation as if they were the format's options."""
    added = {"queryname": "x", "checkpointlocation": "/c"}
    assert write_options(LEAST | added) == write_options(LEAST)
    assert read(added) == read()
    with pytest.raises(ConfigError, match="did you mean queryName?"):
        write_options(LEAST | {"querynam": "x"})
    with pytest.raises(ConfigError, match="path='flights' .* a topic is no path: .*topic"):
        write_options(LEAST | {"path": "flights"})


def test_a_mistyped_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read({"secretkeys": "hush"})
    assert "did you mean secretKey?" in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1500", 1500), ("500ms", 500), ("90 s", 90_000), ("15m", 900_000), ("1D", 86_400_000)],
)
def test_times(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("64m", 2**26), ("1 GB", 2**30), ("512kb", 2**19), ("7b", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1m", "m", "1y", "1.5h", "\u0663s", "9" * 16])
def test_neither_times_nor_sizes(text: str) -> None:
    for parse in (duration_ms, size_bytes):
        with pytest.raises(ValueError, match="such as"):
            parse(text)


def test_options_of_the_other_kind_of_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="endingOffsets.*a stream has no end"):
        read({"endingoffsets": "latest"}, streaming=True)
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger.*a batch reads all"):
        read({"maxoffsetspertrigger": "5"})
    either = read({"endingoffsets": "latest", "maxoffsetspertrigger": "5"}, streaming=None)
    assert either.admission.max_offsets == 5
