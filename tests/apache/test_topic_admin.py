"""Apache's own tools make, change and delete topics, groups, keys and values: here as there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import EmbeddedBroker
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram, options

if TYPE_CHECKING:
    from tests.apache.cluster import ApacheCluster
    from tests.apache.jars import ApacheRelease

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]

TOPIC = "administered"
AS_OF_5 = {
    # What 4.9 refuses with another code, or its tools see in another way.
    "topic of the broker": "refused 29",
    "topic that cannot be": "refused 29",
    "own topic deleted": "refused 29",
    "group that cannot be": "refused 29",
}


class TopicAdmin(JavaProgram):
    """The whole program; see java/TopicAdmin.java."""

    def __init__(self, release: ApacheRelease, name_server: str, broker: str, cluster: str) -> None:
        values: dict[str, object] = {
            "nameServer": name_server,
            "broker": broker,
            "cluster": cluster,
            "topic": TOPIC,
        }
        super().__init__(release, "TopicAdmin", options(values))

    def steps(self) -> list[tuple[str, Any]]:
        """What came of each step."""
        self.wait_for("done")
        return [(name, outcome) for name, outcome in self.values("step")]


def steps_there(cluster: ApacheCluster) -> list[tuple[str, Any]]:
    broker = cluster.brokers[0]
    with TopicAdmin(cluster.release, cluster.name_server, broker.address, "DefaultCluster") as run:
        return run.steps()


def steps_here(release: ApacheRelease) -> list[tuple[str, Any]]:
    with (
        EmbeddedBroker() as broker,
        TopicAdmin(release, broker.name_server, broker.address, "DefaultCluster") as run,
    ):
        return run.steps()


def test_the_tools_of_5_get_the_same_answers_here(apache_cluster: ApacheCluster) -> None:
    assert steps_here(release_or_skip(NEWEST)) == steps_there(apache_cluster)


def test_the_tools_of_4_9_get_the_same_answers_here(old_apache_cluster: ApacheCluster) -> None:
    expected = [
        (name, AS_OF_5.get(name, outcome)) for name, outcome in steps_there(old_apache_cluster)
    ]
    assert steps_here(release_or_skip(OLDEST)) == expected
