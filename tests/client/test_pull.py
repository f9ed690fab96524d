"""PullTask: each answer of a broker, each failure, and the timing of the next pull."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import msgspec
import pytest

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.pull import Puller, PullSettings, PullTask
from orbitmq.client.routes import RouteTable
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    ConnectError,
    ConnectionLostError,
    NetworkError,
    OrbitMQError,
    RequestTimeoutError,
)
from orbitmq.filters.subscription import build_subscription
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection, ResponseHandler
from orbitmq.net.pool import ConnectionPool
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, QueueData, SubscriptionData, TopicRouteData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.message_view import MessageView
from tests.client.records import offsets, record

QUEUE = MessageQueue("orders", "broker-a", 2)
RETRY_QUEUE = MessageQueue("%RETRY%readers", "broker-a", 0)
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
SETTINGS = PullSettings(
    batch_size=32,
    batch_bytes=1000,
    suspend_ms=15_000,
    timeout_ms=30_000,
    error_delay_ms=3_000,
    interval_ms=0,
    lite=False,
    send_subscription=False,
)
LITE = SETTINGS._replace(lite=True, send_subscription=True, batch_bytes=None)


class Broker:
    """A connection whose requests a test answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pulls: list[tuple[int, dict[str, str], ResponseHandler]] = []

    def request(
        self, code: int, fields: dict[str, str], *, timeout_ms: int, on_done: ResponseHandler
    ) -> None:
        assert timeout_ms == 30_000
        self.pulls.append((code, dict(fields), on_done))

    def answer(
        self,
        code: int,
        next_offset: int = 0,
        body: bytes | memoryview = b"",
        *,
        min_offset: int = 0,
        max_offset: int = 100,
        broker_id: int = 0,
    ) -> None:
        ext = {
            "suggestWhichBrokerId": str(broker_id),
            "nextBeginOffset": str(next_offset),
            "minOffset": str(min_offset),
            "maxOffset": str(max_offset),
        }
        command = RemotingCommand(code=code, ext=msgspec.Raw(msgspec.json.encode(ext)), body=body)
        self.give(command)

    def give(self, outcome: RemotingCommand | NetworkError) -> None:
        *_, on_done = self.pulls[-1]
        on_done(outcome)


