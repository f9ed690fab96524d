"""What every test may use: a broker whose clock it moves, a producer, certificates, requests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.compiled import CORE
from orbitmq.testing.clock import ManualClock
from tests.net.certificates import Certificates, make_certificates
from tests.net.seen import Seen, watch_requests

# Workers share the machine's cores, so a time limit on one example would measure the machine.
settings.register_profile(
    "orbitmq", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("orbitmq")


def pytest_configure() -> None:
    """Take notice of Ctrl-C, which some tests send: a shell's background jobs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"core: {CORE}"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a certificate for 127.0.0.1."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """Every request that a broker or name server of this process gets."""
    return watch_requests(monkeypatch)


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
