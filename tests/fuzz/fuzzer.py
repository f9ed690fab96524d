"""Feeds the compiled core what nobody should send, and asks Python what should have come of it.

    python -m tests.fuzz.fuzzer [--frames N] [--number SEED]

Frames are seeds (tests/fuzz/corpus) with changes; many at a time are decoded, encoded as records
and entered into the key index, as a broker does. Of every ``COMPARED`` rounds one is done by the
Python twins too, and must come out the same. speed/README.md says how it runs with a sanitizer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from orbitmq.codes import RequestCode
from orbitmq.compiled import TWINS
from orbitmq.errors import HeaderError
from orbitmq.store.index_keys import KINDS, record_keys
from orbitmq.store.index_slots import IndexSlots
from orbitmq.store.pull import neighbours
from orbitmq.wire.batch_records import encode_body
from orbitmq.wire.command import decode_command
from orbitmq.wire.frames import decode_frames
from orbitmq.wire.headers import SendMessageRequestHeaderV2
from orbitmq.wire.plain_sends import SendRules, encode_sends
from orbitmq.wire.response_template import ResponseTemplate
from tests.fuzz.mutations import Mutations

CORPUS = Path(__file__).with_name("corpus")
COMPARED: Final = 50
FRAMES_A_ROUND: Final = 64
BATCHES_A_ROUND: Final = 8
LOG: Final = memoryview(b"".join(number.to_bytes(2) for number in range(2000)))
"""A part of a log, no two places of which look the same."""
HEADS: Final = 0xDAA320A7, 3, bytes(range(44)), b"\x06orders"
"""Magic, queue id, what the records of a batch have in common, the topic."""
SEND: Final = RequestCode.SEND_MESSAGE_V2
SENDS: Final = {RequestCode.SEND_MESSAGE, SEND, RequestCode.SEND_BATCH_MESSAGE}
LIMIT: Final = 4096
"""Of a frame: a longer one is impossible."""
HOST: Final = bytes([10, 0, 0, 1, 0, 0, 42, 159])
NOW: Final = 1_704_067_200_000
ANSWER: Final = ResponseTemplate(
    {"TRACE_ON": "100%%", "msgId": "0A%016X", "q": "%d", "o": "%d", "transactionId": "%b"}
)
RULES: Final = SendRules(
    HOST,
    "CLUSTER\x01c\x02MSG_REGION\x01é\x02",
    200,
    ("DELAY", "TRAN_MSG", "TIMER_"),
    ANSWER.text,
    ANSWER.parts,
)
TOPICS: Final = {"orders": (4, 0), "flights": (2, 1 << 3), "long-" * 20: (1, 0)}


class Wrong(AssertionError):  # noqa: N818 - it is one
    """The compiled core did something else than Python."""


class Fuzzer:
    """One after the other, rounds of frames made of ``seeds`` by the chance of ``number``.

    ``frames`` counts them, ``sends`` those that the compiled core decoded itself, ``records`` what
    it encoded, ``batches`` and ``pulls`` those that were as they should be, ``compared`` the
    frames that Python decoded too.
    """

    def __init__(self, seeds: list[bytes], number: int) -> None:
        self._mutations = Mutations(seeds, number)
        self._batches = Mutations([seed for seed in seeds if b'"code":320' in seed], number)
        self._slots = IndexSlots(997)
        self.frames = self.sends = self.records = self.batches = self.pulls = 0
        self.compared = self._rounds = 0

    def __str__(self) -> str:
        return (
            f"{self.frames:,} frames, {self.sends:,} sends decoded, {self.records:,} records and "
            f"{self.batches:,} batches encoded, {self.pulls:,} pulls, "
            f"{self.compared:,} frames compared with Python"
        )

    def round(self) -> None:
        """Another round; raises Wrong."""
        frames = [self._mutations.frame() for _ in range(FRAMES_A_ROUND)]
        is_compared = self._rounds % COMPARED == 0
        self._rounds += 1
        self.frames += len(frames)
        if is_compared:
            self.compared += len(frames)
        commands, wanted = self._decode(frames, is_compared=is_compared)
        for position, records in self._encode(commands, wanted):
            self._index(records, position, is_compared=is_compared)
        for _ in range(BATCHES_A_ROUND):
            self._batch(is_compared=is_compared)
            self._pull(is_compared=is_compared)

    def _decode(self, frames: list[bytes], *, is_compared: bool) -> tuple[list[Any], list[Any]]:
        """The commands of all frames that are possible; and as Python decodes them."""
        data, ends, at = b"".join(frames), [], 0
        for frame in frames:
            at += len(frame)
            ends.append(at)
        plain, compiled = TWINS[decode_frames.__name__]
        decode = _nothing if compiled and not is_compared else decode_command
        commands: list[Any] = []
        wanted: list[Any] = []
        begin = 0
        while begin < len(data):
            rest = data[begin:]
            got, end = (compiled or plain)(rest, LIMIT, decode)
            commands += got
            if is_compared:
                others, other_end = plain(rest, LIMIT, decode)
                _check("decode_frames", rest, (shown(got), end), (shown(others), other_end))
                wanted += others
            end += begin
            # On with the frame after the one that is impossible, or whose header is.
            begin = next((other for other in ends if other > end), len(data))
        if not is_compared:
            commands = [command for command in commands if command is not None]
        self.sends += sum(1 for command in commands if type(command).__name__ == "SendCommand")
        return commands, wanted

    def _encode(self, commands: list[Any], wanted: list[Any]) -> list[tuple[int, bytes]]:
        """What the log gets of the commands, and where; each that is not plain is passed over."""
        plain, compiled = TWINS[encode_sends.__name__]
        noted = [(command, HOST, None) for command in commands if command.code in SENDS]
        python = [(command, HOST, None) for command in wanted if command.code in SENDS]
        written: list[tuple[int, bytes]] = []
        first = 0
        while first < len(noted):
            position = 1000 + self.records
            rest = RULES, TOPICS.get, _find_queue, NOW, position, 1 << 40
            records, answers, got = (compiled or plain)(noted, first, *rest)
            last = first + len(answers)
            if python:  # which may go on where the compiled core leaves the rest to it
                expected = plain(python[:last], first, *rest)
                _check("encode_sends", python[first:last], (records, answers, got), expected)
            self.records += len(answers)
            written.append((position, records))
            first = last + 1
        return written

    def _index(self, records: bytes, position: int, *, is_compared: bool) -> None:
        """Enter what was stored, as it is and damaged."""
        plain, compiled = TWINS[record_keys.__name__]
        chance = self._batches.chance
        damaged = bytearray(records)
        for _ in range(chance.choice([1, 2, 9]) if records else 0):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 127, 128, 255])
        for data in (records, bytes(damaged), records[: chance.randrange(len(records) + 1)]):
            asked = data, position, chance.choice([-1, position]), chance.random() < 0.5, KINDS
            got = (compiled or plain)(*asked)
            if is_compared:
                _check("record_keys", asked, got, plain(*asked))
            self._slots.put(got[0], 1 + self.frames % 100_000, NOW - 5_000)

    def _batch(self, *, is_compared: bool) -> None:
        """Encode the messages of a batch."""
        chance = self._batches.chance
        plain, compiled = TWINS[encode_body.__name__]
        limit = chance.choice([1 << 40, 1 << 40, 1300])
        asked = self._batches.body(), HEADS, b"\x02TAGS\x01", 3000, (7, 1000, limit)
        got = (compiled or plain)(*asked)
        self.batches += got is not None
        if is_compared:
            _check("encode_body", asked, got, plain(*asked))

    def _pull(self, *, is_compared: bool) -> None:
        """Find the records of a queue's entries."""
        chance = self._batches.chance
        plain, compiled = TWINS[neighbours.__name__]
        limits = chance.choice([1, 3, 32, 0]), chance.choice([0, 300, 1 << 20, 2**63 - 1])
        base = chance.choice([0, 0, 0, 300])
        asked = LOG[base:], base, len(LOG), self._batches.units(), *limits
        got = (compiled or plain)(*asked)
        self.pulls += got is not None
        if is_compared:
            _check("neighbours", asked, got, plain(*asked))


