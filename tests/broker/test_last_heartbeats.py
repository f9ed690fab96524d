"""Heartbeats that repeat the one before are known again, and do what any heartbeat does."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.client import ClientHandlers
from orbitmq.broker.last_heartbeats import LastHeartbeat, LastHeartbeats
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.ids import host_bytes
from tests.broker.remote import SMALL_STORE, Client, Running, heartbeat, with_broker

HOST = host_bytes("127.0.0.1", 10911)


class FakeConnection:
    """What the handlers know of a client's connection."""

    peer = "a client"

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[bytes] = []

    def send(self, *pieces: bytes) -> None:
        self.sent += pieces


class Forgetful(LastHeartbeats[Any]):
    """Takes every heartbeat in as if it were the first."""

    def keep(self, connection: object, last: LastHeartbeat[Any]) -> None:
        pass


class Side:
    """A broker's handlers with three clients."""

    def __init__(self, directory: Path, *, forgetful: bool) -> None:
        self.clock = ManualClock()
        self.broker = Broker(BrokerConfig(store_config=SMALL_STORE), directory, HOST, self.clock)
        self.handlers = ClientHandlers(self.broker)
        if forgetful:
            self.handlers._last_heartbeats = Forgetful(self.broker.producers)
        self.clients = [FakeConnection(number) for number in range(3)]

    def call(self, code: int, number: int, command: RemotingCommand) -> Any:
        return self.handlers.table()[code](command, cast("Connection", self.clients[number]))

    def state(self) -> Any:
        """All that heartbeats leave behind."""
        consumers = {
            name: (
                group.consume_type,
                group.message_model,
                group.consume_from_where,
                group.subscriptions,
                [
                    (cast("FakeConnection", member).number, client)
                    for member, client in group.members.items()
                ],
                group.client_ids,
                group.member_list,
            )
            for name, group in self.broker.consumers.groups.items()
        }
        producers = {
            name: [(cast("FakeConnection", member).number, client) for member, client in m.items()]
            for name, m in self.broker.producers.groups.items()
        }
        found = [self.broker.producers.find(name) for name in "xyz"]
        return (
            consumers,
            producers,
            [None if owner is None else cast("FakeConnection", owner).number for owner in found],
            dict(self.broker.topics.topics),
            dict(self.broker.groups.groups),
            [client.sent for client in self.clients],
        )


class Step(NamedTuple):
    kind: str
    client: int
    body: HeartbeatData
    name: str
    flag: bool


SUBSCRIPTIONS = st.lists(
    st.builds(
        SubscriptionData,
        st.sampled_from(["T", "U"]),
        st.sampled_from(["*", "a"]),
        sub_version=st.integers(1, 2),
    ),
    max_size=2,
    unique_by=lambda item: item.topic,
)
CONSUMERS = st.lists(
    st.builds(
        ConsumerData,
        st.sampled_from(["g", "h", "not a group"]),
        st.sampled_from([ConsumeType.CONSUME_ACTIVELY, ConsumeType.CONSUME_PASSIVELY]),
        st.sampled_from(list(MessageModel)),
        subscription_data_set=SUBSCRIPTIONS,
    ),
    max_size=2,
    unique_by=lambda item: item.group_name,
)
BODIES = st.builds(
    HeartbeatData,
    st.sampled_from("xy"),
    st.lists(st.builds(ProducerData, st.sampled_from("pq")), max_size=1),
    CONSUMERS,
    st.integers(0, 1),
    st.booleans(),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Few different heartbeats, again and again, and what else may happen between them."""
    bodies = draw(st.lists(BODIES, min_size=1, max_size=3))
    step = st.builds(
        Step,
        st.sampled_from(
            ["beat"] * 8 + ["unregister", "lose", "delete topic", "delete group", "order", "notify"]
        ),
        st.integers(0, 2),
        st.sampled_from(bodies),
        st.sampled_from("gh"),
        st.booleans(),
    )
    return draw(st.lists(step, max_size=25))


def carry_out(side: Side, step: Step) -> Any:
    """One step; returns the answer to a request."""
    side.clock.advance(1_000)
    topics, groups = side.broker.topics, side.broker.groups
    if step.kind == "beat":
        command = RemotingCommand(RequestCode.HEART_BEAT, version=step.flag)
        command.body = step.body.encode()
        return side.call(RequestCode.HEART_BEAT, step.client, command)
    if step.kind == "unregister":
        fields = {"clientID": "x", "producerGroup" if step.flag else "consumerGroup": step.name}
        ext = msgspec.Raw(msgspec.json.encode(fields))
        command = RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext=ext)
        return side.call(RequestCode.UNREGISTER_CLIENT, step.client, command)
    if step.kind == "lose":
        side.handlers.disconnected(cast("Connection", side.clients[step.client]))
        side.handlers.tell_of_losses()
    elif step.kind == "delete topic":
        topics.delete(f"%RETRY%{step.name}")
    elif step.kind == "delete group":
        groups.delete(step.name)
    elif step.kind == "order":
        topics.put(TopicConfig("T", order=step.flag))
    else:
        groups.put(SubscriptionGroupConfig(step.name, notify_consumer_ids_changed_enable=step.flag))
    return None


@settings(max_examples=60)
@given(histories())
def test_a_repeated_heartbeat_does_what_it_would_have_done(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        sides = [Side(Path(place, str(number)), forgetful=bool(number)) for number in range(2)]
        for side in sides:
            stack.callback(side.broker.close)
        for step in steps:
            answers = [carry_out(side, step) for side in sides]
            assert answers[0] == answers[1]
            states = [side.state() for side in sides]
            assert states[0] == states[1]


def test_it_is_not_decoded_again_unless_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = HeartbeatData.decode

    def noted(data: bytes) -> HeartbeatData:
        decoded.append(data)
        return decode(data)

    async def scenario(node: Running, client: Client) -> None:
        monkeypatch.setattr(HeartbeatData, "decode", noted)
        first = await client.heartbeat("g", "T", producers=("p",))
        for _ in range(3):
            node.clock.advance(30_000)
            again = await client.heartbeat("g", "T", producers=("p",))
            assert again.ext_fields == first.ext_fields
        assert len(decoded) == 1
        (member,) = node.broker.consumers.groups["g"].members.values()
        assert member.seen_ms == node.broker.now_ms()
        node.broker.topics.delete("%RETRY%g")
        await client.heartbeat("g", "T", producers=("p",))
        assert "%RETRY%g" in node.broker.topics.topics
        assert len(decoded) == 2
        other = await node.connect()
        await other.heartbeat("g", "T", "U", client_id="other")
        await client.heartbeat("g", "T", producers=("p",))
        assert list(node.broker.consumers.groups["g"].subscriptions) == ["T"]
        assert len(decoded) == 4

    with_broker(scenario)


def test_another_language_or_version_is_another_heartbeat() -> None:
    body = heartbeat("g", "T")
    with tempfile.TemporaryDirectory() as place:
        side = Side(Path(place), forgetful=False)
        for language, version in (("JAVA", 1), ("GO", 1), ("GO", 2)):
            command = RemotingCommand(34, language=language, version=version)
            command.body = body
            side.call(RequestCode.HEART_BEAT, 0, command)
            (member,) = side.broker.consumers.groups["g"].members.values()
            assert (member.language, member.version) == (language, version)
        side.broker.close()
