"""Messages that come again: sent back, delayed, given up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import StoreError
from orbitmq.message import MessageQueue
from orbitmq.store.config import StoreConfig
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import SubscriptionGroupConfig
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.message_view import MessageView
from tests.broker.remote import Client, Running, bodies, messages, running, with_broker

LEVELS = DelayLevels().delays_ms


async def send_back(
    client: Client, message: MessageView, level: int = 0, **fields: object
) -> RemotingCommand:
    header = {
        "offset": str(message.physical_offset),
        "group": "g",
        "delayLevel": str(level),
        "originMsgId": message.message_id,
        "originTopic": message.topic,
    }
    header.update({name: str(value) for name, value in fields.items()})
    return await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def test_a_message_sent_back_comes_again_later_and_later() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"x", tags="A", properties={"UNIQ_KEY": "K", "mine": "yes"}, flag=5)
        (message,) = messages(await client.pull("T"))
        first_id, born_host = message.offset_message_id, message.born_host
        for times in range(3):
            assert (await send_back(client, message)).code == codes.SUCCESS
            delay = LEVELS[3 + times - 1]
            waiting = client.hold(
                "%RETRY%g", offset=times, tags="A", suspend_timeout_millis=10 * delay
            )
            node.advance(delay - 1)
            await client.settle()
            assert not waiting.done()
            node.advance(1)
            (message,) = messages(await waiting)
            assert message.reconsume_times == times + 1
        assert (message.body, message.flag, message.born_host) == (b"x", 5, born_host)
        assert message.topic == "%RETRY%g"
        properties = message.properties
        assert properties["RETRY_TOPIC"] == "T"
        assert properties["ORIGIN_MESSAGE_ID"] == first_id
        assert (properties["UNIQ_KEY"], properties["mine"]) == ("K", "yes")
        assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("5", "%RETRY%g")

    with_broker(scenario)


@pytest.mark.parametrize(
    ("level", "fields"), [(-1, {}), (0, {"maxReconsumeTimes": 0}), (5, {"maxReconsumeTimes": 0})]
)
def test_a_message_given_up_is_at_once_in_the_dead_letter_topic(
    level: int, fields: dict[str, object]
) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"x", tags="A")
        (message,) = messages(await client.pull("T"))
        assert (await send_back(client, message, level, **fields)).code == codes.SUCCESS
        (dead,) = messages(await client.pull("%DLQ%g", tags="A"))
        assert (dead.body, dead.reconsume_times) == (b"x", 1)
        assert dead.property("RETRY_TOPIC") == "T"
        topic = node.broker.topics.topics["%DLQ%g"]
        assert (topic.write_queue_nums, topic.perm) == (1, 6)

    with_broker(scenario)


def test_a_group_has_its_own_limit_of_retries() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.groups.put(SubscriptionGroupConfig("g", retry_max_times=1))
        await client.send("T")
        (message,) = messages(await client.pull("T"))
        await send_back(client, message)
        node.advance(LEVELS[2])
        (message,) = messages(await client.pull("%RETRY%g"))
        await send_back(client, message)
        assert len(messages(await client.pull("%DLQ%g"))) == 1

    with_broker(scenario)


def test_a_group_without_retry_queues_gets_nothing_again() -> None:
    async def scenario(node: Running, client: Client) -> None:
        node.broker.groups.put(SubscriptionGroupConfig("g", retry_queue_nums=0))
        await client.send("T")
        (message,) = messages(await client.pull("T"))
        before = node.broker.store.max_physical_offset
        assert (await send_back(client, message)).code == codes.SUCCESS
        assert node.broker.store.max_physical_offset == before

    with_broker(scenario)


def test_what_cannot_be_sent_back_is_refused() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T")
        (message,) = messages(await client.pull("T"))
        for offset in (message.physical_offset + 1, 1 << 40, -5):
            answer = await send_back(client, message, offset=offset)
            assert answer.code == codes.SYSTEM_ERROR
            assert f"offset {offset}" in (answer.remark or "")
        answer = await send_back(client, message, group="no group")
        assert answer.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST

    with_broker(scenario)


def test_an_orderly_group_sends_exhausted_messages_to_its_retry_topic_itself() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("%RETRY%g", b"again", properties={"DELAY": "3"}, reconsume_times=16)
        await client.send("%RETRY%g", b"over", reconsume_times=17)
        await client.send("%RETRY%g", b"own limit", reconsume_times=2, max_reconsume_times=1)
        assert bodies(await client.pull("%DLQ%g")) == [b"over", b"own limit"]
        node.advance(LEVELS[2])
        assert bodies(await client.pull("%RETRY%g")) == [b"again"]
        # 5.x: whoever holds queue locks consumes in order, where a retry has no place.
        node.broker.locks.lock("g", [MessageQueue("T", "broker-a", 0)], "one", node.broker.now_ms())
        await client.send("%RETRY%g", b"ordered", properties={"DELAY": "3"}, reconsume_times=1)
        assert bodies(await client.pull("%DLQ%g", offset=2)) == [b"ordered"]

    with_broker(scenario)


def test_delayed_messages_come_when_they_are_due() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for level in (3, 1, 2, 18, 99):
            answer = await client.send(
                "T", b"%d" % level, tags="A", queue_id=1, properties={"DELAY": str(level)}
            )
            assert answer.ext_fields["queueId"] == "1"
        waiting = client.hold("T", queue_id=1, tags="A", suspend_timeout_millis=30_000)
        await client.settle()
        node.advance(999)
        await client.settle()
        assert not waiting.done()
        node.advance(1)
        (message,) = messages(await waiting)
        assert (message.body, message.topic, message.queue_id) == (b"1", "T", 1)
        assert message.property("REAL_TOPIC") == "T"
        node.advance(5_000)
        node.advance(5_000)
        assert bodies(await client.pull("T", queue_id=1, offset=1)) == [b"2", b"3"]
        node.advance(2 * 3_600_000)
        assert bodies(await client.pull("T", queue_id=1, offset=3)) == [b"18", b"99"]

    with_broker(scenario)


def test_the_real_timer_delivers_without_help() -> None:
    async def main() -> None:
        from orbitmq.clock import SYSTEM_CLOCK

        async with running(clock=SYSTEM_CLOCK, store_config=StoreConfig(delay_levels="1s")) as node:  # type: ignore[arg-type]
            client = await node.connect()
            await client.send("T", b"soon", properties={"DELAY": "1"})
            assert bodies(await client.hold("T")) == [b"soon"]

    asyncio.run(main())


@pytest.mark.parametrize("hours", [1, 24])
def test_a_clock_set_back_makes_no_message_wait_longer_than_its_level(hours: int) -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"old", properties={"DELAY": "3"})
        node.clock.set_wall_clock(node.clock.now_ms() - hours * 3_600_000)
        for _ in range(5):  # nothing comes that would have the broker look
            node.advance(2_000)
        assert bodies(await client.pull("T")) == [b"old"]
        await client.send("T", b"new", properties={"DELAY": "3"})
        node.advance(10_000)
        assert bodies(await client.pull("T", offset=1)) == [b"new"]

    with_broker(scenario)


def test_a_clock_set_back_a_little_puts_a_message_off_by_its_level_at_most() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"x", properties={"DELAY": "3"})
        node.advance(9_000)
        node.clock.set_wall_clock(node.clock.now_ms() - 8_000)
        node.advance(8_000)
        assert (await client.pull("T")).code == codes.PULL_NOT_FOUND
        node.advance(1_000)
        assert bodies(await client.pull("T")) == [b"x"]

    with_broker(scenario)


def test_a_clock_set_forward_delivers_at_once_what_is_due_by_it() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.send("T", b"x", properties={"DELAY": "18"})
        node.clock.set_wall_clock(node.clock.now_ms() + 2 * 3_600_000)
        node.node.server.run_due()
        assert bodies(await client.pull("T")) == [b"x"]

    with_broker(scenario)


def test_delivery_goes_on_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with running(tmp_path, clock) as node:
            client = await node.connect()
            for n in range(4):
                await client.send("T", b"%d" % n, properties={"DELAY": "3"})
                node.advance(4_000)
            assert bodies(await client.pull("T")) == [b"0", b"1"]
        clock.advance(100)
        async with running(tmp_path, clock) as node:
            client = await node.connect()
            node.advance(0)
            assert bodies(await client.pull("T")) == [b"0", b"1"]
            node.advance(60_000)
            assert bodies(await client.pull("T")) == [b"0", b"1", b"2", b"3"]
        assert b'"offsetTable":{3:4}' in (tmp_path / "config" / "delayOffset.json").read_bytes()

    asyncio.run(main())


def test_a_store_that_takes_nothing_delays_delivery_but_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            await client.send("T", b"x", properties={"DELAY": "1"})
            write = node.broker.store.write

            def refuse() -> None:
                node.broker.store._staged.clear()
                raise StoreError("the disk is gone for a moment")

            node.broker.store.write = refuse  # type: ignore[method-assign]
            node.advance(1_000)
            node.broker.store.write = write  # type: ignore[method-assign]
            assert (await client.pull("T")).code == codes.PULL_NOT_FOUND
            node.advance(1_000)
            assert bodies(await client.pull("T")) == [b"x"]

    asyncio.run(main())


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 1, 2, 3]), st.integers(0, 4_000), st.booleans()),
        max_size=25,
    )
)
def test_every_message_comes_once_in_the_order_it_is_due(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Messages of several levels, time passing in between, restarts at any point."""
    clock = ManualClock()
    sent: list[tuple[int, int]] = []

    async def main(directory: Path) -> None:
        node_context = running(directory, clock)
        node = await node_context.__aenter__()
        client = await node.connect()
        for number, (level, wait_ms, restart) in enumerate(steps):
            if level:
                await client.send("T", b"%d" % number, properties={"DELAY": str(level)})
                sent.append((clock.now_ms() + LEVELS[level - 1], number))
            node.advance(wait_ms)
            if restart:
                await node_context.__aexit__(None, None, None)
                node_context = running(directory, clock)
                node = await node_context.__aenter__()
                client = await node.connect()
                node.advance(0)
            due = {number for due, number in sent if due <= clock.now_ms()}
            answer = await client.pull("T", max_msg_nums=100)
            found = [int(body) for body in bodies(answer)] if answer.code == 0 else []
            assert (len(found), set(found)) == (len(due), due)
        await node_context.__aexit__(None, None, None)

    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
