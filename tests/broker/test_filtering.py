"""The broker filters by SQL92: what is pulled, what held pulls wait for, and what it refuses."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq import codes
from orbitmq.broker.filter_budget import SLICE_SECONDS
from orbitmq.broker.filtering import MessageFilter
from orbitmq.broker.handlers.pull import PullHandlers
from orbitmq.codes import RequestCode
from orbitmq.names import retry_topic
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.wire.command import RemotingCommand
from tests.broker.remote import (
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Running,
    bodies,
    messages,
    with_broker,
)
from tests.waiting import until

CHEAP = "price < 10 AND carrier = 'UA'"


async def send_priced(client: Client, topic: str, *prices: object, carrier: str = "UA") -> None:
    for price in prices:
        properties = {"price": str(price), "carrier": carrier}
        await client.send(topic, str(price).encode(), properties=properties)


async def pull_by(client: Client, topic: str, sql: str, **fields: object) -> RemotingCommand:
    return await client.pull(topic, tags=sql, expression_type="SQL92", **fields)


async def announce(client: Client, group: str, *subscriptions: SubscriptionData) -> RemotingCommand:
    data = ConsumerData(
        group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        subscription_data_set=list(subscriptions),
    )
    body = HeartbeatData("client", consumer_data_set=[data]).encode()
    return await client.call(RequestCode.HEART_BEAT, None, body)


def by_sql(topic: str, sql: str, version: int = 5, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic, sql, sub_version=version, expression_type=kind)


def test_a_pull_brings_what_its_expression_wants() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await send_priced(client, "T", 5, 50, "cheap", 7)
        await send_priced(client, "T", 1, carrier="AA")
        await client.send("T", b"bare")
        answer = await pull_by(client, "T", CHEAP)
        assert bodies(answer) == [b"5", b"7"]
        assert int(answer.ext_fields["nextBeginOffset"]) == 6
        assert bodies(await pull_by(client, "T", "price IS NULL")) == [b"bare"]
        answer = await pull_by(client, "T", "price > 100")
        assert answer.code == codes.PULL_RETRY_IMMEDIATELY
        assert int(answer.ext_fields["nextBeginOffset"]) == 6

    with_broker(scenario)


def test_every_message_goes_through_the_filter_alone() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for price in range(300):
            await send_priced(client, "T", price)
        wanted, offset = [], 0
        while offset < 300:
            answer = await pull_by(client, "T", "price BETWEEN 100 AND 199", offset=offset)
            offset = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == codes.SUCCESS:
                wanted += [int(body) for body in bodies(answer)]
        assert wanted == list(range(100, 200))

    with_broker(scenario)


def test_a_held_pull_waits_for_a_message_it_wants() -> None:
    async def scenario(node: Running, client: Client) -> None:
        other = await node.connect()
        await client.send("T", b"first")
        held = asyncio.ensure_future(pull_by(client, "T", CHEAP, offset=1, sys_flag=SUSPEND | 4))
        await client.settle()
        await send_priced(other, "T", 99, "cheap")
        await client.settle()
        assert not held.done()
        await send_priced(other, "T", 3)
        assert bodies(await held) == [b"3"]

    with_broker(scenario)


def test_what_a_held_pull_does_not_want_moves_it_on_at_the_next_sweep() -> None:
    async def scenario(node: Running, client: Client) -> None:
        other = await node.connect()
        await client.send("T")
        held = asyncio.ensure_future(pull_by(client, "T", CHEAP, offset=1, sys_flag=SUSPEND | 4))
        await client.settle()
        await send_priced(other, "T", 99)
        node.advance(5_000)
        answer = await held
        assert answer.code == codes.PULL_RETRY_IMMEDIATELY
        assert int(answer.ext_fields["nextBeginOffset"]) == 2

    with_broker(scenario)


def test_the_expression_may_be_that_of_the_heartbeat() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await send_priced(client, "T", 5, 50)
        await announce(client, "readers", by_sql("T", CHEAP, version=5))
        assert bodies(await client.pull("T", sys_flag=0, sub_version=5)) == [b"5"]
        answer = await client.pull("T", sys_flag=0, sub_version=6)
        assert answer.code == codes.SUBSCRIPTION_NOT_LATEST
        await announce(client, "readers", by_sql("T", "price > 10", version=6))
        assert bodies(await client.pull("T", sys_flag=0, sub_version=6)) == [b"50"]
        await announce(client, "readers", by_sql("T", CHEAP, version=5))  # one not yet updated
        assert bodies(await client.pull("T", sys_flag=0, sub_version=5)) == [b"50"]
        everything = SubscriptionData("T", "*", sub_version=7)
        await announce(client, "readers", everything)
        assert len(messages(await client.pull("T", sys_flag=0, sub_version=7))) == 2

    with_broker(scenario)


def test_a_broken_expression_of_a_heartbeat_is_refused_at_the_pull() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        for subscription, words in (
            (
                by_sql("T", "price >", 1),
                "group readers cannot be filtered for: expression='price >'",
            ),
            (by_sql("T", "price > 5", 2, "REGEX"), "no expression type 'REGEX'"),
        ):
            answer = await announce(client, "readers", subscription)
            assert answer.code == codes.SUCCESS
            answer = await client.pull("T", sys_flag=0)
            assert answer.code == codes.FILTER_DATA_NOT_EXIST
            assert words in (answer.remark or "")

    with_broker(scenario)


@pytest.mark.parametrize(
    ("sql", "kind", "words"),
    [
        ("price >", "SQL92", "expression='price >' is not allowed: at its end"),
        ("", "SQL92", "at its end: here must be a property"),
        ("price > 5", "REGEX", "no expression type 'REGEX': subscribe by TAG or SQL92"),
    ],
)
def test_a_broken_expression_is_refused_with_the_reason(sql: str, kind: str, words: str) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        body = CheckClientRequestBody("client", "readers", by_sql("T", sql, kind=kind)).encode()
        for answer in (
            await client.pull("T", tags=sql, expression_type=kind),
            await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body),
        ):
            assert answer.code == codes.SUBSCRIPTION_PARSE_FAILED
            assert words in (answer.remark or "")

    with_broker(scenario)


def test_what_can_be_filtered_by_passes_the_check() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for subscription in (
            by_sql("T", CHEAP),
            SubscriptionData("T", "a ="),
            by_sql("T", "x", 1, ""),
        ):
            body = CheckClientRequestBody("client", "readers", subscription).encode()
            answer = await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)
            assert answer.code == codes.SUCCESS

    with_broker(scenario)


def test_filters_by_property_may_be_switched_off() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", tags="A")
        await announce(client, "readers", by_sql("T", CHEAP))
        body = CheckClientRequestBody("client", "readers", by_sql("T", CHEAP)).encode()
        for answer in (
            await pull_by(client, "T", CHEAP),
            await pull_by(client, "T", "price >"),
            await client.pull("T", sys_flag=0),
            await client.call(RequestCode.CHECK_CLIENT_CONFIG, None, body),
        ):
            assert answer.code == codes.SYSTEM_ERROR
            assert "does not filter by SQL92" in (answer.remark or "")
        assert len(messages(await client.pull("T", tags="A"))) == 1

    with_broker(scenario, enable_property_filter=False)


@pytest.mark.parametrize(
    ("support", "expected"),
    [(True, [b"cheap", b"lost", b"other", b"broken"]), (False, [b"dear"])],
)
def test_a_retry_topic_may_be_filtered_as_the_topic_its_messages_came_from(
    support: bool, expected: list[bytes]
) -> None:
    """With filterSupportRetry its own expression does not count, the origin's does."""

    async def scenario(node: Running, client: Client) -> None:
        retries = retry_topic("readers")
        node.broker.groups.put(SubscriptionGroupConfig("readers"))
        node.broker.topics.put(TopicConfig(retries, 1, 1))
        await announce(
            client,
            "readers",
            by_sql("T", "price < 10"),
            by_sql("Broken", "price <"),
            SubscriptionData("Tagged", "A"),
            by_sql(retries, "price > 10 AND RETRY_TOPIC = 'T'"),
        )
        for body, price, origin in (
            (b"cheap", "5", "T"),
            (b"dear", "50", "T"),
            (b"lost", "50", None),
            (b"other", "50", "Tagged"),
            (b"broken", "50", "Broken"),
        ):
            properties = {"price": price} | ({"RETRY_TOPIC": origin} if origin else {})
            await client.send(retries, body, properties=properties)
        answer = await client.pull(retries, sys_flag=0)
        assert bodies(answer) == expected

    with_broker(scenario, filter_support_retry=support)


