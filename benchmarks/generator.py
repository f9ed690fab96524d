"""A raw load generator: prebuilt frames over plain sockets, responses only counted.

It runs as a process of its own and costs a fraction of a microsecond a message, less where its
inner part is compiled (:mod:`benchmarks.compiled`), so that what is measured is the broker:

    python -m benchmarks.generator '{"mode": "send", "address": "127.0.0.1:10911", ...}'

prints one JSON object, an Outcome; :mod:`benchmarks.plan` says what may be asked.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import msgspec

from benchmarks import compiled, load
from benchmarks.crowd import connect, hold, keep
from benchmarks.frames import pull_frames, send_frames
from benchmarks.mixed import mixed
from benchmarks.paced import latency, pace
from benchmarks.plan import Outcome, Plan


def _fill(plan: Plan) -> Outcome:
    load.fill(plan)
    return Outcome(plan.size, 0.0)


def _send(plan: Plan) -> Outcome:
    return _drive(plan, send_frames(plan), plan.size or 1)


def _pull(plan: Plan) -> Outcome:
    return _drive(plan, pull_frames(plan), plan.size)


def _drive(plan: Plan, frames: list[bytes], each: int) -> Outcome:
    drive = compiled.drive if plan.driver else load.drive
    return drive(plan, frames, each)


MODES: dict[str, Callable[[Plan], Outcome]] = {
    "fill": _fill,
    "send": _send,
    "pull": _pull,
    "mixed": mixed,
    "pace": pace,
    "latency": latency,
    "connect": connect,
    "hold": hold,
    "keep": keep,
}


def carry_out(plan: Plan) -> Outcome:
    """Carry out one plan."""
    return MODES[plan.mode](plan)


if __name__ == "__main__":
    gc.disable()
    outcome = carry_out(msgspec.json.decode(sys.argv[1], type=Plan))
    print(msgspec.json.encode(outcome).decode())
