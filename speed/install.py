"""Builds the compiled core, installs it beside OrbitMQ, and says in one line which core runs.

    python speed/install.py            for the Python that runs it; `make core` does that

What has not changed since the last time is not built again. Where there is no Rust, or its crates
cannot be had, that is no failure: the line says why plain Python runs instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).parent
VENV = Path(sys.prefix)
STAMP, LOG = VENV / ".speed", VENV / "speed.log"
PATIENCE = 600
"""Seconds a build may take; it takes 20 on a machine of today."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--require-virtualenv"]
INSTALL = ["install", "--no-deps", "--no-build-isolation", "--force-reinstall", str(CRATE)]
WHICH = "from orbitmq.compiled import CORE; print(CORE)"


def main() -> None:
    """Build if something changed, and say which core runs."""
    if os.environ.get("ORBITMQ_SPEED") == "0":
        reason = "ORBITMQ_SPEED=0"
    elif STAMP.exists() and STAMP.read_text("utf-8") == _sources():
        reason = ""
    else:
        reason = _build()
    done = subprocess.run(
        [sys.executable, "-c", WHICH], stdout=subprocess.PIPE, text=True, check=True
    )
    print(f"core: {done.stdout.strip()}" + (f" ({reason})" if reason else ""), flush=True)


def _sources() -> str:
    """What a build is made of, as a hash."""
    files = [*CRATE.glob("*.toml"), *CRATE.glob("src/**/*.rs")]
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(files):
        digest.update(b"%s %d\n" % (path.name.encode(), path.stat().st_size) + path.read_bytes())
    return digest.hexdigest()


def _build() -> str:
    """Build and install; why that could not be done, if it could not."""
    STAMP.unlink(missing_ok=True)
    reason = _missing() or _installed()
    if reason:  # one that was built of other sources must not run either
        subprocess.run([*PIP, "uninstall", "--quiet", "--yes", "orbitmq-speed"],
                       stderr=subprocess.DEVNULL, check=False)  # fmt: skip
    else:
        STAMP.write_text(_sources(), "utf-8")
    return reason


def _missing() -> str:
    if shutil.which("cargo") is None:
        return "no Rust compiler; the compiled core is built where there is one, of 1.88 or newer"
    answer = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    return f"cargo does not work: {_last_line(answer.stderr)}" if answer.returncode else ""


def _installed() -> str:
    print("building the compiled core, half a minute the first time", flush=True)
    environment = os.environ | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    # Without a network that is found out soon.
    environment = {"CARGO_NET_RETRY": "1", "CARGO_HTTP_TIMEOUT": "20"} | environment
    with LOG.open("w", encoding="utf-8") as log:
        try:
            subprocess.run([*PIP, *INSTALL], stdout=log, stderr=subprocess.STDOUT,
                           env=environment, timeout=PATIENCE, check=True)  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"its build was not done within {PATIENCE} s, see {LOG}"
        except subprocess.CalledProcessError:
            text = LOG.read_text("utf-8", "replace")
            # pip says that a subprocess failed, before and after what it said.
            errors = re.findall(r"^ *error: (?!subprocess|metadata)(.*)", text, re.MULTILINE)
            return f"its build failed: {errors[0] if errors else _last_line(text)}; see {LOG}"
    return ""


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it says nothing"


if __name__ == "__main__":
    main()