def test_a_record_that_is_none_is_left_to_its_consumer() -> None:
    wants_nothing = MessageFilter(by_properties=lambda _: False)
    assert wants_nothing.by_record is not None
    assert wants_nothing.by_record(memoryview(bytes(100)))
    assert MessageFilter().by_record is None


class SlowClock(ManualClock):
    """While ``slow``, each look at the clock takes a millisecond."""

    slow = False

    def monotonic(self) -> float:
        if self.slow:
            self.advance(1)
        return super().monotonic()


SLICE = round(SLICE_SECONDS * 1000)


@pytest.mark.parametrize(("sql", "wanted"), [("price >= 0", 100), ("price = 77", 1)])
def test_a_pull_ends_where_its_time_is_up_and_the_next_goes_on_there(sql: str, wanted: int) -> None:
    clock = SlowClock()

    async def scenario(node: Running, client: Client) -> None:
        await send_priced(client, "T", *range(100))
        clock.slow = True
        found: list[bytes] = []
        offset, answers = 0, []
        while offset < 100:
            answer = await pull_by(client, "T", sql, offset=offset, max_msg_nums=1_024)
            found += bodies(answer) if answer.code == codes.SUCCESS else []
            answers.append(answer.code)
            went_on = int(answer.ext_fields["nextBeginOffset"]) - offset
            assert 0 < went_on <= SLICE + 1
            offset += went_on
        clock.slow = False
        assert len(found) == len(set(found)) == wanted
        assert set(answers) <= {codes.SUCCESS, codes.PULL_RETRY_IMMEDIATELY}
        assert len(answers) >= 100 // (SLICE + 1)
        everything = await pull_by(client, "T", sql, max_msg_nums=1_024)
        assert int(everything.ext_fields["nextBeginOffset"]) == 100

    with_broker(scenario, clock=clock)


