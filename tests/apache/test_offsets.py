"""Offsets in a file: Java's LocalFileOffsetStore and ours read what the other wrote.

`python -m tests.apache.test_offsets`, run at the top of the checkout, writes the golden file anew
that tests without Java read.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from orbitmq.consumer.offsets import LocalFileOffsetStore
from orbitmq.message import MessageQueue
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST, ApacheRelease, find_release
from tests.apache.java_program import JavaProgram

GOLDEN = Path(__file__).parents[1] / "consumer" / "golden" / "local_offsets.json"
ABOUT = (
    "offsets.json as LocalFileOffsetStore of each release writes it: "
    "orders/broker-a/0 at 4, orders/broker-a/1 at 8, bills/broker-b/7 at 2**40."
)
CLIENT_ID, GROUP = "10.0.0.1@one", "readers"
Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in range(2))
BILLS = MessageQueue("bills", "broker-b", 7)

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]


def exchange(release: ApacheRelease, root: Path) -> tuple[dict[str, int], str]:
    """Write a file, and have Java load it and write it anew: what it loaded, what it wrote."""
    store = LocalFileOffsetStore(CLIENT_ID, GROUP, root)
    store.update(Q0, 3)
    store.update(Q1, 7)
    asyncio.run(store.persist([Q0, Q1]))
    with JavaProgram(release, "LocalOffsets", [str(root), CLIENT_ID, GROUP]) as program:
        program.wait()
        (loaded,), (written,) = program.values("loaded"), program.values("written")
    return loaded, written["text"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_java_reads_our_file_and_we_read_java_s(tmp_path: Path, version: str) -> None:
    loaded, text = exchange(release_or_skip(version), tmp_path)
    assert loaded == {str(Q0): 3, str(Q1): 7}
    store = LocalFileOffsetStore(CLIENT_ID, GROUP, tmp_path)
    asyncio.run(store.load())
    assert store.clone() == {Q0: 4, Q1: 8, BILLS: 2**40}
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["files"][version]
    assert sorted(text) == sorted(golden)  # the order of a hash table is nobody's affair


def main() -> None:
    """Writes the golden file anew."""
    files = {}
    for version in (OLDEST, NEWEST):
        with tempfile.TemporaryDirectory() as root:
            _, files[version] = exchange(find_release(version), Path(root))
    GOLDEN.parent.mkdir(exist_ok=True)
    text = json.dumps({"about": ABOUT, "files": files}, indent=1)
    GOLDEN.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
