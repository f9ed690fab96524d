"""Python programs of their own, for what a test cannot do in its process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

_QUIET = """
import logging
logging.getLogger("orbitmq").addHandler(logging.NullHandler())
logging.getLogger("asyncio").setLevel("ERROR")  # else a busy machine's slow turns are told
"""


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Run ``program`` in the interpreter's development mode, warnings being errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", _QUIET + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
