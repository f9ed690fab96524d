"""Transactions as raw requests see them: prepared, ended, refused, checked back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import CheckTransactionStateRequestHeader
from orbitmq.wire.message_view import MessageView, decode_records
from tests.broker.remote import Client, Running, bodies, messages
from tests.broker.remote import with_broker as with_any_broker
from tests.waiting import until

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
TIMEOUT, INTERVAL = 6_000, 30_000


def with_broker(scenario: Callable[[Running, Client], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario in which clients may be silent for longer than they can be elsewhere."""
    patience = {"client_timeout_ms": 1 << 30, "connection_idle_ms": 1 << 30}
    with_any_broker(scenario, **patience | settings)


async def prepare(node: Running, client: Client, body: bytes = b"half", **fields: Any) -> Any:
    properties = {"TRAN_MSG": "true", "PGROUP": "makers", "UNIQ_KEY": "K", "TAGS": "A"}
    properties |= fields.pop("properties", {})
    return await client.send(
        "T",
        body,
        properties=properties,
        sys_flag=4,
        born_timestamp=node.clock.now_ms(),
        **fields,
    )


def end_header(answer: RemotingCommand, how: int, **fields: object) -> dict[str, str]:
    header: dict[str, object] = {
        "producerGroup": "makers",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": int(answer.ext_fields["msgId"][16:], 16),
        "commitOrRollback": how,
        "msgId": "K",
    }
    return {name: str(value) for name, value in (header | fields).items()}


async def end(
    client: Client, answer: RemotingCommand, how: int, **fields: object
) -> RemotingCommand:
    return await client.call(RequestCode.END_TRANSACTION, end_header(answer, how, **fields))


async def everything(client: Client, topic: str, queues: int = 1) -> list[MessageView]:
    found = []
    for queue_id in range(queues):
        answer = await client.pull(topic, queue_id=queue_id)
        if answer.code == codes.SUCCESS:
            found += messages(answer)
    return found


def check_all(node: Running, ms: int = INTERVAL) -> None:
    """Move the time on, and let the pass that is due then run to its end."""
    node.advance(ms)
    while node.broker.transaction_checker.busy:
        node.advance(0)


async def question(client: Client, number: int = 0) -> tuple[Any, MessageView]:
    """What the broker asks a producer."""
    await until(lambda: len(client.notices) > number)
    notice = client.notices[number]
    assert notice.code == RequestCode.CHECK_TRANSACTION_STATE
    assert notice.is_oneway
    (message,) = decode_records(bytes(notice.body))
    return notice.header(CheckTransactionStateRequestHeader), message


def test_a_half_message_is_delivered_when_it_is_committed() -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await prepare(node, client, queue_id=2, flag=7, properties={"mine": "yes"})
        assert answer.code == codes.SUCCESS
        assert answer.ext_fields["queueId"] == "2"
        assert answer.ext_fields["transactionId"] == "K"
        assert await everything(client, "T", 4) == []
        (half,) = await everything(client, HALF_TOPIC)
        assert half.properties["REAL_TOPIC"] == "T"
        assert half.properties["REAL_QID"] == "2"
        assert half.sys_flag & 0xC == 0
        assert (await end(client, answer, COMMIT)).code == codes.SUCCESS
        (message,) = await everything(client, "T", 4)
        assert (message.body, message.queue_id, message.flag) == (b"half", 2, 7)
        assert message.sys_flag & 0xC == COMMIT
        assert message.prepared_transaction_offset == half.physical_offset
        assert (message.tags, message.born_host) == ("A", half.born_host)
        assert message.properties["mine"] == "yes"
        assert not message.properties.keys() & {"REAL_TOPIC", "REAL_QID", "TRAN_MSG"}
        assert bodies(await client.pull("T", queue_id=2, tags="A")) == [b"half"]
        (op,) = await everything(client, OP_HALF_TOPIC)
        assert (op.body, op.tags) == (b"0", "d")

    with_broker(scenario)


