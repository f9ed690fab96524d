"""docs/from-apache.md says of every command of mqadmin what the tests over our broker say."""

from __future__ import annotations

import re

from orbitmq import Admin
from tests.apache.mqadmin_commands import NOT_APPLICABLE, READS_FILES, WORKS
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "from-apache.md"


def test_the_page_says_of_every_command_what_becomes_of_it() -> None:
    section = PAGE.read_text().partition("## mqadmin")[2].partition("\n## ")[0]
    rows = {
        cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
        for line in section.splitlines()
        if line.startswith("| `")
        for cells in [line.strip("|").split("|")]
    }
    works = {works.command for works in WORKS}
    refused = {refused.command for refused in NOT_APPLICABLE}
    assert rows.keys() == works | refused | READS_FILES.keys()
    for command, (result, call, *_) in rows.items():
        assert (result == "works") == (command in works), command
        for name in re.findall(r"`(\w+)\(", call):
            assert hasattr(Admin, name), f"{name}, beside {command}"
