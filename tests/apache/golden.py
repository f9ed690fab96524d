"""Golden frames: what Apache's real classes write, kept where tests without Java can read it.

`python -m tests.apache.golden`, run at the top of the checkout, writes the file anew;
test_golden.py captures again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.apache.jars import find_release
from tests.apache.java_program import JavaProgram

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

COMMANDS = Path(__file__).parents[1] / "wire" / "golden" / "commands.json"
SIGNATURES = COMMANDS.with_name("signatures.json")
ABOUT = (
    "Frames as NettyEncoder of Apache RocketMQ writes them, as hex: 'json' with a JSON header, "
    "'binary' with a ROCKETMQ header. Beside them what went in: the typed header with Java's field "
    "names, extFields as they come out in the JSON form, and the body. Written by golden.py."
)


def capture_commands(release: ApacheRelease) -> dict[str, Any]:
    """Runs java/GoldenCommands.java; the content of commands.json."""
    with JavaProgram(release, "GoldenCommands") as program:
        program.wait()
        commands = program.values("command")
    return {
        "about": ABOUT,
        "program": "tests/apache/java/GoldenCommands.java",
        "rocketmq": release.version,
        "commands": commands,
    }


def capture_signatures(release: ApacheRelease) -> dict[str, Any]:
    """Runs java/GoldenSignatures.java; the content of signatures.json, which no version changes."""
    with JavaProgram(release, "GoldenSignatures") as program:
        program.wait()
        signatures = program.values("signature")
    return {
        "about": "What AclClientRPCHook makes of the extFields of requests. Written by golden.py.",
        "program": "tests/apache/java/GoldenSignatures.java",
        "signatures": signatures,
    }


def main() -> None:
    """Writes the golden files anew."""
    release = find_release()
    for path, content in (
        (COMMANDS, capture_commands(release)),
        (SIGNATURES, capture_signatures(release)),
    ):
        path.parent.mkdir(exist_ok=True)
        text = json.dumps(content, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