def test_one_rolled_back_is_never_delivered_nor_asked_about() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        answer = await prepare(node, client)
        assert (await end(client, answer, ROLLBACK)).code == codes.SUCCESS
        check_all(node)
        await client.settle()
        assert await everything(client, "T", 4) == []
        assert client.notices == []
        offsets = node.broker.offsets
        assert offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == 1
        assert offsets.query("CID_RMQ_SYS_TRANS", OP_HALF_TOPIC, 0) == 1

    with_broker(scenario)


def test_an_open_one_is_asked_about_and_ends_as_its_producer_says() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        answer = await prepare(node, client)
        client.connection.oneway(RequestCode.END_TRANSACTION, end_header(answer, UNKNOWN))
        await client.settle()
        check_all(node)
        header, message = await question(client)
        assert (header.msg_id, header.transaction_id, header.topic) == ("K", "K", HALF_TOPIC)
        assert (message.topic, message.body, message.queue_id) == ("T", b"half", 0)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert message.physical_offset == header.commit_log_offset
        ended = end_header(
            answer,
            COMMIT,
            tranStateTableOffset=header.tran_state_table_offset,
            commitLogOffset=header.commit_log_offset,
            fromTransactionCheck="true",
        )
        assert (await client.call(RequestCode.END_TRANSACTION, ended)).code == codes.SUCCESS
        assert [message.body for message in await everything(client, "T", 4)] == [b"half"]
        check_all(node)
        await client.settle()
        assert len(client.notices) == 1

    with_broker(scenario)


def test_a_young_one_is_left_alone() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        node.advance(INTERVAL - TIMEOUT)
        await prepare(node, client)
        check_all(node, TIMEOUT)  # it is as old as the time-out, not older
        await client.settle()
        assert client.notices == []
        check_all(node)
        await question(client)

    with_broker(scenario)


def test_after_as_many_checks_as_there_may_be_it_is_given_up() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        await prepare(node, client)
        for number in range(3):
            check_all(node)
            _, message = await question(client, number)
            assert message.properties["TRANSACTION_CHECK_TIMES"] == str(number + 1)
        check_all(node)
        await client.settle()
        assert len(client.notices) == 3
        (given_up,) = await everything(client, TRANS_CHECK_MAX_TIME_TOPIC)
        assert given_up.body == b"half"
        assert given_up.properties["REAL_TOPIC"] == "T"
        check_all(node)
        assert len(await everything(client, TRANS_CHECK_MAX_TIME_TOPIC)) == 1

    with_broker(scenario, transaction_check_max=3)


def test_one_that_was_given_up_is_checked_again_when_an_operator_says_so() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        prepared = await prepare(node, client)
        check_all(node)
        await question(client)
        check_all(node)
        (given_up,) = await everything(client, TRANS_CHECK_MAX_TIME_TOPIC)
        header = {"topic": "T", "msgId": given_up.offset_message_id}
        answer = await client.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        assert answer.code == codes.SUCCESS
        check_all(node)
        asked, message = await question(client, 1)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        ended = end_header(
            prepared,
            COMMIT,
            tranStateTableOffset=asked.tran_state_table_offset,
            commitLogOffset=asked.commit_log_offset,
            fromTransactionCheck="true",
        )
        assert (await client.call(RequestCode.END_TRANSACTION, ended)).code == codes.SUCCESS
        (committed,) = await everything(client, "T", 4)
        for offset_id in (committed.offset_message_id, "none", "00" * 12 + "00FFFFFF"):
            header = {"topic": "T", "msgId": offset_id}
            answer = await client.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
            assert answer.code == codes.SYSTEM_ERROR

    with_broker(scenario, transaction_check_max=1)


