"""docs/from-java.md names everything public of Java's clients, and only what we have."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import msgspec
import pytest

import orbitmq
from orbitmq import (
    CheckForbiddenContext,
    EndTransactionContext,
    Message,
    PullTaskContext,
    SendMessageContext,
    SendResult,
)
from orbitmq.admin.config import AdminConfig
from orbitmq.consumer.config import LitePullConfig, PullScheduleConfig, PushConfig
from orbitmq.consumer.parts import PartArguments
from orbitmq.producer.config import TransactionProducerConfig
from tests.apache.java_program import JavaProgram
from tests.docs.snippets import ROOT

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

PAGE = ROOT / "docs" / "from-java.md"
JAVA = {
    "ClientConfig": "org.apache.rocketmq.client.ClientConfig",
    "DefaultMQPushConsumer": "org.apache.rocketmq.client.consumer.DefaultMQPushConsumer",
    "DefaultLitePullConsumer": "org.apache.rocketmq.client.consumer.DefaultLitePullConsumer",
    "DefaultMQPullConsumer": "org.apache.rocketmq.client.consumer.DefaultMQPullConsumer",
    "MQPullConsumerScheduleService": (
        "org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService"
    ),
    "DefaultMQProducer": "org.apache.rocketmq.client.producer.DefaultMQProducer",
    "TransactionMQProducer": "org.apache.rocketmq.client.producer.TransactionMQProducer",
    "Message": "org.apache.rocketmq.common.message.Message",
    "SendResult": "org.apache.rocketmq.client.producer.SendResult",
    "SendMessageContext": "org.apache.rocketmq.client.hook.SendMessageContext",
    "CheckForbiddenContext": "org.apache.rocketmq.client.hook.CheckForbiddenContext",
    "EndTransactionContext": "org.apache.rocketmq.client.hook.EndTransactionContext",
    "DefaultMQAdminExt": "org.apache.rocketmq.tools.admin.DefaultMQAdminExt",
}
SETTINGS = {
    field.name
    for config in (
        AdminConfig,
        LitePullConfig,
        PushConfig,
        PullScheduleConfig,
        TransactionProducerConfig,
    )
    for field in msgspec.structs.fields(config)
}
FACES = [
    getattr(orbitmq, name)
    for name in orbitmq.__all__
    if name.endswith(("Admin", "Consumer", "Producer", "Service"))
]
VALUES = [
    CheckForbiddenContext,
    EndTransactionContext,
    Message,
    PullTaskContext,
    SendMessageContext,
    SendResult,
]


def tables() -> dict[str, list[tuple[set[str], str]]]:
    """The rows under each heading that names a Java class: its names, and what stands beside."""
    found: dict[str, list[tuple[set[str], str]]] = {}
    rows: list[tuple[set[str], str]] = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            rows = found.setdefault(line.removeprefix("## ").strip("`"), [])
        elif line.startswith("| `"):
            java, ours = line.replace("\\|", "/").strip("| ").split("|")[:2]
            rows.append((set(re.findall(r"`(\w+)", java)), ours.strip()))
    return found


@pytest.mark.apache
@pytest.mark.xdist_group("jvm-alone")
def test_no_public_name_of_javas_clients_is_missing(apache: ApacheRelease) -> None:
    with JavaProgram(apache, "ApiNames", list(JAVA.values())) as program:
        program.wait()
        names = {heading: set(program.wait_for(heading)) for heading in JAVA}
    page = tables()
    for heading, wanted in names.items():
        told = set().union(*(java for java, _ in page[heading]))
        assert told == wanted - {"toString"}, heading


def test_what_it_names_of_ours_is_there() -> None:
    for rows in tables().values():
        for java, ours in rows:
            assert ours, f"nothing is said of {java}"
            for name, mark in re.findall(r"`(\w+)([(=]?)", ours):
                assert is_ours(name, mark), f"{name}, for {java}"


def is_ours(name: str, mark: str) -> bool:
    """Whether a name is a method (before a parenthesis), an argument (=), or a setting."""
    if mark == "(":
        return name in orbitmq.__all__ or any(hasattr(face, name) for face in FACES)
    if mark == "=":
        return name in PartArguments.__annotations__ or any(
            name in inspect.signature(face).parameters for face in [*FACES, Message]
        )
    return (
        name in SETTINGS
        or name in orbitmq.__all__
        or any(hasattr(owner, name) for owner in [*FACES, *VALUES])
    )
