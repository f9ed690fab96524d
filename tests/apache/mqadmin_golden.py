"""What Apache's mqadmin prints on a cluster of Apache's own.

``python -m tests.apache.mqadmin_golden``, run at the top of the checkout, records it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.apache.cluster import ApacheCluster
from tests.apache.jars import find_release
from tests.apache.mqadmin import Mqadmin
from tests.apache.mqadmin_commands import NEW, OLD, WORKS
from tests.apache.mqadmin_scenario import Scenario

PAGE: Final = Path(__file__).with_name("mqadmin_golden.json")


def golden() -> dict[str, dict[str, str]]:
    """The outputs that must be the same here, by version and command with its arguments."""
    found: dict[str, dict[str, str]] = json.loads(PAGE.read_text())
    return found


def topic_of(version: str) -> str:
    """The scenario's topic; what a tool prints may be in the order of a hash of its name."""
    return f"flights-{version.replace('.', '')}"


def record() -> dict[str, dict[str, str]]:
    """Runs the tools of both versions on a cluster of the newer one, which ours is like."""
    with ApacheCluster(find_release(NEW), {"traceTopicEnable": True}) as cluster:
        return {version: record_of(version, cluster.name_server) for version in (OLD, NEW)}


def record_of(version: str, name_server: str) -> dict[str, str]:
    """Runs all commands that work; those that are to print the same."""
    outputs: dict[str, str] = {}
    with (
        Scenario(name_server, topic_of(version)) as scenario,
        Mqadmin(find_release(version), name_server) as tool,
    ):
        for works in WORKS:
            if works.only in (None, version):
                output = tool.run(
                    works.command, *scenario.words(works.arguments), until=works.until
                )
                if not works.holds:
                    outputs[works.text] = scenario.plain(output)
    return outputs


if __name__ == "__main__":
    PAGE.write_text(json.dumps(record(), indent=1) + "\n")
