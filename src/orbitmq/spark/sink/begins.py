"""The first note of a task: which write this is, and where it may have left something."""

from __future__ import annotations

import time
from typing import Final, Self

import msgspec

from orbitmq.errors import NetworkError
from orbitmq.spark.sink.ledger import Ledger

SETTLE_SECONDS: Final = 1.0
"""How long a request of a task that died, or a connection that broke, may still be under way."""


class Task(msgspec.Struct, frozen=True):
    """One task of one write.

    ``write`` names the write whenever it is run: a streaming query and its batch, or a writeId.
    ``run`` is another one each time that Spark plans it, ``partition`` the task's number.
    """

    write: str
    run: str
    partition: int


class Begin(msgspec.Struct, frozen=True):
    """What a note says.

    That is whose it is, where each queue of the topic on this broker ended, and on which brokers
    the topic was.
    """

    write: str
    run: str
    partition: int
    ends: dict[int, int]
    brokers: list[str]

    @classmethod
    def of(cls, task: Task, ends: dict[int, int], brokers: list[str]) -> Self:
        """What ``task`` notes."""
        return cls(task.write, task.run, task.partition, ends, brokers)


def note_begin(ledger: Ledger, key: str, begin: Begin) -> list[Begin]:
    """Write ``begin`` down under ``key``; what earlier runs of the same rows wrote there.

    Raises NetworkError where these wrote to brokers that are not there now.
    """
    own, notes = ledger.write_and_find(key, msgspec.json.encode(begin))
    found = [msgspec.json.decode(note.body, type=Begin) for note in notes if note.log_offset < own]
    # Other tasks of the same run write other rows.
    earlier = [one for one in found if one.run != begin.run or one.partition == begin.partition]
    away = {name for one in earlier for name in one.brokers} - {*begin.brokers}
    if away:
        raise NetworkError(
            f"{begin.write} may have left messages on {', '.join(sorted(away))}, which the name "
            "server does not know now: start it again"
        )
    return earlier


def settle(ledger: Ledger, scope: str) -> None:
    """Wait until all that was sent to the ledger's broker until now can be read."""
    time.sleep(SETTLE_SECONDS)
    ledger.write_and_find(f"{scope}:settled", b"{}")
