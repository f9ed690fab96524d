"""The tables of docs/from-apache.md, made from the broker's table of settings.

`python -m tests.docs.from_apache`, run at the top of the checkout, writes them anew;
test_from_apache.py says when that is due.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.settings import KEYS, OWN_KEYS
from orbitmq.broker.unused_settings import FOLKLORE, REFUSED, UNUSED
from orbitmq.nameserver import settings as nameserver_settings
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.settings import KEYS as NAME_SERVER_KEYS
from orbitmq.settings import Key, Section, SettingsTable
from orbitmq.store.config import StoreConfig
from tests.docs.settings import documented

PAGE = Path(__file__).parents[2] / "docs" / "from-apache.md"


def write() -> None:
    """Replace the page's tables."""
    PAGE.write_text(rendered(PAGE.read_text()))


def rendered(page: str) -> str:
    """``page`` with what stands between each mark and the next empty line as it should be."""
    keys = list(KEYS.keys.values())
    parts = {
        "apaches keys": _keys(
            [key for key in keys if key.name not in OWN_KEYS], KEYS, BrokerConfig()
        ),
        "own keys": _keys([key for key in keys if key.name in OWN_KEYS], KEYS, BrokerConfig()),
        "refused keys": _sections(REFUSED, with_values=True),
        "unused keys": _sections(UNUSED, with_values=False),
        "name server keys": _keys(
            NAME_SERVER_KEYS.keys.values(), NAME_SERVER_KEYS, NameServerConfig()
        ),
        "refused name server keys": _sections(nameserver_settings.REFUSED, with_values=True),
        "unused name server keys": _sections(nameserver_settings.UNUSED, with_values=False),
        "folklore": ", ".join(f"`{name}`" for name in sorted(FOLKLORE)) + "\n",
    }
    for name, text in parts.items():
        mark = f"<!-- {name} -->\n"
        before, found, after = page.partition(mark)
        if not found:
            raise ValueError(f"the page has no line {mark!r}")
        rest = re.sub(r"\A(?:.+\n)*", "", after)
        page = f"{before}{mark}{text}{rest}"
    return page


def _keys(
    keys: Iterable[Key], table: SettingsTable[Any], config: BrokerConfig | NameServerConfig
) -> str:
    texts = table.texts(config)
    rows = [
        f"| `{key.name}` | {_value(texts[key.name])} | {'at once' if key.live else 'restart'} "
        f"| {_meaning(key, type(config))} |"
        for key in sorted(keys, key=lambda key: key.name.lower())
    ]
    return "\n".join(["| key | default | change | |", "|---|---|---|---|", *rows]) + "\n"


def _meaning(key: Key, config: type) -> str:
    part, _, field = key.field.rpartition(".")
    text = documented(StoreConfig if part else config)[field]
    text = re.sub(rf" ?\({key.name}(, [^)]*)?\)", lambda found: found[1] or "", text)
    return f"`{key.field}`: {text}"


def _sections(sections: Iterable[Section], *, with_values: bool) -> str:
    rows = []
    for section in sections:
        pairs = (pair.partition("=") for pair in section.defaults.split())
        names = sorted(
            f"`{name}={value}`" if with_values else f"`{name}`" for name, _, value in pairs
        )
        rows.append(f"| {section.reason} | {', '.join(names)} |")
    head = ["| why | only as |" if with_values else "| why | keys |", "|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _value(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    write()
