"""Selectors: the queues Java's choose, and those of a machine room."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from orbitmq import (
    ConfigError,
    InvalidMessageError,
    Message,
    MessageQueue,
    select_queue_by_hash,
    select_queue_by_machine_room,
    select_queue_by_random,
)
from orbitmq.producer.selectors import _hash_code

MESSAGE = Message("orders", b"-")
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(7)]
ROOMS = [
    MessageQueue("orders", broker, number)
    for broker in ("east@a", "west@b", "nowhere")
    for number in range(3)
]


@pytest.mark.parametrize(
    ("value", "hash_code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("polygenelubricants", -(1 << 31)),
        (0, 0),
        (-5, -5),
        ((1 << 31) - 1, (1 << 31) - 1),
        (1 << 31, -(1 << 31)),
        (-(1 << 63), -(1 << 31)),
        ((1 << 63) - 1, -(1 << 31)),
        (True, 1231),
        (False, 1237),
        (0.0, 0),
        (1.0, 1072693248),
        (1.5, 1073217536),
        (float("nan"), 2146959360),
        (UUID("00000000-0000-0001-0000-000000000002"), 3),
    ],
)
def test_hashes_are_javas(value: Any, hash_code: int) -> None:
    assert _hash_code(value) == hash_code
    assert select_queue_by_hash(QUEUES, MESSAGE, value) == QUEUES[abs(hash_code) % 7]


@pytest.mark.parametrize("value", [None, b"bytes", 1 << 63, object(), [1]])
def test_what_has_no_hash_of_javas_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMessageError, match="has no hash that Java shares"):
        select_queue_by_hash(QUEUES, MESSAGE, value)


def test_any_queue() -> None:
    assert select_queue_by_random(QUEUES, MESSAGE, None) in QUEUES


def test_a_machine_room() -> None:
    select = select_queue_by_machine_room({"west"})
    for _ in range(20):
        assert select(ROOMS, MESSAGE, None).broker_name == "west@b"
    assert select(ROOMS, MESSAGE, 4) == MessageQueue("orders", "west@b", 1)
    both = select_queue_by_machine_room(["west", "east"])
    assert both(ROOMS, MESSAGE, 4) == MessageQueue("orders", "west@b", 1)


def test_a_room_without_a_queue() -> None:
    select = select_queue_by_machine_room(["nowhere"])
    with pytest.raises(InvalidMessageError, match="its brokers are east@a, nowhere, west@b"):
        select(ROOMS, MESSAGE, None)


@pytest.mark.parametrize("rooms", [[], "west", [1]])
def test_rooms_are_names(rooms: Any) -> None:
    with pytest.raises(ConfigError, match="names of machine rooms"):
        select_queue_by_machine_room(rooms)