def test_pulls_of_one_turn_share_its_time_and_those_beyond_it_are_refused() -> None:
    clock = SlowClock()

    async def scenario(node: Running, client: Client) -> None:
        await send_priced(client, "T", *range(100))
        clock.slow = True
        pulls = [pull_by(client, "T", "price < 0", max_msg_nums=1_024) for _ in range(200)]
        answers = await asyncio.gather(*pulls)
        clock.slow = False
        scanned = [
            int(answer.ext_fields["nextBeginOffset"])
            for answer in answers
            if answer.code == codes.PULL_RETRY_IMMEDIATELY
        ]
        refused = [answer for answer in answers if answer.code == codes.SYSTEM_BUSY]
        assert len(scanned) + len(refused) == 200
        assert refused
        assert "expressions" in (refused[0].remark or "")
        assert min(scanned) == 1
        assert (await client.pull("T", max_msg_nums=3)).code == codes.SUCCESS  # a turn of its own

    with_broker(scenario, clock=clock)


def test_those_who_wait_by_expressions_are_answered_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SlowClock()
    turns = 0
    next_turn = PullHandlers._next_turn

    def counted(handlers: PullHandlers) -> None:
        nonlocal turns
        turns += 1
        next_turn(handlers)

    monkeypatch.setattr(PullHandlers, "_next_turn", counted)

    async def scenario(node: Running, client: Client) -> None:
        other = await node.connect()
        await send_priced(client, "T", 0)
        waiting = [
            asyncio.ensure_future(
                pull_by(other, "T", "price = 1", offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
            )
            for _ in range(100)
        ]
        await until(lambda: len(node.broker.pulling.held) == 100, "all waiting")
        clock.slow = True
        await send_priced(client, "T", 1)
        answers = await asyncio.gather(*waiting)
        clock.slow = False
        assert {tuple(bodies(answer)) for answer in answers} == {(b"1",)}
        assert turns > 2

    with_broker(scenario, clock=clock)


def test_an_arriving_message_is_held_against_no_more_expressions_than_there_is_time_for() -> None:
    clock = SlowClock()

    async def scenario(node: Running, client: Client) -> None:
        other = await node.connect()
        await send_priced(client, "T", 0)
        for number in range(100):  # of one expression one look would do for all
            text = f"price = 2 OR price = {1000 + number}"
            pull = pull_by(other, "T", text, offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
            asyncio.ensure_future(pull).add_done_callback(moved_on.append)
        held = node.broker.pulling.held
        await until(lambda: len(held) == 100, "all waiting")
        clock.slow = True
        await send_priced(client, "T", 1)
        await until(lambda: len(moved_on) + len(held) == 100, "the others answered")
        clock.slow = False
        assert 0 < len(held) <= SLICE + 1
        assert {answer.result().code for answer in moved_on} == {codes.PULL_RETRY_IMMEDIATELY}
        await send_priced(client, "T", 2)
        await until(lambda: len(moved_on) == 100, "all answered")

    moved_on: list[asyncio.Future[RemotingCommand]] = []
    with_broker(scenario, clock=clock)
