"""Spark programs that tests start: their lives are short, so Java compiles for them in one go."""

from __future__ import annotations

import os

QUICK_JAVA = os.environ | {
    "JAVA_TOOL_OPTIONS": " ".join(
        [os.environ.get("JAVA_TOOL_OPTIONS", ""), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    ).strip()
}
"""The environment for such a program: half the processor time of the one for long lives."""
