"""A broker whose clock tests move, and a producer to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(clock=clock) as running:
        yield running


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer("makers", name_server=broker.name_server) as running:
        yield running
