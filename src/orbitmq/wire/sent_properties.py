"""The properties of messages as they are sent, made ready to be stored: the broker's hottest text.

Nothing is taken apart that need not be: of most messages only the unique key and the tags are
looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from orbitmq.compiled import compiled
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import NAME_SEPARATOR, PAIR_SEPARATOR, TAGS, UNIQ_KEY

_KEY_MARK: Final = f"{PAIR_SEPARATOR}{UNIQ_KEY}{NAME_SEPARATOR}"
_TAGS_MARK: Final = f"{PAIR_SEPARATOR}{TAGS}{NAME_SEPARATOR}"

SentProperties: TypeAlias = tuple[bytes, str, int]
"""Properties in stored form, the unique key in them ("" for none), and the code of the tags."""


def read_sent_properties(
    texts: Sequence[str | None], special: Sequence[str], suffix: str
) -> list[SentProperties | None]:
    """The properties of each message, with ``suffix`` behind them.

    None for those in which one of ``special`` occurs: they need more than to be stored.
    """
    return scan_properties(texts, special, suffix, _KEY_MARK, _TAGS_MARK)


@compiled
def scan_properties(
    texts: Sequence[str | None],
    special: Sequence[str],
    suffix: str,
    key_mark: str,
    tags_mark: str,
) -> list[SentProperties | None]:
    """As read_sent_properties; the marks stand before the unique key and before the tags."""
    found: list[SentProperties | None] = []
    for given in texts:
        text = PAIR_SEPARATOR + (given or "")
        if text[-1] != PAIR_SEPARATOR:  # 4.x clients leave the last one out
            text += PAIR_SEPARATOR
        if any(mark in text for mark in special):
            found.append(None)
            continue
        tags = _value(text, tags_mark) if tags_mark in text else ""
        stored = (text[1:] + suffix).encode()
        found.append((stored, _value(text, key_mark), tags_code(tags)))
    return found


def _value(text: str, mark: str) -> str:
    """The value behind ``mark`` in properties that begin and end with a separator; "" for none."""
    at = text.rfind(mark)
    if at < 0:
        return ""
    at += len(mark)
    return text[at : text.find(PAIR_SEPARATOR, at)]
