"""deliveryGuarantee=exactly_once, in the driver: which attempts count, and that their rows arrive.

A write is decided when a note on its brokers names the attempts that count. Only then are the rows
they staged delivered; so whoever finds the note can go on where another one stopped: the driver
that runs the batch again, or :mod:`orbitmq.spark.sink.check_backs`. What was delivered is found in
the topic by the rows' unique ids. The half messages that stand for the rows are rolled back at the
end, whatever was decided: all that they are for is that brokers ask about them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from secrets import token_hex
from typing import Final
from urllib.parse import quote

import msgspec

from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, DataLossError, NetworkError
from orbitmq.message import MessageQueue
from orbitmq.net.blocking import CONNECTIONS
from orbitmq.spark.patience import Patience, Patient
from orbitmq.spark.sink.begins import settle
from orbitmq.spark.sink.delivery import Delivery
from orbitmq.spark.sink.lease import Lease, Renew
from orbitmq.spark.sink.ledger import Ledger
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.queue_ends import queue_ends
from orbitmq.spark.sink.staged import ATTEMPT_DIGITS, HalfMessage, StagedList
from orbitmq.spark.source.options import TOOLS_GROUP
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.routes import fetch_route, master_addresses
from orbitmq.wire.headers import EndTransactionRequestHeader
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import UNIQ_KEY
from orbitmq.wire.record import TRANSACTION_ROLLBACK

log = logging.getLogger("orbitmq.spark")

WRITE_PROPERTY: Final = "orbitmq_spark_write"
"""In all that a task brings to a broker: the write it belongs to, a space, and the attempt."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a task: where in this broker's log the ``lists`` are of what it staged."""

    tag: str
    lists: list[int]
    rows: int


class Share(msgspec.Struct, frozen=True):
    """One broker's part of a write: who sent to it, and where its queues ended before."""

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


