"""A writer killed 200 times at random moments: opening, writing, flushing, deleting."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_writer_killed_two_hundred_times_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.killed_writer", str(tmp_path / "store"), "200", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"killed 200 acknowledged (\d+) seen \d+", done.stdout)
    assert found is not None
    assert int(found.group(1)) > 0
