"""deliveryGuarantee=exactly_once, in the driver: which half messages count, and their delivery.

A write is decided when a note on its brokers names the attempts whose half messages count. Only
then are these committed; so whoever finds the note can go on where another one stopped: the driver
that runs the batch again, or :mod:`orbitmq.spark.check_backs`. What was committed is found in the
topic, where each message says which half message it was. What counts is committed through the half
messages as they were sent, so a broker that asks about one is told to drop what it asks about.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from secrets import token_hex
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
import numpy as np
import numpy.typing as npt

from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, for_code
from orbitmq.message import MessageQueue
from orbitmq.net.blocking import CONNECTIONS
from orbitmq.spark.begins import settle
from orbitmq.spark.ledger import LEDGER_QUEUES, LEDGER_TOPIC, STORED, Ledger
from orbitmq.spark.options import TOOLS_GROUP
from orbitmq.spark.patience import Patience, patiently
from orbitmq.spark.planning import QueueRange
from orbitmq.spark.pulling import RangeReader
from orbitmq.spark.queue_ends import queue_ends
from orbitmq.spark.routes import fetch_route, master_addresses
from orbitmq.spark.write_options import WriteOptions
from orbitmq.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueues
from orbitmq.wire.headers import EndTransactionRequestHeader
from orbitmq.wire.message_view import decode_records
from orbitmq.wire.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

log = logging.getLogger("orbitmq.spark")

HALF: Final = np.dtype(
    [("row", "<i8"), ("log_offset", "<i8"), ("half_offset", "<i8"), ("queue", "<i4"),
     ("placed", "?")]
)  # fmt: skip
"""A half message: its row, where it is in the log and among the half messages, which queue it is
for, and whether its order there matters."""
Halves: TypeAlias = npt.NDArray[Any]

WINDOW: Final = 256
RENEW_SECONDS: Final = 20.0
"""How often the right to commit is renewed; brokers keep it for 60 seconds."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a task: ``chunks`` notes list its half messages on this broker."""

    tag: str
    chunks: int
    rows: int


class Share(msgspec.Struct, frozen=True):
    """One broker's part of a write: who sent to it, and where its queues ended before a commit."""

    attempts: list[Attempt]
    ends: dict[str, dict[int, int]]


class Decision(msgspec.Struct, frozen=True):
    """The attempts of ``write`` that count, by broker, sent as producer ``group``."""

    write: str
    group: str
    brokers: dict[str, Share]
    made_ms: int

    @property
    def tags(self) -> set[str]:
        """Those of all its attempts."""
        return {one.tag for share in self.brokers.values() for one in share.attempts}


def encode_halves(halves: Halves) -> bytes:
    """Half messages as a note has them."""
    return zlib.compress(halves.tobytes(), 1)


def rows_key(scope: str, tag: str, chunk: int) -> str:
    """The key of a note that lists half messages."""
    return f"{scope}:{tag}:{chunk}"