class Decisions:
    """What became of one ``write``."""

    def __init__(self, options: WriteOptions, write: str) -> None:
        self._options = options
        self._write = write
        self._scope = quote(write, safe=":/")
        self._client_id = token_hex(8)
        self._patient = Patient(f"deciding {write}", options.broker_wait_ms)

    def find(self, ledger: Ledger) -> Decision | None:
        """The decision, if one was made, as one broker has it."""
        notes = ledger.find(f"{self._scope}:decision")
        return msgspec.json.decode(notes[0].body, type=Decision) if notes else None

    def commit(self, shares: Iterable[dict[str, Share]], earlier: Decision | None) -> None:
        """Have what the tasks sent count, and deliver it; or what ``earlier`` says instead."""
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
        ledgers = self._ledgers(decision)
        for name, ledger in ledgers.items():
            share = decision.brokers[name]
            self._patient(self._note_ends, ledger, share)
        return self._spread(decision, ledgers)

    def _note_ends(self, ledger: Ledger, share: Share) -> None:
        """Fill in where the queues of one broker end."""
        ends, access = share.ends, self._options.access
        for topic, queues in ends.items():
            queue = MessageQueue(topic, ledger.broker_name, 0)
            ends[topic] = queue_ends(ledger.address, queue, queues, access)

    def finish(self, decision: Decision, *, fresh: bool) -> None:
        """Deliver all that counts and is not there yet.

        ``fresh`` says that the decision is known to be on all its brokers. Raises NetworkError or
        BrokerError when a broker stays away; what is decided stays so.
        """
        ledgers = self._ledgers(decision)
        if not fresh:
            self._spread(decision, ledgers)
        for name, share in decision.brokers.items():
            if share.attempts:
                self._finish(decision, ledgers[name], share)

    def is_done(self, decision: Decision) -> bool:
        """Whether all that counts was delivered."""
        return all(
            ledger.find(f"{self._scope}:done")
            for name, ledger in self._ledgers(decision).items()
            if decision.brokers[name].attempts
        )

    def drop(self, ledger: Ledger, halves: Iterable[HalfMessage]) -> None:
        """Roll half messages of one broker back."""
        requests = [
            (RequestCode.END_TRANSACTION, _rollback(one, self._options.group, ledger))
            for one in dict.fromkeys(halves)
        ]
        with CONNECTIONS.borrow(ledger.address, self._options.access) as connection:
            connection.request_all(requests)

    def drop_all(self, shares: Iterable[dict[str, Share]]) -> None:
        """Roll back what tasks sent and does not count, as far as brokers can be reached."""
        merged = self._merged(shares)
        try:
            ledgers = self._ledgers(merged)
            decided = [self.find(ledger) for ledger in ledgers.values()]
            kept = {tag for decision in decided if decision for tag in decision.tags}
            for name, share in merged.brokers.items():
                ledgers[name].write_and_find(f"{self._scope}:dropped", b"{}")
                unkept = [one for one in share.attempts if one.tag not in kept]
                lists = self._lists(ledgers[name], unkept)
                self.drop(ledgers[name], (one.half for _, one in lists))
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

    def _spread(self, decision: Decision, ledgers: dict[str, Ledger]) -> Decision:
        """Have the decision on each broker before anything is committed; the one that counts."""
        body = msgspec.json.encode(decision)
        key = f"{self._scope}:decision"
        for ledger in ledgers.values():
            _, notes = self._patient(ledger.write_and_find, key, body)
            first = msgspec.json.decode(notes[0].body, type=Decision)
            if first.tags != decision.tags:
                return first
        return decision

    def _finish(self, decision: Decision, ledger: Ledger, share: Share) -> None:
        patience = Patience(f"delivering {self._write}", self._options.broker_wait_ms)
        lists: list[tuple[str, StagedList]] = []
        while True:
            try:
                with self._lease(ledger).held() as renew:
                    own, notes = ledger.write_and_find(f"{self._scope}:delivering", b"{}")
                    begun = notes[0].log_offset < own
                    if begun and ledger.find(f"{self._scope}:done"):
                        return
                    present = self._delivered(ledger, share) if begun else set()
                    lists = self._lists(ledger, share.attempts)
                    self._deliver(ledger, decision.group, lists, present, renew)
                    ledger.write(f"{self._scope}:done", b"{}")
            except (NetworkError, BrokerError) as error:
                patience.wait_after(error)
            else:
                break
        try:
            self.drop(ledger, (one.half for _, one in lists))
        except (NetworkError, BrokerError) as error:
            log.warning("half messages of %s stay open, though it is done: %s", self._write, error)

    def _deliver(
        self,
        ledger: Ledger,
        group: str,
        lists: list[tuple[str, StagedList]],
        present: set[bytes],
        renew: Renew,
    ) -> None:
        with closing(Delivery(ledger, self._options, group, renew)) as delivery:
            for owner, one in lists:
                delivery.send(one, partial(_is_of, owner), present)
            delivery.finish()

    def _delivered(self, ledger: Ledger, share: Share) -> set[bytes]:
        """The unique ids of what is in the topics already."""
        settle(ledger, self._scope)
        access = self._options.access
        tags = {attempt.tag for attempt in share.attempts}
        found: set[bytes] = set()
        for topic, begins in share.ends.items():
            queue = MessageQueue(topic, ledger.broker_name, 0)
            ends = queue_ends(ledger.address, queue, begins, access)
            reader = RangeReader(topic, TOOLS_GROUP, "*", fail_on_data_loss=False, access=access)
            for number, begin in begins.items():
                span = QueueRange(
                    topic, ledger.broker_name, number, ledger.address, begin, ends[number]
                )
                for _, data in reader.read([span] if span.rows > 0 else []):
                    ids = (view.property(UNIQ_KEY) or "" for view in decode_records(data))
                    found.update(one.encode() for one in ids if one[:ATTEMPT_DIGITS] in tags)
        return found

    def _lists(self, ledger: Ledger, attempts: Iterable[Attempt]) -> list[tuple[str, StagedList]]:
        """What ``attempts`` staged on one broker, and whose it is, as messages say it.

        Raises DataLossError where it is gone.
        """
        found = []
        for attempt in attempts:
            owner = f"{self._scope} {attempt.tag}"
            with closing(ledger.read(attempt.lists)) as messages:
                for message in messages:
                    if not _is_of(owner, message):
                        raise DataLossError(
                            f"{ledger.address} does not have what {self._write} staged there"
                        )
                    found.append((owner, msgspec.msgpack.decode(message.body, type=StagedList)))
        return found

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

        return self._patient(look)

    def _lease(self, ledger: Ledger) -> Lease:
        return Lease(ledger, self._scope, self._client_id, self._options.access)


def _is_of(owner: str, message: MessageView) -> bool:
    return message.property(WRITE_PROPERTY) == owner


def _rollback(one: HalfMessage, group: str, ledger: Ledger) -> EndTransactionRequestHeader:
    return EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=one.half_offset,
        commit_log_offset=one.log_offset,
        commit_or_rollback=TRANSACTION_ROLLBACK,
        msg_id="",
        bname=ledger.broker_name,
    )
