"""docs/settings.md has every setting with its default, as the code has it."""

from __future__ import annotations

from orbitmq import PushConsumer
from tests.docs.settings import PAGE, rendered
from tests.docs.snippets import run, snippets


def test_the_tables_are_the_codes() -> None:
    page = PAGE.read_text()
    assert page == rendered(page), "run python -m tests.docs.settings"


def test_settings_are_keyword_arguments() -> None:
    (code,) = snippets("docs/settings.md")
    assert isinstance(run(code, "127.0.0.1:1")["consumer"], PushConsumer)