class Decisions:
    """What became of one ``write``."""

    def __init__(self, options: WriteOptions, write: str) -> None:
        self._options = options
        self._write = write
        self._scope = quote(write, safe=":/")
        self._client_id = token_hex(8)

    def find(self, ledger: Ledger) -> Decision | None:
        """The decision, if one was made, as one broker has it."""
        notes = ledger.find(f"{self._scope}:decision")
        return msgspec.json.decode(notes[0].body, type=Decision) if notes else None

    def commit(self, shares: Iterable[dict[str, Share]], earlier: Decision | None) -> None:
        """Have what the tasks sent count, and commit it; or what ``earlier`` says instead."""
        every = [*shares]
        sent = self._merged(every)
        decision = earlier or (self.decide(every) if sent.tags else None)
        fresh = decision is not None and earlier is None and decision.tags == sent.tags
        if sent.tags and not fresh:
            self.drop_all(every)
        if decision is not None:
            self.finish(decision, fresh=fresh)

    def decide(self, shares: Iterable[dict[str, Share]]) -> Decision:
        """Store that what the tasks sent counts, on all of their brokers.

        Returns the decision that does, which is an earlier one if there is one.
        """
        decision = self._merged(shares)
        for name, ledger in self._ledgers(decision).items():
            share = decision.brokers[name]
            self._patiently(lambda ledger=ledger, share=share: self._note_ends(ledger, share))
        return self._spread(decision)

    def _note_ends(self, ledger: Ledger, share: Share) -> None:
        """Fill in where the queues of one broker end."""
        ends, access = share.ends, self._options.access
        for topic, queues in ends.items():
            queue = MessageQueue(topic, ledger.broker_name, 0)
            ends[topic] = queue_ends(ledger.address, queue, queues, access)

    def finish(self, decision: Decision, *, fresh: bool) -> None:
        """Commit all that counts and is not committed yet.

        ``fresh`` says that nobody began to before. Raises NetworkError or BrokerError when a broker
        stays away; what is decided stays so.
        """
        if not fresh:
            self._spread(decision)
        for name, share in decision.brokers.items():
            if share.attempts:
                self._finish(decision, name, share, fresh=fresh)

    def is_done(self, decision: Decision) -> bool:
        """Whether all that counts was committed."""
        return all(
            ledger.find(f"{self._scope}:done")
            for name, ledger in self._ledgers(decision).items()
            if decision.brokers[name].attempts
        )

    def drop(self, ledger: Ledger, halves: Halves) -> None:
        """Roll half messages of one broker back."""
        self._end(ledger, halves, TRANSACTION_ROLLBACK, self._options.group, lambda: None)

    def drop_all(self, shares: Iterable[dict[str, Share]]) -> None:
        """Roll back what tasks sent and does not count, as far as brokers can be reached."""
        merged = self._merged(shares)
        try:
            ledgers = self._ledgers(merged)
            decided = [self.find(ledger) for ledger in ledgers.values()]
            kept = {tag for decision in decided if decision for tag in decision.tags}
            for name, share in merged.brokers.items():
                ledgers[name].write_and_find(f"{self._scope}:dropped", b"{}")
                for attempt in share.attempts:
                    if attempt.tag not in kept:
                        self.drop(ledgers[name], self._halves(ledgers[name], attempt))
        except (NetworkError, BrokerError) as error:
            log.warning("half messages of %s stay open for now: %s", self._write, error)

    def _merged(self, shares: Iterable[dict[str, Share]]) -> Decision:
        brokers: dict[str, Share] = {}
        for of_task in shares:
            for name, share in of_task.items():
                known = brokers.setdefault(name, Share([], {}))
                known.attempts.extend(share.attempts)
                for topic, queues in share.ends.items():
                    known.ends.setdefault(topic, {}).update(queues)
        return Decision(self._write, self._options.group, brokers, time.time_ns() // 1_000_000)

    def _spread(self, decision: Decision) -> Decision:
        """Have the decision on each broker before anything is committed; the one that counts."""
        body = msgspec.json.encode(decision)
        key = f"{self._scope}:decision"
        for ledger in self._ledgers(decision).values():
            _, notes = self._patiently(lambda ledger=ledger: ledger.write_and_find(key, body))
            first = msgspec.json.decode(notes[0].body, type=Decision)
            if first.tags != decision.tags:
                return first
        return decision

    def _finish(self, decision: Decision, name: str, share: Share, *, fresh: bool) -> None:
        ledger = self._ledgers(decision)[name]
        patience = Patience(f"committing {self._write}", self._options.broker_wait_ms)
        while True:
            try:
                with self._lease(ledger) as renew:
                    if not fresh and ledger.find(f"{self._scope}:done"):
                        return
                    present = set() if fresh else self._committed(ledger, share)
                    for attempt in share.attempts:
                        halves = self._halves(ledger, attempt)
                        missing = halves[~np.isin(halves["log_offset"], [*present])]
                        self._end(ledger, missing, TRANSACTION_COMMIT, decision.group, renew)
                    ledger.write(f"{self._scope}:done", b"{}")
            except (NetworkError, BrokerError) as error:
                patience.wait_after(error)
                fresh = False
            else:
                return

    def _committed(self, ledger: Ledger, share: Share) -> set[int]:
        """The half messages whose messages are in their topics."""
        settle(ledger, self._scope)
        access = self._options.access
        found: set[int] = set()
        for topic, begins in share.ends.items():
            queue = MessageQueue(topic, ledger.broker_name, 0)
            ends = queue_ends(ledger.address, queue, begins, access)
            reader = RangeReader(topic, TOOLS_GROUP, "*", fail_on_data_loss=False, access=access)
            for number, begin in begins.items():
                span = QueueRange(
                    topic, ledger.broker_name, number, ledger.address, begin, ends[number]
                )
                for _, data in reader.read([span] if span.rows > 0 else []):
                    found.update(view.prepared_transaction_offset for view in decode_records(data))
        return found

    def _halves(self, ledger: Ledger, attempt: Attempt) -> Halves:
        """The half messages of ``attempt``; raises NetworkError when they are not all listed."""
        chunks = []
        for index in range(attempt.chunks):
            notes = ledger.find(rows_key(self._scope, attempt.tag, index))
            if not notes:
                raise NetworkError(
                    f"the list of half messages of {self._write} is not found yet", ledger.address
                )
            chunks.append(np.frombuffer(zlib.decompress(notes[0].body), HALF))
        return np.concatenate(chunks) if chunks else np.zeros(0, HALF)

    def _end(self, ledger: Ledger, halves: Halves, how: int, group: str, renew: Any) -> None:
        """Commit or roll back; raises the error of the first that is refused."""
        with CONNECTIONS.borrow(ledger.address, self._options.access) as connection:
            for window in _windows(halves):
                renew()
                requests = [
                    (RequestCode.END_TRANSACTION, _end_header(one, how, group, ledger), b"")
                    for one in window.tolist()
                ]
                for answer in connection.exchange(requests):
                    if answer.code not in STORED:
                        raise for_code(
                            answer.code, answer.remark, ledger.address,
                            self._options.access.access_key,
                        )  # fmt: skip

    def _ledgers(self, decision: Decision) -> dict[str, Ledger]:
        """By broker name; raises NetworkError when one is away for longer than brokerWaitMs."""
        options = self._options

        def look() -> dict[str, Ledger]:
            addresses: dict[str, str] = {}
            for topic in {topic for share in decision.brokers.values() for topic in share.ends}:
                route = fetch_route(options.name_servers, topic, options.access)
                addresses |= master_addresses(route)
            away = decision.brokers.keys() - addresses.keys()
            if away:
                raise NetworkError(
                    f"{self._write} needs {', '.join(sorted(away))}, which the name server does "
                    "not know now: start it again"
                )
            return {
                name: Ledger(addresses[name], name, options.group, options.access)
                for name in sorted(decision.brokers)
            }

        doing = f"deciding {self._write}"
        return patiently(doing, options.broker_wait_ms, look)

    def _patiently(self, call: Any) -> Any:
        return patiently(f"deciding {self._write}", self._options.broker_wait_ms, call)

    @contextmanager
    def _lease(self, ledger: Ledger) -> Iterator[Any]:
        """The right to commit on one broker: nobody else has it in the block."""
        number = zlib.crc32(self._scope.encode()) % LEDGER_QUEUES
        queues = MessageQueues([MessageQueue(LEDGER_TOPIC, ledger.broker_name, number)])
        request = LockBatchRequestBody(TOOLS_GROUP, self._client_id, queues)
        renewed = -RENEW_SECONDS

        def renew() -> None:
            nonlocal renewed
            if time.monotonic() - renewed < RENEW_SECONDS:
                return
            with CONNECTIONS.borrow(ledger.address, self._options.access) as connection:
                answer = connection.request(RequestCode.LOCK_BATCH_MQ, body=request.encode())
            if not LockBatchResponseBody.decode(answer.body).lock_ok_mq_set:
                raise NetworkError(
                    f"{ledger.address} does not let {self._write} be committed: another process "
                    f"commits, or {LEDGER_TOPIC} has fewer than {LEDGER_QUEUES} queues",
                    ledger.address,
                )
            renewed = time.monotonic()

        renew()
        try:
            yield renew
        finally:
            try:
                with CONNECTIONS.borrow(ledger.address, self._options.access) as connection:
                    connection.request(RequestCode.UNLOCK_BATCH_MQ, body=request.encode())
            except (NetworkError, BrokerError) as error:
                log.warning("the right to commit %s is kept for a minute: %s", self._write, error)


def _windows(halves: Halves) -> Iterator[Halves]:
    """What may be under way at once: of messages whose order matters one a queue."""
    placed, others = halves[halves["placed"]], halves[~halves["placed"]]
    ranks = np.zeros(len(placed), np.int64)
    for queue in np.unique(placed["queue"]):
        own = placed["queue"] == queue
        ranks[own] = np.arange(np.count_nonzero(own))
    by_rank = placed[np.argsort(ranks, kind="stable")]
    ends = np.cumsum(np.bincount(ranks)) if len(ranks) else np.zeros(0, np.int64)
    for begin, end in pairwise([0, *ends.tolist()]):
        for at in range(begin, end, WINDOW):
            yield by_rank[at : min(at + WINDOW, end)]
    for at in range(0, len(others), WINDOW):
        yield others[at : at + WINDOW]


def _end_header(
    one: tuple[int, int, int, int, bool], how: int, group: str, ledger: Ledger
) -> EndTransactionRequestHeader:
    _, log_offset, half_offset, _, _ = one
    return EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=half_offset,
        commit_log_offset=log_offset,
        commit_or_rollback=how,
        msg_id="",
        bname=ledger.broker_name,
    )