def shown(commands: list[Any]) -> list[Any]:
    """What commands are, whatever made them."""
    names = "code", "opaque", "flag", "language", "version", "remark"
    return [
        (*(getattr(one, name) for name in names), _fields(one), bytes(one.body)) for one in commands
    ]


def _fields(command: Any) -> object:
    try:
        header = command.header(SendMessageRequestHeaderV2) if command.code == SEND else None
        return dict(command.ext_fields), header
    except HeaderError as error:
        return str(error)


def _check(name: str, asked: object, got: object, wanted: object) -> None:
    if got != wanted:
        raise Wrong(f"{name} of {asked!r}\nis    {got!r}\nnot   {wanted!r}")


def _nothing(_form: int, _header: bytes, _body: bytes) -> None:
    """Instead of a general decoder, which is Python."""


def _find_queue(topic: str, queue_id: int) -> tuple[tuple[str, int], int]:
    return (topic, queue_id), 7


def read_corpus() -> list[bytes]:
    """The seeds; plain sends, which go furthest, several times."""
    paths = sorted(CORPUS.glob("*.frame"))
    paths += [path for path in paths if path.name.startswith("plain")] * 4
    return [path.read_bytes() for path in paths]


def main() -> None:
    """Run, and say now and then how far it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzzer", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--number", type=int, default=1, help="another one makes other frames")
    arguments = parser.parse_args()
    fuzzer, began = Fuzzer(read_corpus(), arguments.number), time.monotonic()
    names = ", ".join(name for name, (_, twin) in TWINS.items() if twin)
    say: Callable[[str], None] = lambda text: print(text, flush=True)  # noqa: E731, T201
    say(f"compiled: {names or 'nothing'}")
    while fuzzer.frames < arguments.frames:
        fuzzer.round()
        if fuzzer.frames % (FRAMES_A_ROUND << 13) == 0 or fuzzer.frames >= arguments.frames:
            say(f"{fuzzer}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
