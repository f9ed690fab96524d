"""The compiled part of the load generator, ``driver/``: it keeps requests in flight, at less cost.

It is built where Rust is installed; elsewhere Python does the same (:func:`benchmarks.load.drive`).
It knows nothing of what it sends: the frames are made in Python for both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.plan import Outcome, Plan

CRATE = Path(__file__).parent / "driver"
TARGET = CRATE.parents[1] / "build" / "driver"
_TICKS = os.sysconf("SC_CLK_TCK")
_BUILD_SECONDS = 300


class Driver(NamedTuple):
    """The compiled program, or "" and why there is none."""

    program: str
    why_not: str = ""

    def __str__(self) -> str:
        return "compiled" if self.program else f"Python ({self.why_not})"


@cache
def find_driver() -> Driver:
    """The program, built anew if its sources have changed."""
    if shutil.which("cargo") is None:
        return Driver("", "no Rust compiler")
    manifest = ["--manifest-path", str(CRATE / "Cargo.toml"), "--target-dir", str(TARGET)]
    done = subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--offline", *manifest],
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_SECONDS,
    )
    if done.returncode:
        return Driver("", f"its build failed: {(done.stderr.strip() or 'it says nothing')[:500]}")
    return Driver(str(TARGET / "release" / "orbitmq-driver"))


def drive(plan: Plan, frames: Sequence[bytes], each: int) -> Outcome:
    """As the function of this name in load.py, by ``plan.driver``."""
    numbers = plan.connections, plan.window, plan.seconds, plan.most, *plan.pids
    done = subprocess.run(
        [plan.driver, plan.address, *map(str, numbers)],
        input=b"".join(frames),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip())
    before, answers, seconds, ticks = map(float, done.stdout.split())
    return Outcome(int(answers) * each, seconds, ticks / _TICKS, [before * each])
