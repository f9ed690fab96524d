"""An admin client of the test's broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq import Admin, EmbeddedBroker


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(name_server=broker.name_server) as running:
        yield running
