"""Fixtures for the tests judged by Apache RocketMQ's own programs.

Where Java or Maven is missing, these tests are skipped with the reason; with
ORBITMQ_REQUIRE_APACHE=1 in the environment, as in continuous integration, they fail instead.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.jars import NEWEST, ApacheMissingError, ApacheRelease, find_release

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """A running name server and broker of Apache's, shared by the session's tests."""
    with ApacheCluster(apache) as cluster:
        yield cluster
