"""Fixtures for the tests judged by Apache RocketMQ's own programs.

Where Java or Maven is missing, these tests are skipped with the reason; with
ORBITMQ_REQUIRE_APACHE=1 in the environment, as in continuous integration, they fail instead.

What uses the session's Apache clusters is in the group "jvm", so that one worker starts them;
other tests with a JVM are in "jvm-alone", and the two groups run side by side.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.jars import NEWEST, OLDEST, ApacheMissingError, ApacheRelease, find_release
from tests.apache.orbit import Cluster, OrbitCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


AT_REST = {"transactionOpBatchInterval": 3_600_000, "transactionOpMsgMaxSize": 1}
"""Once a transaction has ended, 5.5.0 takes a whole core as soon as none has for this interval:
TransactionalMessageServiceImpl.batchSendOpMessage says to wait until a time that is over. With this
it writes down at once which transactions have ended, and rests."""


def release_or_skip(version: str) -> ApacheRelease:
    """The release, or the test's end as the environment wants it."""
    try:
        return find_release(version)
    except ApacheMissingError as missing:
        if os.environ.get("ORBITMQ_REQUIRE_APACHE") == "1":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def apache() -> ApacheRelease:
    """Apache RocketMQ 5.5.0, to run Java programs with."""
    return release_or_skip(NEWEST)


@pytest.fixture(scope="session")
def apache_cluster(apache: ApacheRelease) -> Iterator[ApacheCluster]:
    """Apache's name server and two brokers, 5.5.0, shared by the session's tests."""
    with ApacheCluster(apache, AT_REST, brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def old_apache_cluster() -> Iterator[ApacheCluster]:
    """The same of 4.9.7."""
    with ApacheCluster(release_or_skip(OLDEST), brokers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def orbit_cluster(apache: ApacheRelease) -> Iterator[OrbitCluster]:
    """Our name server and two brokers, shared likewise; only where Apache can judge them."""
    with OrbitCluster() as cluster:
        yield cluster


@pytest.fixture
def clusters(
    orbit_cluster: OrbitCluster, old_apache_cluster: ApacheCluster, apache_cluster: ApacheCluster
) -> list[Cluster]:
    """All three, for what takes its time and can be waited for once."""
    return [orbit_cluster, old_apache_cluster, apache_cluster]


@pytest.fixture(
    params=[
        pytest.param("orbit_cluster", id="orbit"),
        pytest.param("old_apache_cluster", id="4.9.7"),
        pytest.param("apache_cluster", id="5.5.0"),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each of the three in turn: ours, and what it must not differ from."""
    found: Cluster = request.getfixturevalue(request.param)
    return found
