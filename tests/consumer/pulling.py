"""What tests of PullTask share: a task with brokers, timers and a consumer that a test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import msgspec

from orbitmq.client.config import ClientConfig
from orbitmq.client.instance import ClientInstance
from orbitmq.client.routes import RouteTable
from orbitmq.consumer.hooks import FilterHooks
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.puller import Puller, PullSettings
from orbitmq.errors import (
    NetworkError,
    OrbitMQError,
)
from orbitmq.filters.subscription import build_subscription
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection, ResponseHandler
from orbitmq.net.pool import ConnectionPool
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, QueueData, SubscriptionData, TopicRouteData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.message_view import MessageView
from tests.consumer.records import record

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
        self.config = ClientConfig()
        self.routes = RouteTable()
        self.brokers = {MASTER: Broker(MASTER), SLAVE: Broker(SLAVE)}
        self.pool = cast("ConnectionPool", self)
        self.connect_error: NetworkError | None = None
        self.route: OrbitMQError | TopicRouteData = TopicRouteData(
            [QueueData("broker-a", 4, 4, 6)],
            [BrokerData("c", "broker-a", {0: MASTER, 1: SLAVE})],
        )
        self.heartbeats = 0
        self.heartbeat_error: Exception | None = None
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
        if self.heartbeat_error is not None:
            raise self.heartbeat_error

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.spawned.append(asyncio.get_running_loop().create_task(coroutine))


class Consumer:
    """A consumer that notes what it gets."""

    def __init__(self) -> None:
        self.filter_hooks = FilterHooks("readers")
        self.wanted: SubscriptionData | None = build_subscription("orders", "*", sub_version=5)
        self.delay_ms = 0
        self.prefetch = True
        self.commit = 0
        self.first: int | Exception = 7
        self.refuses: Exception | None = None
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
        if isinstance(self.first, Exception):
            raise self.first
        return self.first

    def found(self, task: PullTask, messages: list[MessageView]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.messages += messages

    def nothing_found(self, task: PullTask) -> None:
        self.nothing.append(task.next_offset)

    def offset_illegal(self, task: PullTask, *, reset: bool) -> bool:
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
