"""Namespaces: names are wrapped and un-wrapped as Java's NamespaceUtil does it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from orbitmq.client.config import ClientConfig
from orbitmq.client.namespace import (
    Namespace,
    instance_of_endpoint,
    with_namespace,
    without_namespace,
)
from orbitmq.message import MessageQueue

# User's name and brokers' name in the namespace MQ_INST_1_a. tests/apache/test_namespace.py asks
# Java the same.
NAMES = [
    ("flights", "MQ_INST_1_a%flights"),
    ("%RETRY%readers", "%RETRY%MQ_INST_1_a%readers"),
    ("%DLQ%readers", "%DLQ%MQ_INST_1_a%readers"),
    ("a%b", "MQ_INST_1_a%a%b"),
    ("TBW102", "TBW102"),
    ("rmq_sys_anything", "rmq_sys_anything"),
    ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
]
names = st.text("abcDLQRETRY_-|%", min_size=1, max_size=12)
namespaces = st.text("nsMQ_INST-1", min_size=1, max_size=8)


@pytest.mark.parametrize(("user", "wire"), NAMES)
def test_names_go_in_and_out(user: str, wire: str) -> None:
    assert with_namespace("MQ_INST_1_a", user) == wire
    assert without_namespace(wire, "MQ_INST_1_a") == user


def test_what_is_in_another_namespace_or_none_stays() -> None:
    assert without_namespace("%RETRY%other%readers", "mine") == "%RETRY%other%readers"
    assert without_namespace("minefield%x", "mine") == "minefield%x"
    assert without_namespace("flights", "mine") == "flights"
    for none in ("", None):
        assert with_namespace(none, "flights") == "flights"
        assert without_namespace("mine%flights", none) == "mine%flights"
    assert with_namespace("mine", "") == ""


@given(namespaces, names)
def test_wrapping_twice_is_wrapping_once_and_is_undone(namespace: str, name: str) -> None:
    wire = with_namespace(namespace, name)
    assert with_namespace(namespace, wire) == wire
    user = without_namespace(wire, namespace)
    assert with_namespace(namespace, user) == wire
    if without_namespace(name, namespace) == name:
        assert user == name


@pytest.mark.parametrize(
    ("endpoint", "instance"),
    [
        ("http://MQ_INST_18_Bay4.mq.example.com:80", "MQ_INST_18_Bay4"),
        ("MQ_INST_18_Bay4.mq.example.com:9876", "MQ_INST_18_Bay4"),
        ("http://mq.example.com:80", None),
        ("127.0.0.1:9876", None),
        ("", None),
        (None, None),
    ],
)
def test_the_namespace_an_address_implies(endpoint: str | None, instance: str | None) -> None:
    assert instance_of_endpoint(endpoint) == instance


def test_the_namespace_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "MQ_INST_1_env.host:80")
    address = "MQ_INST_1_x.host:80"
    assert Namespace.of(ClientConfig()).name == "MQ_INST_1_env"
    assert Namespace.of(ClientConfig(name_server=address)).name == "MQ_INST_1_x"
    assert Namespace.of(ClientConfig(name_server=address, namespace="mine")).name == "mine"
    assert Namespace.of(ClientConfig(name_server=address, namespace="")).name is None
    assert Namespace.of(ClientConfig(name_server="127.0.0.1:9876")).name is None


def test_queues() -> None:
    mine, user = Namespace("mine"), MessageQueue("flights", "broker-a", 3)
    wire = MessageQueue("mine%flights", "broker-a", 3)
    assert mine.wrap_queues([user, wire]) == [wire, wire]
    assert mine.unwrap_queues([wire, user]) == [user, user]
    assert Namespace(None).wrap_queue(user) is user
    assert Namespace("").unwrap_queue(wire) is wire
