"""Tables of settings for the documentation, made from the classes that hold them.

`python -m tests.docs.settings`, run at the top of the checkout, writes the tables of
docs/settings.md anew; test_settings.py says when that is due.
"""

from __future__ import annotations

import ast
import inspect
import re
from enum import Enum
from pathlib import Path

import msgspec

from orbitmq.admin.config import AdminConfig
from orbitmq.client.config import ClientConfig
from orbitmq.consumer.config import (
    ConsumerConfig,
    GroupConfig,
    LitePullConfig,
    PullConfig,
    PullScheduleConfig,
    PushConfig,
)
from orbitmq.producer.config import ProducerConfig

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
CLASSES: tuple[type[ClientConfig], ...] = (
    ClientConfig,
    ProducerConfig,
    GroupConfig,
    ConsumerConfig,
    LitePullConfig,
    PushConfig,
    PullConfig,
    PullScheduleConfig,
    AdminConfig,
)
UNITS = (
    ("_ms", "ms"),
    ("_bytes", "bytes"),
    ("max_message_size", "bytes"),
    ("size_for_queue", "MiB"),
    ("size_for_topic", "MiB"),
    ("threshold_for_queue", "messages"),
    ("threshold_for_topic", "messages"),
    ("threshold_for_all", "messages"),
    ("batch_size", "messages"),
    ("_span", "offsets"),
    ("threads", "threads"),
    ("thread_nums", "threads"),
)


def table(config: type[ClientConfig]) -> str:
    """The settings a class adds or gives another default, as a Markdown table."""
    own = documented(config)
    rows = [
        f"| `{field.name}` | {_default(field)} | {_unit(field.name)} | {own[field.name]} |"
        for field in msgspec.structs.fields(config)
        if field.name in own
    ]
    return "\n".join(["| setting | default | unit | |", "|---|---|---|---|", *rows])


def write() -> None:
    """Replace the page's tables."""
    PAGE.write_text(rendered(PAGE.read_text()))


def rendered(page: str) -> str:
    """``page`` with each table after ``<!-- ClassName -->`` as it should be."""
    for config in CLASSES:
        mark = f"<!-- {config.__name__} -->\n"
        before, found, after = page.partition(mark)
        if not found:
            raise ValueError(f"the page has no line {mark!r}")
        rest = re.sub(r"\A(\|.*\n)*", "", after)
        page = f"{before}{mark}{table(config)}\n{rest}"
    return page


def documented(config: type) -> dict[str, str]:
    """Each annotated name of the class's body with its text; inherited where it has none."""
    (tree,) = ast.parse(inspect.getsource(config)).body
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            texts[node.target.id] = _text(following) or _inherited(config, node.target.id)
    return texts


def _inherited(config: type, name: str) -> str:
    return next(text for base in config.__mro__[1:-2] if (text := documented(base).get(name)))


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        text = re.sub(r"\s+", " ", str(node.value.value)).replace("``", "`")
        text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
        return text.replace("|", "\\|").strip()
    return ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, Enum):
        return f"`{value.name}`"
    if isinstance(value, frozenset):
        return ", ".join(f"`{item}`" for item in sorted(value))
    return "" if value is None else f"`{value}`"


def _unit(name: str) -> str:
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")


if __name__ == "__main__":
    write()