class Instance(ClientInstance):
    """An instance with a master and a slave of broker-a, and no network."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.routes = RouteTable()
        self.brokers = {MASTER: Broker(MASTER), SLAVE: Broker(SLAVE)}
        self.pool = cast("ConnectionPool", self)
        self.connect_error: NetworkError | None = None
        self.route: OrbitMQError | TopicRouteData = TopicRouteData(
            [QueueData("broker-a", 4, 4, 6)],
            [BrokerData("c", "broker-a", {0: MASTER, 1: SLAVE})],
        )
        self.heartbeats = 0
        self.fetches = 0
        self.spawned: list[asyncio.Task[Any]] = []
        self.routes.put("orders", self.route)

    def idle(self, address: str) -> Connection | None:
        return None if self.connect_error else cast("Connection", self.brokers[address])

    def acquire(self, address: str, on_ready: Callable[[Connection | NetworkError], None]) -> None:
        assert self.connect_error is not None
        on_ready(self.connect_error)

    async def fetch_route(self, topic: str) -> TopicRouteData:
        self.fetches += 1
        if isinstance(self.route, OrbitMQError):
            raise self.route
        self.routes.put(topic, self.route)
        return self.route

    async def heartbeat(self) -> None:
        self.heartbeats += 1

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.spawned.append(asyncio.get_running_loop().create_task(coroutine))


class Consumer:
    """A consumer that notes what it gets."""

    def __init__(self) -> None:
        self.wanted: SubscriptionData | None = build_subscription("orders", "*", sub_version=5)
        self.delay_ms = 0
        self.prefetch = True
        self.commit = 0
        self.first: int | OrbitMQError = 7
        self.messages: list[MessageView] = []
        self.nothing: list[int] = []
        self.illegal: list[int] = []
        self.go_on = True

    def subscription(self, topic: str) -> SubscriptionData | None:
        return self.wanted

    def pull_delay_ms(self, task: PullTask) -> int:
        return self.delay_ms

    def may_prefetch(self, task: PullTask, offsets: int, size: int) -> bool:
        return self.prefetch

    def commit_offset(self, queue: MessageQueue) -> int:
        return self.commit

    async def first_offset(self, task: PullTask) -> int:
        if isinstance(self.first, OrbitMQError):
            raise self.first
        return self.first

    def found(self, task: PullTask, messages: list[MessageView]) -> None:
        self.messages += messages

    def nothing_found(self, task: PullTask) -> None:
        self.nothing.append(task.next_offset)

    def offset_illegal(self, task: PullTask) -> bool:
        self.illegal.append(task.next_offset)
        return self.go_on


class Scene:
    """A task that pulls, with all that is around it, in a loop whose timers a test fires."""

    def __init__(
        self, settings: PullSettings = SETTINGS, queue: MessageQueue = QUEUE, offset: int = 7
    ) -> None:
        self.instance = Instance()
        self.consumer = Consumer()
        self.broker = self.instance.brokers[MASTER]
        self.slave = self.instance.brokers[SLAVE]
        self.timers: list[tuple[float, Callable[[], None]]] = []
        puller = Puller(self.instance, "readers", settings, self.consumer)
        puller.loop = cast("asyncio.AbstractEventLoop", self)
        self.task = PullTask(puller, queue, ProcessQueue(0), offset)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append((seconds, function))
        return cast("asyncio.TimerHandle", self)

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        asyncio.get_running_loop().call_soon(function, *args)

    def cancel(self) -> None:
        self.timers.pop()

    def fire(self) -> float:
        """Fire the one timer; the time it was set for, in seconds."""
        ((seconds, function),) = self.timers
        self.timers.clear()
        function()
        return seconds

    async def settle(self) -> None:
        """Let everything spawned and called soon happen."""
        for _ in range(4):
            await asyncio.sleep(0)

    def pulled_from(self, broker: Broker | None = None) -> list[int]:
        return [int(fields["queueOffset"]) for _, fields, _ in (broker or self.broker).pulls]

    def flags(self) -> list[int]:
        return [int(fields["sysFlag"]) for _, fields, _ in self.broker.pulls]


def play(scenario: Callable[[Scene], Awaitable[None]], *args: Any, **options: Any) -> None:
    async def run() -> None:
        scene = Scene(*args, **options)
        scene.task.start()
        await scenario(scene)
        scene.task.stop()
        await asyncio.gather(*scene.instance.spawned)

    asyncio.run(run())


def records(*numbers: int, **options: Any) -> bytes:
    return b"".join(record(number, queue_id=2, **options) for number in numbers)


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
        assert scene.task.process_queue.last_pull_ms == scene.instance.clock.now_ms()

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


def test_the_next_pull_leaves_before_the_messages_are_handed_over() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9), min_offset=3, max_offset=50)
        assert scene.pulled_from() == [7, 10]
        assert scene.consumer.messages == []
        await scene.settle()
        assert offsets(scene.consumer.messages) == [7, 8, 9]
        first = scene.consumer.messages[0]
        assert (first.broker_name, first.property("MIN_OFFSET")) == ("broker-a", "3")
        assert first.property("MAX_OFFSET") == "50"

    play(scenario)


def test_without_room_for_more_it_leaves_afterwards() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.prefetch = False
        scene.consumer.delay_ms = 50
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        assert offsets(scene.consumer.messages) == [7]
        assert scene.pulled_from() == [7]
        scene.consumer.delay_ms = 0
        assert scene.fire() == 0.05
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_whoever_makes_room_wakes_the_task() -> None:
    async def scenario(scene: Scene) -> None:
        scene.task.wake()
        assert scene.pulled_from() == [7]  # it pulls already
        scene.consumer.delay_ms = 50
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        scene.consumer.delay_ms = 0
        scene.task.wake()
        assert scene.pulled_from() == [7, 7]
        assert scene.timers == []

    play(scenario)


def test_an_interval_is_kept_after_messages_only() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        assert scene.pulled_from() == [7, 7]
        assert scene.fire() == 0.2
        assert scene.pulled_from() == [7, 7, 8]

    play(scenario, SETTINGS._replace(interval_ms=200))


@pytest.mark.parametrize("code", [codes.PULL_NOT_FOUND, codes.PULL_RETRY_IMMEDIATELY])
def test_nothing_found_moves_on_at_once(code: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(code, 20)
        assert scene.consumer.nothing == [20]
        assert scene.pulled_from() == [7, 20]

    play(scenario)


def test_messages_with_another_tag_of_the_same_hash_are_left_out() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription("orders", "AaAa", sub_version=6)
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        bodies = [records(7, properties={"TAGS": tag}) for tag in ("AaAa", "BBBB", "AaAa")]
        scene.broker.answer(codes.SUCCESS, 10, b"".join(bodies))
        await scene.settle()
        assert [message.tags for message in scene.consumer.messages] == ["AaAa", "AaAa"]
        scene.broker.answer(codes.SUCCESS, 11, records(10, properties={"TAGS": "BBBB"}))
        await scene.settle()
        assert scene.consumer.nothing == [7, 11]

    play(scenario)


def test_a_changed_subscription_shows_in_the_next_pull() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription("orders", "paid", sub_version=9)
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        _, fields, _ = scene.broker.pulls[-1]
        assert (fields["subscription"], fields["sysFlag"]) == ("paid", "6")
        assert fields["subVersion"] == "9"

    play(scenario, SETTINGS._replace(send_subscription=True))


def test_a_topic_not_subscribed_any_more_is_not_pulled() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = None
        scene.broker.answer(codes.PULL_NOT_FOUND, 7)
        assert scene.pulled_from() == [7]
        assert scene.timers[0][0] == 3.0

    play(scenario)


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


def test_the_first_offset_is_asked_for_when_it_is_wanted() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.settle()
        assert scene.pulled_from() == [7]

    play(scenario, offset=-1)


def test_a_first_offset_that_cannot_be_told_is_asked_for_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.first = ConnectError("no broker")
        await scene.settle()
        scene.consumer.first = 4
        assert scene.fire() == 3.0
        await scene.settle()
        assert scene.pulled_from() == [4]

    play(scenario, offset=-1)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (ConnectionLostError("gone", MASTER), 3.0),
        (RemotingCommand(code=codes.SYSTEM_ERROR, remark="store is closed"), 3.0),
        (RemotingCommand(code=215, remark="flow control"), 0.02),
        (RemotingCommand(code=codes.SUCCESS), 3.0),  # no header
    ],
    ids=lambda value: str(getattr(value, "code", value)),
)
def test_a_failure_is_logged_and_tried_again_later(
    answer: RemotingCommand | NetworkError, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.give(answer)
        assert scene.fire() == seconds
        assert scene.pulled_from() == [7, 7]
        assert f"again in {seconds * 1000:.0f} ms" in caplog.text

    play(scenario)


def test_a_held_pull_that_is_never_answered_is_asked_again_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.give(RequestTimeoutError("no answer", MASTER))
        assert scene.pulled_from() == [7, 7]

    play(scenario)


def test_a_broker_that_does_not_know_us_is_greeted_and_asked_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        delays = []
        for _ in range(3):
            scene.broker.give(RemotingCommand(code=codes.SUBSCRIPTION_NOT_EXIST, remark="who?"))
            await scene.settle()
            delays.append(scene.fire())
        assert scene.instance.heartbeats == 3
        assert delays == [0.05, 0.1, 0.2]
        assert scene.pulled_from() == [7] * 4

    play(scenario)


def test_a_topic_the_broker_does_not_have_has_its_route_fetched_anew() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.give(RemotingCommand(code=codes.TOPIC_NOT_EXIST, remark="no topic"))
        await scene.settle()
        assert scene.instance.fetches == 1
        assert scene.timers[0][0] == 3.0

    play(scenario)


def test_failures_of_retry_topics_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.consumer.wanted = build_subscription(RETRY_QUEUE.topic)
        with caplog.at_level(logging.DEBUG):
            scene.broker.give(ConnectionLostError("gone", MASTER))
        assert {item.levelno for item in caplog.records} == {logging.DEBUG}

    play(scenario, SETTINGS, RETRY_QUEUE)


def test_a_broker_no_route_names_is_looked_for() -> None:
    async def scenario(scene: Scene) -> None:
        scene.instance.routes = RouteTable()
        route, scene.instance.route = scene.instance.route, ConnectError("no name server")
        scene.broker.answer(codes.PULL_NOT_FOUND, 8)
        await scene.settle()
        scene.instance.route = route
        assert scene.fire() == 3.0
        await scene.settle()
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_a_broker_that_cannot_be_reached_is_tried_again() -> None:
    async def scenario(scene: Scene) -> None:
        scene.instance.connect_error = ConnectError("refused", MASTER)
        scene.broker.answer(codes.PULL_NOT_FOUND, 8)
        scene.instance.connect_error = None
        assert scene.fire() == 3.0
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_damaged_messages_are_pulled_again_and_those_prefetched_thrown_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 10, records(7, 8, 9)[:-5])
        assert scene.pulled_from() == [7, 10]
        await scene.settle()
        scene.broker.answer(codes.SUCCESS, 11, records(10))
        await scene.settle()
        assert scene.consumer.messages == []
        assert scene.fire() == 3.0
        assert scene.pulled_from() == [7, 10, 7]
        assert "damaged" in caplog.text

    play(scenario)


def test_an_illegal_offset_is_the_consumers_to_judge(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.PULL_OFFSET_MOVED, 30, min_offset=30, max_offset=90)
        assert scene.pulled_from() == [7, 30]
        scene.consumer.go_on = False
        scene.broker.answer(codes.PULL_OFFSET_MOVED, 40)
        assert scene.consumer.illegal == [30, 40]
        assert scene.pulled_from() == [7, 30]
        assert "offset 7 is not in the queue, which has 30 to 90" in caplog.text

    play(scenario)


def test_a_broker_that_would_go_back_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 5, records(7))
        assert "would go on at 5" in caplog.text

    play(scenario)


def test_a_stopped_task_takes_no_answer() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answer(codes.SUCCESS, 8, records(7))
        scene.task.stop()
        await scene.settle()
        scene.broker.answer(codes.SUCCESS, 9, records(8))
        await scene.settle()
        assert scene.consumer.messages == []
        assert scene.pulled_from() == [7, 8]

    play(scenario)


def test_a_restarted_task_goes_on_elsewhere() -> None:
    async def scenario(scene: Scene) -> None:
        late = scene.broker.pulls[-1][2]
        scene.task.restart(70)
        assert scene.pulled_from() == [7, 70]
        late(ConnectionLostError("too late", MASTER))
        assert scene.timers == []
        scene.broker.answer(codes.SUCCESS, 71, records(70))
        await scene.settle()
        assert offsets(scene.consumer.messages) == [70]

    play(scenario)
