"""Writes the seeds of the fuzzer: frames as our own encoders make them, a few of each kind.

    python -m tests.fuzz.seeds

They are kept in the repository (tests/fuzz/corpus), so that a fuzzer's run can be repeated whatever
becomes of the encoders.
"""

from __future__ import annotations

from pathlib import Path

from orbitmq.wire.command import BINARY, JSON
from tests.broker.remote import send_header
from tests.replay.exchange import Script

CORPUS = Path(__file__).with_name("corpus")
LARGEST = 700
EACH = 5


def main() -> None:
    """Write them anew."""
    CORPUS.mkdir(exist_ok=True)
    for old in CORPUS.glob("*.frame"):
        old.unlink()
    script = Script(1)
    kinds = {
        "send": script.send, "batch": script.batch, "old-send": script.old_send,
        "odd-send": script.odd_send, "pull": script.any_pull, "commit": script.commit,
        "back": script.back, "query": script.query,
    }  # fmt: skip
    for name, kind in kinds.items():
        small = (frame for frame in iter(kind, None) if len(frame) <= LARGEST)
        for number in range(EACH):
            (CORPUS / f"{name}-{number}.frame").write_bytes(next(small))
    # What the compiled core decodes itself: plain sends, as a producer sends them.
    for number in range(2 * EACH):
        header = send_header(
            "orders" if number % 2 else "flights",
            queue_id=number % 4,
            tags=("TagA", "京", 'a"\\', "")[number % 4],
            properties={"UNIQ_KEY": f"7F0000010A1B{number:020X}", "KEYS": f"k{number} k"},
            born_timestamp=1_704_067_200_000 + number,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname="broker-a",
        )
        form = BINARY if number == EACH else JSON
        frame = script.frame(310, header, bytes(range(number * 9)), serialize_type=form)
        (CORPUS / f"plain-{number}.frame").write_bytes(frame)


if __name__ == "__main__":
    main()
