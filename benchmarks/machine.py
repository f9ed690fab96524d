"""What figures depend on besides the code: the interpreter and its build, the machine.

    python -m benchmarks.machine

prints it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Final

from benchmarks.compiled import find_driver
from orbitmq.compiled import CORE
from tests.apache.cluster import BROKER_HEAP
from tests.apache.jars import ApacheRelease

WARM_JVM: Final = ("-XX:+UseG1GC",)
"""Apache's servers with the collector of its scripts, and all of their JVM's compilers."""


def build_of_python() -> str:
    """Whether this interpreter was built with PGO (10 to 20 % faster here) and LTO."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    if "--enable-optimizations" not in arguments and sys.base_prefix == "/usr":
        return "as the distribution builds it"  # which uses PGO in its own way, or not
    pgo = "PGO" if "--enable-optimizations" in arguments else "no PGO"
    return f"{pgo}, {'LTO' if '--with-lto' in arguments else 'no LTO'}"


def describe(apache: ApacheRelease | None = None) -> dict[str, str]:
    """All of it, by name."""
    described = {
        "Python": f"{platform.python_version()} ({build_of_python()})",
        "core": CORE,
        "load generator": str(find_driver()),
        "msgspec": metadata.version("msgspec"),
        "uvloop": _uvloop(),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()}",
    }
    if apache:
        described["Apache RocketMQ"] = apache.version
        described["Java"] = _java_version(apache.java)
        described["its brokers' options"] = " ".join([*BROKER_HEAP, *WARM_JVM])
    return described


def _uvloop() -> str:
    try:
        return metadata.version("uvloop")
    except metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version(java: str) -> str:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[0]


if __name__ == "__main__":
    for name, value in describe().items():
        print(f"{name}: {value}")