def test_another_producer_of_the_group_is_asked_when_the_first_is_gone() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        await prepare(node, client)
        client.close()
        second = await node.connect()
        await second.heartbeat("", producers=("others",))
        check_all(node)  # nobody is there: it is looked at again
        await second.settle()
        assert second.notices == []
        await second.heartbeat("", client_id="second", producers=("makers",))
        check_all(node)
        _, message = await question(second)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"

    with_broker(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        {"producerGroup": "others"},
        {"tranStateTableOffset": 1},
        {"commitLogOffset": 1 << 40},
        {"commitLogOffset": -1},
        {"commitLogOffset": 1},
        {"commitOrRollback": 4},
    ],
)
def test_an_end_of_something_else_is_refused(wrong: dict[str, object]) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await prepare(node, client)
        refused = await end(client, answer, COMMIT, **wrong)
        assert refused.code == codes.SYSTEM_ERROR
        assert await everything(client, "T", 4) == []
        assert await everything(client, OP_HALF_TOPIC) == []

    with_broker(scenario)


def test_a_plain_message_cannot_be_committed() -> None:
    async def scenario(_: Running, client: Client) -> None:
        hostile = {"PGROUP": "makers", "REAL_TOPIC": "../x", "REAL_QID": "0"}
        answer = await client.send("T", b"plain", properties=hostile)
        assert (await end(client, answer, COMMIT)).code == codes.SYSTEM_ERROR

    with_broker(scenario)


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC"])
def test_a_delayed_one_is_refused(name: str) -> None:
    async def scenario(node: Running, client: Client) -> None:
        answer = await prepare(node, client, properties={name: "3"})
        assert answer.code in (codes.MESSAGE_ILLEGAL, codes.SYSTEM_ERROR)
        assert await everything(client, HALF_TOPIC) == []

    with_broker(scenario)


def test_a_broker_may_refuse_transactions() -> None:
    async def scenario(node: Running, client: Client) -> None:
        assert (await prepare(node, client)).code == codes.NO_PERMISSION
        assert (await client.send("T")).code == codes.SUCCESS

    with_broker(scenario, reject_transaction_messages=True)


def test_properties_leave_room_for_what_checks_add() -> None:
    async def scenario(node: Running, client: Client) -> None:
        await client.heartbeat("", producers=("makers",))
        for size in range(32_767, 32_000, -10):
            answer = await prepare(node, client, properties={"big": "x" * size})
            if answer.code == codes.SUCCESS:
                break
            assert answer.code == codes.MESSAGE_ILLEGAL
        check_all(node)
        _, message = await question(client)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"

    with_broker(scenario)


class TestImmunity:
    """Messages that say themselves how long they are to be left alone."""

    def test_it_is_asked_about_when_its_own_time_is_over(self) -> None:
        async def scenario(node: Running, client: Client) -> None:
            await client.heartbeat("", producers=("makers",))
            await prepare(node, client, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "90"})
            for _ in range(3):
                check_all(node)
            await client.settle()
            assert client.notices == []
            check_all(node)
            _, message = await question(client)
            assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"

        with_broker(scenario)

    def test_one_ended_meanwhile_is_not_asked_about(self) -> None:
        async def scenario(node: Running, client: Client) -> None:
            await client.heartbeat("", producers=("makers",))
            answer = await prepare(
                node, client, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "70"}
            )
            check_all(node)
            check_all(node)
            assert (await end(client, answer, COMMIT)).code == codes.SUCCESS
            for _ in range(5):
                check_all(node)
            await client.settle()
            assert client.notices == []
            assert len(await everything(client, "T", 4)) == 1
            progress = node.broker.offsets
            half_end = node.broker.store.max_offset(HALF_TOPIC, 0)
            assert progress.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == half_end
            assert progress.query("CID_RMQ_SYS_TRANS", OP_HALF_TOPIC, 0) == 1

        with_broker(scenario)

    def test_an_end_after_it_waits_for_the_check(self) -> None:
        async def scenario(node: Running, client: Client) -> None:
            answer = await prepare(
                node, client, properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}
            )
            node.advance(10_001)
            assert (await end(client, answer, COMMIT)).code == codes.ILLEGAL_OPERATION
            checked = await end(client, answer, COMMIT, fromTransactionCheck="true")
            assert checked.code == codes.SUCCESS

        with_broker(scenario)
