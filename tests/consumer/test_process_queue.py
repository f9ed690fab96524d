"""ProcessQueue against a plain model of Java's, and the rules of protocol.md one by one."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.consumer.process_queue import LOCK_EXPIRES_MS, PULL_EXPIRES_MS, ProcessQueue
from orbitmq.wire.running_info import ProcessQueueInfo
from tests.consumer.records import message, messages, offsets

NOW = 1_000_000


class Concurrent(RuleBasedStateMachine):
    """Messages put in order and removed in any order, against a sorted map, as Java's."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(NOW)
        self.held: dict[int, int] = {}
        self.largest = -1
        self.passed = -1
        self.next = 0

    @rule(gaps=st.lists(st.integers(1, 4), max_size=8), body=st.binary(max_size=20))
    def put_the_next_messages(self, gaps: list[int], body: bytes) -> None:
        views = []
        for gap in gaps:
            self.next += gap
            views.append(message(self.next, body))
            self.held[self.next] = views[-1].store_size
        self.largest = max(self.next, self.largest) if gaps else self.largest
        self.queue.put(views)

    @rule(some=st.lists(st.integers(0, 60), max_size=5))
    def put_any_messages(self, some: list[int]) -> None:
        views = [message(offset) for offset in some]
        if not self.held and some:
            self.largest = -1
        for view in views:
            if view.queue_offset not in self.held:
                self.held[view.queue_offset] = view.store_size
                self.largest = max(self.largest, view.queue_offset)
        self.next = max(self.next, self.largest)
        self.queue.put(views)

    @rule(unwanted=st.integers(0, 9))
    def the_next_pull_begins_further_on(self, unwanted: int) -> None:
        self.queue.passed = self.passed = self.next + 1 + unwanted

    @rule(data=st.data())
    def remove_some(self, data: st.DataObject) -> None:
        known = [*sorted(self.held), self.next + 7]
        chosen = data.draw(st.lists(st.sampled_from(known), unique=True))
        was_empty = not self.held
        committed = self.queue.remove(map(message, chosen), NOW + 5)
        for offset in chosen:
            self.held.pop(offset, None)
        done = max(self.largest + 1, self.passed)
        expected = -1 if was_empty else min(self.held, default=done)
        assert committed == expected

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.held.clear()
        self.largest = self.passed = -1

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        assert self.queue.count == len(self.held)
        assert self.queue.size == sum(self.held.values())
        assert self.queue.first_offset() == min(self.held, default=None)
        span = max(self.held) - min(self.held) if self.held else 0
        assert self.queue.max_span == span
        first = self.queue.first_message()
        assert (first and first.queue_offset) == min(self.held, default=None)


