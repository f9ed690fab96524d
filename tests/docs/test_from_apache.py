"""docs/from-apache.md has every setting of Apache's broker, name by name."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.config import BrokerConfig
from orbitmq.properties_file import parse_properties
from tests.docs.from_apache import PAGE, rendered


def test_the_tables_are_the_codes() -> None:
    page = PAGE.read_text()
    assert page == rendered(page), "run python -m tests.docs.from_apache"


def test_the_file_shown_can_be_used(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("```properties\n")[2].partition("```")[0]
    assert parse_properties(text)["brokerName"] == "broker-a"
    path = tmp_path / "broker.conf"
    path.write_text(text)
    assert BrokerConfig.from_file(path).auto_create_topics is False
