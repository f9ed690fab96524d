"""Pull requests: what they say, and which broker they go to."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from orbitmq import codes
from orbitmq.client.lifecycle import ServiceState
from orbitmq.clock import elapsed_ms
from orbitmq.codes import RequestCode
from orbitmq.consumer.parts import PullArguments
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.pull.core import PullCore
from orbitmq.consumer.pull_request import PullResult
from orbitmq.consumer.pull_task import PullTask
from orbitmq.errors import BrokerError, NoPermissionError, SubscriptionError
from orbitmq.filters.subscription import Expression, MessageSelector, build_subscription
from orbitmq.message import PullStatus
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, TopicRouteData
from orbitmq.wire.command import Header, RemotingCommand
from tests.consumer.pulling import LITE, MASTER, QUEUE, SETTINGS, SLAVE, Instance, Scene, play


def test_a_push_pull_says_what_java_says() -> None:
    async def scenario(scene: Scene) -> None:
        ((code, fields, _),) = scene.broker.pulls
        assert code == RequestCode.PULL_MESSAGE
        assert fields == {
            "consumerGroup": "readers",
            "topic": "orders",
            "queueId": "2",
            "queueOffset": "7",
            "maxMsgNums": "32",
            "sysFlag": "2",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subVersion": "5",
            "expressionType": "TAG",
            "maxMsgBytes": "1000",
            "bname": "broker-a",
        }
        assert scene.task.process_queue.last_pull_ms == elapsed_ms(scene.instance.clock)

    play(scenario)


def test_a_lite_pull_carries_its_subscription_without_a_version() -> None:
    async def scenario(scene: Scene) -> None:
        ((code, fields, _),) = scene.broker.pulls
        assert code == RequestCode.LITE_PULL_MESSAGE
        assert fields["sysFlag"] == "22"
        assert fields["subscription"] == "*"
        assert fields["subVersion"] == "0"
        assert "maxMsgBytes" not in fields

    play(scenario, LITE)


def test_a_broker_without_lite_pull_is_asked_by_plain_pulls() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.REQUEST_CODE_NOT_SUPPORTED)
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        pulls = [(code, fields["sysFlag"]) for code, fields, _ in scene.broker.pulls]
        plain = (RequestCode.PULL_MESSAGE, "6")
        assert pulls == [(RequestCode.LITE_PULL_MESSAGE, "22"), plain, plain]
        scene.broker.answer(codes.REQUEST_CODE_NOT_SUPPORTED)
        assert scene.timers[0][0] == 3.0  # then it does not know that either

    play(scenario, LITE)


def test_every_lite_pull_under_way_is_asked_anew_plainly() -> None:
    async def scenario(scene: Scene) -> None:
        other = PullTask(scene.task._puller, QUEUE._replace(queue_id=3), ProcessQueue(0), 7)
        other.start()
        refusals = [on_done for *_, on_done in scene.broker.pulls]
        for on_done in refusals:
            on_done(RemotingCommand(code=codes.REQUEST_CODE_NOT_SUPPORTED))
        assert [code for code, *_ in scene.broker.pulls[2:]] == [RequestCode.PULL_MESSAGE] * 2
        other.stop()

    play(scenario, LITE)


def test_a_changed_subscription_shows_in_the_next_pull() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription("orders", "paid", sub_version=9)
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        _, fields, _ = scene.broker.pulls[-1]
        assert (fields["subscription"], fields["sysFlag"]) == ("paid", "6")
        assert fields["subVersion"] == "9"

    play(scenario, SETTINGS._replace(send_subscription=True))


def test_offsets_are_committed_along_but_not_with_a_slave() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.commit = 6
        scene.broker.answer(codes.PULL_NOT_FOUND, 7, broker_id=1)
        assert scene.flags() == [2]
        ((_, fields, _),) = scene.slave.pulls
        assert (fields["sysFlag"], fields["commitOffset"]) == ("2", "6")
        scene.slave.answer(codes.PULL_NOT_FOUND, 7)
        assert scene.flags() == [2, 3]

    play(scenario)


def test_a_slave_that_stands_in_for_the_master_is_told_no_offset() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.commit = 6
        broker = BrokerData("c", "broker-a", {1: SLAVE})
        scene.instance.routes.put("orders", TopicRouteData([], [broker]))
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        ((_, fields, _),) = scene.slave.pulls
        assert fields["sysFlag"] == "2"

    play(scenario)


def test_the_user_may_say_which_broker_is_pulled() -> None:
    async def scenario(scene: Scene) -> None:
        scene.slave.answer(codes.PULL_NOT_FOUND, 7, broker_id=0)
        assert scene.pulled_from(scene.slave) == [7, 7]
        assert scene.pulled_from() == []

    play(scenario, SETTINGS._replace(broker_id=1))


class PullScene:
    """A pull consumer whose broker is a stub."""

    def __init__(self, **settings: Any) -> None:
        arguments: PullArguments = {"name_server": "127.0.0.1:9876", **settings}  # type: ignore[typeddict-item]
        self.asked: list[tuple[str, int, dict[str, str], int]] = []
        self.core = PullCore("readers", arguments, topics="orders", clock=ManualClock(5_000))
        self.core.lifecycle.state = ServiceState.RUNNING
        self.instance = self.core.instance = Instance()
        self.instance.invoke = self.invoke  # type: ignore[assignment]
        self.code = codes.PULL_NOT_FOUND
        self.suggested = 0

    async def invoke(
        self, address: str, code: int, header: Header, *, timeout_ms: int
    ) -> RemotingCommand:
        self.asked.append((address, code, header.ext_fields(), timeout_ms))
        ext = {
            "suggestWhichBrokerId": str(self.suggested),
            "nextBeginOffset": "8",
            "minOffset": "1",
            "maxOffset": "9",
        }
        return RemotingCommand(
            code=self.code, remark="no", ext=msgspec.Raw(msgspec.json.encode(ext))
        )

    def pull(self, expression: Expression = "*", **options: Any) -> PullResult:
        return asyncio.run(self.core.pull(self.core.prepare(QUEUE, expression, 7, 32, **options)))


def test_a_pull_of_the_users_says_what_java_says() -> None:
    scene = PullScene()
    assert scene.pull() == (PullStatus.NO_NEW_MESSAGE, 8, 1, 9, [])
    fields = {
        "consumerGroup": "readers",
        "topic": "orders",
        "queueId": "2",
        "queueOffset": "7",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "20000",
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
        "bname": "broker-a",
    }
    assert scene.asked == [(MASTER, RequestCode.PULL_MESSAGE, fields, 10_000)]
    scene.pull("paid", block=True, max_bytes=1000)
    changed = {"sysFlag": "6", "subscription": "paid", "maxMsgBytes": "1000"}
    assert scene.asked[1] == (MASTER, RequestCode.PULL_MESSAGE, fields | changed, 30_000)
    scene.pull(MessageSelector.by_sql("a > 1"), timeout=0.07)
    changed = {"subscription": "a > 1", "expressionType": "SQL92", "subVersion": "5000"}
    assert scene.asked[2] == (MASTER, RequestCode.PULL_MESSAGE, fields | changed, 70)


def test_a_pull_of_the_users_goes_to_the_broker_suggested_last() -> None:
    scene = PullScene()
    scene.suggested = 1
    scene.pull()
    scene.suggested = 0
    scene.pull()
    scene.pull()
    assert [address for address, *_ in scene.asked] == [MASTER, SLAVE, MASTER]
    scene = PullScene(pull_from_broker_id=1)
    scene.pull()
    scene.pull()
    assert [address for address, *_ in scene.asked] == [SLAVE, SLAVE]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (codes.SUBSCRIPTION_PARSE_FAILED, SubscriptionError),
        (codes.NO_PERMISSION, NoPermissionError),
        (codes.SYSTEM_ERROR, BrokerError),
    ],
)
def test_any_other_answer_to_a_pull_is_an_error(code: int, error: type[BrokerError]) -> None:
    scene = PullScene()
    scene.code = code
    with pytest.raises(error):
        scene.pull()
