"""Every command of Apache's mqadmin, 4.9.7 and 5.5.0, over our broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from orbitmq import EmbeddedBroker
from tests.apache.conftest import release_or_skip
from tests.apache.mqadmin import Mqadmin
from tests.apache.mqadmin_commands import NEW, NOT_APPLICABLE, OLD, READS_FILES, WORKS
from tests.apache.mqadmin_golden import golden, topic_of
from tests.apache.mqadmin_scenario import Scenario

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]


class Run(NamedTuple):
    """The tools of one version, asking our broker."""

    version: str
    tool: Mqadmin
    scenario: Scenario


@pytest.fixture(params=[OLD, NEW])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    version = request.param
    release = release_or_skip(version)
    with (
        EmbeddedBroker() as broker,
        Scenario(broker.name_server, topic_of(version)) as scenario,
        Mqadmin(release, broker.name_server) as tool,
    ):
        yield Run(version, tool, scenario)


def test_every_command_answers(run: Run) -> None:
    """One run a version: each command finds what those before it have left."""
    version, tool, scenario = run
    check_complete(version, tool)
    wanted = golden()[version]
    wrong: list[str] = []
    for works in WORKS:
        if works.only not in (None, version):
            continue
        printed = tool.run(works.command, *scenario.words(works.arguments), until=works.until)
        output = scenario.plain(printed)
        if not works.holds and output != wanted[works.text]:
            wrong.append(f"{works.text} prints\n{output}\ninstead of\n{wanted[works.text]}")
        wrong += [
            f"{works.text} does not print {pattern!r}, but\n{output}"
            for pattern in works.holds
            if not re.search(in_braces(pattern), output, re.MULTILINE)
        ]
    for refused in NOT_APPLICABLE:
        if refused.only == version:
            output = scenario.plain(tool.run(refused.command, *scenario.words(refused.arguments)))
            if refused.reason not in output:
                wrong.append(f"{refused.command} does not say {refused.reason!r}, but\n{output}")
    assert not wrong, "\n\n".join(wrong)


def check_complete(version: str, tool: Mqadmin) -> None:
    """All commands there are have been thought of, and no others."""
    works = {works.command for works in WORKS if works.only in (None, version)}
    refused = {refused.command for refused in NOT_APPLICABLE if refused.only == version}
    files = set(READS_FILES) if version == NEW else set()
    assert not works & refused | works & files | refused & files
    assert works | refused | files == tool.commands


def in_braces(pattern: str) -> str:
    """A pattern that has the names of a scenario, whose braces are no repetition."""
    return re.sub(r"\{([a-z_]+)\}", r"\\{\1\\}", pattern)