class Orderly(RuleBasedStateMachine):
    """Messages taken in order, committed or put back, against two sorted maps, as Java's."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue(NOW)
        self.waiting: list[int] = []
        self.consuming: list[int] = []
        self.next = 0
        self.passed = -1
        self.somebody = False

    @rule(count=st.integers(0, 5))
    def put(self, count: int) -> None:
        new = list(range(self.next, self.next + count))
        self.next += count
        self.waiting += new
        needed = bool(self.waiting) and not self.somebody
        assert self.queue.put(messages(new)) is needed
        self.somebody = self.somebody or needed

    @rule(unwanted=st.integers(0, 3))
    def the_next_pull_begins_further_on(self, unwanted: int) -> None:
        self.queue.passed = self.passed = self.next + unwanted

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        taken = offsets(self.queue.take(count, NOW))
        assert taken == self.waiting[:count]
        self.waiting = self.waiting[count:]
        self.consuming = sorted(self.consuming + taken)
        self.somebody = self.somebody and bool(taken)

    @rule()
    def commit(self) -> None:
        done = self.consuming[-1] + 1 if self.consuming else -1
        if self.consuming and not self.waiting:
            done = max(done, self.passed)
        assert self.queue.commit() == done
        self.consuming = []

    @rule()
    def rollback(self) -> None:
        self.queue.rollback()
        self.waiting = sorted(self.waiting + self.consuming)
        self.consuming = []

    @rule(data=st.data())
    def consume_again(self, data: st.DataObject) -> None:
        some = data.draw(st.sets(st.sampled_from(self.consuming or [0])))
        self.queue.consume_again(map(message, some))
        back = some & set(self.consuming)
        self.waiting = sorted([*self.waiting, *back])
        self.consuming = sorted(set(self.consuming) - back)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.queue.count == len(self.waiting) + len(self.consuming)
        assert self.queue.first_offset() == (self.waiting[0] if self.waiting else None)
        info = self.queue.info(0)
        assert info.transaction_msg_count == len(self.consuming)
        assert info.cached_msg_count == len(self.waiting)
        assert info.cached_msg_max_offset == (self.waiting[-1] if self.waiting else 0)
        if not self.queue.count:
            assert self.queue.size == 0


class Ownership(RuleBasedStateMachine):
    """Whose the queue is, by a clock that is moved: locks, listeners at work, and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.queue = ProcessQueue(NOW)
        self.granted_at: int | None = None
        self.pulled_at = NOW
        self.running = 0
        self.left = False
        self.submitted = 0
        self.waiting: set[int] = set()
        self.begun = -1

    @rule(ms=st.sampled_from([1, 20_000, LOCK_EXPIRES_MS, PULL_EXPIRES_MS]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule()
    def the_broker_grants_the_lock(self) -> None:
        self.queue.lock_granted(self.now)
        self.granted_at = self.now

    @rule()
    def the_broker_refuses_it(self) -> None:
        self.queue.locked = False
        self.granted_at = None

    @rule()
    def it_is_pulled(self) -> None:
        self.queue.last_pull_ms = self.pulled_at = self.now

    @rule()
    def a_listener_begins(self) -> None:
        assert self.queue.begin() is not self.left
        self.running += not self.left

    @rule(count=st.integers(1, 3))
    def batches_are_submitted(self, count: int) -> None:
        offsets = range(self.submitted, self.submitted + count)
        self.queue.submitted(offsets)
        self.waiting.update(offsets)
        self.submitted += count

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_listener_begins_a_batch(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.remove(offset)
        before_others = offset < self.begun and not self.queue.dropped
        begins = not self.left or before_others
        assert self.queue.begin(offset) is begins
        if begins:
            self.running += 1
            self.begun = max(self.begun, offset)

    @precondition(lambda self: self.running > 0)
    @rule()
    def a_listener_ends(self) -> None:
        self.running -= 1
        assert self.queue.end() is (self.left and self.queue.idle)

    @invariant()
    def it_is_idle_once_nothing_runs_and_no_hole_is_left(self) -> None:
        holes = {offset for offset in self.waiting if offset < self.begun}
        assert self.queue.idle is (self.running == 0 and not holes)

    @rule()
    def it_is_given_up(self) -> None:
        self.queue.leaving = self.left = True

    @rule()
    def it_is_dropped(self) -> None:
        self.queue.drop()
        self.left = True

    @invariant()
    def it_says_what_is_so(self) -> None:
        held = self.granted_at is not None and self.now - self.granted_at <= LOCK_EXPIRES_MS
        assert self.queue.holds_lock(self.now) is held
        assert self.queue.pull_expired(self.now) is (self.now - self.pulled_at > PULL_EXPIRES_MS)
        assert self.queue.running == self.running
        info = self.queue.info(0)
        assert info.locked is (self.granted_at is not None)
        assert (info.last_pull_timestamp, info.dropped) == (self.pulled_at, self.queue.dropped)
        assert self.queue.leaving is self.left


TestOwnership = Ownership.TestCase
TestConcurrent = Concurrent.TestCase
TestOrderly = Orderly.TestCase


def test_removing_from_an_empty_queue_commits_nothing() -> None:
    queue = ProcessQueue(NOW)
    assert queue.remove([message(3)], NOW) == -1
    queue.put(messages([3]))
    assert queue.remove([message(3)], NOW) == 4
    assert queue.remove([message(3)], NOW) == -1


def test_a_gap_in_what_is_done_holds_the_commit_back() -> None:
    queue = ProcessQueue(NOW)
    queue.put(messages(range(10, 15)))
    assert queue.remove(messages([12, 13, 14]), NOW) == 10
    assert queue.remove(messages([10]), NOW) == 11
    assert queue.remove(messages([11]), NOW) == 15


def test_a_message_pulled_twice_is_held_once() -> None:
    queue = ProcessQueue(NOW)
    queue.put(messages([1, 2, 3]))
    queue.put(messages([2, 3, 4]))
    assert (queue.count, queue.max_span) == (4, 3)
    assert queue.remove(messages([1, 2, 3, 4]), NOW) == 5


def test_what_is_consumed_in_order_is_not_put_again() -> None:
    queue = ProcessQueue(NOW)
    queue.put(messages([1, 2]))
    queue.take(1, NOW)
    queue.put(messages([1, 2, 3]))
    assert queue.count == 3
    assert offsets(queue.take(9, NOW)) == [2, 3]


@given(st.permutations(range(12)))
def test_however_consumers_finish_the_commit_never_passes_an_unfinished_message(
    finishing: list[int],
) -> None:
    queue = ProcessQueue(NOW)
    queue.put(messages(range(12)))
    unfinished = set(range(12))
    for offset in finishing:
        unfinished.discard(offset)
        assert queue.remove(messages([offset]), NOW) == min(unfinished, default=12)


def test_locks_expire_after_30_seconds() -> None:
    queue = ProcessQueue(NOW)
    assert not queue.holds_lock(NOW)
    queue.lock_granted(NOW)
    assert queue.holds_lock(NOW + LOCK_EXPIRES_MS)
    assert not queue.holds_lock(NOW + LOCK_EXPIRES_MS + 1)
    queue.lock_granted(NOW + 20_000)
    assert queue.holds_lock(NOW + 50_000)
    queue.locked = False
    assert not queue.holds_lock(NOW + 50_000)


def test_a_queue_not_pulled_for_two_minutes_is_expired() -> None:
    queue = ProcessQueue(NOW)
    assert not queue.pull_expired(NOW + PULL_EXPIRES_MS)
    assert queue.pull_expired(NOW + PULL_EXPIRES_MS + 1)
    queue.last_pull_ms = NOW + 1
    assert not queue.pull_expired(NOW + PULL_EXPIRES_MS + 1)


def test_the_info_shows_what_is_cached_and_what_is_consumed() -> None:
    queue = ProcessQueue(NOW)
    queue.put(messages(range(5, 9)))
    queue.take(2, NOW + 1)
    queue.lock_granted(NOW + 2)
    queue.last_pull_ms = NOW + 3
    assert queue.info(4) == ProcessQueueInfo(
        commit_offset=4,
        cached_msg_min_offset=7,
        cached_msg_max_offset=8,
        cached_msg_count=2,
        transaction_msg_min_offset=5,
        transaction_msg_max_offset=6,
        transaction_msg_count=2,
        locked=True,
        last_lock_timestamp=NOW + 2,
        last_pull_timestamp=NOW + 3,
        last_consume_timestamp=NOW + 1,
    )
    assert queue.info(4, 1_000).last_lock_timestamp == NOW + 1_002  # by the time of day
    queue.put([message(9, bytes(3 << 20))])
    queue.drop()
    info = queue.info(4)
    assert info.dropped
    assert info.cached_msg_size_in_mib == 3
    assert queue.leaving


def test_a_leaving_queue_lets_those_at_work_end_and_nobody_begin() -> None:
    queue = ProcessQueue(NOW)
    assert queue.begin()
    assert queue.begin()
    assert not queue.end()
    assert queue.begin()
    queue.leaving = True
    assert not queue.begin()
    assert not queue.end()
    assert queue.end()
    assert queue.running == 0


def test_a_leaving_queue_lets_a_batch_before_those_begun_begin_and_no_other() -> None:
    queue = ProcessQueue(NOW)
    queue.submitted([0, 32, 64])
    assert queue.begin(32)
    queue.leaving = True
    assert not queue.end()  # the batch at 0 was handed to a thread that was not quick enough
    assert not queue.begin(64)
    assert queue.begin(0)
    assert queue.end()


def test_messages_not_wanted_after_the_last_are_done_with_it() -> None:
    queue = ProcessQueue(NOW)
    queue.put(messages([1, 2]))
    queue.passed = 9
    assert queue.remove([message(2)], NOW) == 1
    assert queue.remove([message(1)], NOW) == 9
    queue.put(messages([9, 10]))
    queue.passed = 20
    queue.take(1, NOW)
    assert queue.commit() == 10
    queue.take(1, NOW)
    assert queue.commit() == 20
