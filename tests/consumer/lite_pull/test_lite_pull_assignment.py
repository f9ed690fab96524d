"""The lite pull assignment against a plain model: nothing lost, nothing twice, positions exact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.consumer.lite_pull.assignment import AssignedQueue, LitePullAssignment
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView
from tests.consumer.records import messages, offsets

NOW = 1_000_000
SECONDS = 5.0
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]
a_queue = st.sampled_from(QUEUES)


class Model:
    """One assigned queue: what waits, what was polled, where the next pull starts.

    ``hand``: what the user may be working on.
    """

    def __init__(self, next_pull: int) -> None:
        self.waiting: list[int] = []
        self.hand: list[int] = []
        self.next_pull = next_pull
        self.position = -1
        self.settled = -1
        self.moved = False
        self.leaving = False

    def settle(self) -> None:
        """The user is done with what was polled."""
        if self.moved:
            self.settled = self.position
            self.moved = False
        self.hand = []


class Noted:
    """Hears of what is polled; Ctrl-C comes meanwhile if it is to."""

    def __init__(self, *, interrupted: bool) -> None:
        self.queue: MessageQueue | None = None
        self._interrupted = interrupted

    def __call__(self, assigned: AssignedQueue, _: Sequence[MessageView]) -> None:
        self.queue = assigned.queue
        if self._interrupted:
            raise KeyboardInterrupt


class Assignment(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.assignment = LitePullAssignment(SECONDS)
        self.now = 0.0
        self.next_commit = 0.0
        self.committed: dict[MessageQueue, int] = {}
        self.not_done: defaultdict[MessageQueue, set[int]] = defaultdict(set)
        self.announced: set[MessageQueue] = set()
        self.paused: set[MessageQueue] = set()
        self.model: dict[MessageQueue, Model] = {}
        self.batches: list[tuple[MessageQueue, list[int]]] = []
        self.woken = 0
        self.waiting = 0

    def assigned(self, queue: MessageQueue) -> AssignedQueue:
        assigned = self.assignment.get(queue)
        assert assigned is not None
        return assigned

    def wake(self) -> None:
        self.woken += 1

    @rule(queues=st.frozensets(a_queue))
    def announce(self, queues: frozenset[MessageQueue]) -> None:
        self.assignment.announce(queues)
        self.announced = set(queues)
        self.paused &= queues

    @rule(queue=a_queue)
    def assign(self, queue: MessageQueue) -> None:
        if queue not in self.model:
            self.assignment.add(queue, ProcessQueue(NOW))
            self.model[queue] = Model(self.committed.get(queue, 0))
            self.not_done.pop(queue, None)  # what is not done is pulled again

    @rule(queue=a_queue)
    def lose(self, queue: MessageQueue) -> None:
        removed = self.assignment.remove(queue)
        model = self.model.pop(queue, None)
        assert (removed is None) == (model is None)
        if removed is not None and model is not None:
            assert removed.process_queue.dropped
            assert (removed.position, removed.settled) == (model.position, model.settled)
            self.commit_in_the_group({queue: model.settled})
            self.assignment.put(removed, messages([99]), 100)  # a pull's answer that came too late
        self.batches = [batch for batch in self.batches if batch[0] != queue]
        if queue not in self.announced:
            self.paused.discard(queue)

    def commit_in_the_group(self, settled: dict[MessageQueue, int]) -> None:
        """Another consumer would begin there: nothing before is lost, nor still worked on."""
        for queue, offset in settled.items():
            if offset >= 0:
                assert all(other >= offset for other in self.not_done[queue])
                self.committed[queue] = offset

    @rule(queue=a_queue)
    def begin_to_leave(self, queue: MessageQueue) -> None:
        if queue in self.model:
            self.assigned(queue).process_queue.leaving = True
            self.model[queue].leaving = True

    @rule(
        queue=a_queue,
        gaps=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        unwanted=st.integers(0, 2),
    )
    def pull(self, queue: MessageQueue, gaps: list[int], unwanted: int) -> None:
        if queue in self.model and not self.model[queue].leaving:
            model = self.model[queue]
            pulled = []
            for gap in gaps:
                model.next_pull += gap
                pulled.append(model.next_pull - 1)
            model.next_pull += unwanted
            model.waiting += pulled
            self.not_done[queue].update(pulled)
            self.batches.append((queue, pulled))
            woken, expected = self.woken, min(self.waiting, 1)
            self.assignment.put(self.assigned(queue), messages(pulled), model.next_pull)
            assert self.woken - woken == expected
            self.waiting -= expected

    @rule(queue=a_queue, skipped=st.integers(0, 3))
    def pull_without_match(self, queue: MessageQueue, skipped: int) -> None:
        if queue in self.model and not self.model[queue].leaving:
            model = self.model[queue]
            model.next_pull += skipped
            self.assignment.advance(self.assigned(queue), model.next_pull)
            if not model.waiting and model.next_pull > model.position:
                if model.settled == model.position:
                    model.settled = model.next_pull
                else:
                    model.moved = True
                model.position = model.next_pull

    @rule(interrupted=st.booleans())
    def poll(self, interrupted: bool) -> None:
        self.skip_leaving()
        noted = Noted(interrupted=interrupted)
        if interrupted and self.batches:
            with pytest.raises(KeyboardInterrupt):
                self.assignment.take(NOW, noted)
            self.one_is_woken()
            return
        taken = self.assignment.take(NOW, noted)
        assert (taken is None) == (not self.batches)
        if taken is not None:
            queue, expected = self.batches.pop(0)
            assert (noted.queue, offsets(taken)) == (queue, expected)
            self.polled(queue, expected)

    @rule(interrupted=st.booleans())
    def poll_one(self, interrupted: bool) -> None:
        self.skip_leaving()
        noted = Noted(interrupted=interrupted)
        if interrupted and self.batches:
            with pytest.raises(KeyboardInterrupt):
                self.assignment.take_one(NOW, noted)
            self.one_is_woken()
            return
        taken = self.assignment.take_one(NOW, noted)
        assert (taken is None) == (not self.batches)
        if taken is not None:
            queue, waiting = self.batches[0]
            first = waiting.pop(0)
            assert (noted.queue, taken.queue_offset) == (queue, first)
            if not waiting:
                self.batches.pop(0)
            self.polled(queue, [first])

    def one_is_woken(self) -> None:
        """Whoever waits may poll what the interrupted one has put back."""
        if self.waiting:
            self.waiting -= 1

    def skip_leaving(self) -> None:
        """What leads the cache of a leaving queue is forgotten, for its next owner to consume."""
        while self.batches and self.model[self.batches[0][0]].leaving:
            queue = self.batches[0][0]
            self.batches = [batch for batch in self.batches if batch[0] != queue]

    def polled(self, queue: MessageQueue, taken: list[int]) -> None:
        model = self.model[queue]
        model.waiting = model.waiting[len(taken) :]
        model.hand += taken
        model.position = model.waiting[0] if model.waiting else model.next_pull
        model.moved = True

    @rule(passed=st.sampled_from([0.0, 0.001, 0.999, SECONDS - 0.001, SECONDS, 60.0]))
    def begin_poll(self, passed: float) -> None:
        """A poll begins; one that is cancelled gets no further."""
        self.now += passed
        for queue, model in self.model.items():
            self.not_done[queue].difference_update(model.hand)
            model.settle()
        due = self.now >= self.next_commit
        if due:
            self.next_commit = self.now + SECONDS
        settled = {queue: model.settled for queue, model in self.model.items()}
        commits = self.assignment.begin_poll(self.now)
        assert commits == (
            {queue: offset for queue, offset in settled.items() if offset >= 0} if due else {}
        )
        self.commit_in_the_group(commits)

    @rule(queues=st.none() | st.sets(a_queue))
    def commit(self, queues: set[MessageQueue] | None) -> None:
        wanted = self.model.keys() if queues is None else queues & self.model.keys()
        committed = {
            queue: self.model[queue].position for queue in wanted if self.model[queue].position >= 0
        }
        assert self.assignment.commit(queues) == committed
        for queue, position in committed.items():
            model = self.model[queue]
            self.not_done[queue].difference_update(model.hand)
            model.settled, model.hand = position, []
        self.commit_in_the_group(committed)

    @rule(queue=a_queue, offset=st.integers(0, 30))
    def commit_at(self, queue: MessageQueue, offset: int) -> None:
        if queue in self.model:
            offset = min(offset, max(self.model[queue].position, 0))
        held = {queue: offset} if queue in self.model else {}
        assert self.assignment.commit_at({queue: offset}) == held
        if held:
            self.model[queue].settled = offset
            self.not_done[queue] -= set(range(offset))
        self.commit_in_the_group(held)

    @rule(queue=a_queue, offset=st.integers(0, 30))
    def seek(self, queue: MessageQueue, offset: int) -> None:
        if queue in self.model and not self.model[queue].leaving:
            model = self.model[queue]
            self.assignment.seek(self.assigned(queue), offset)
            model.waiting = []
            model.next_pull = model.position = model.settled = offset
            model.hand, model.moved = [], model.moved
            self.not_done.pop(queue, None)  # the user chose what comes next
            self.batches = [batch for batch in self.batches if batch[0] != queue]

    @rule(queues=st.sets(a_queue))
    def pause(self, queues: set[MessageQueue]) -> None:
        self.assignment.pause(queues)
        self.paused |= queues & (self.model.keys() | self.announced)

    @rule(queues=st.sets(a_queue))
    def resume(self, queues: set[MessageQueue]) -> None:
        self.assignment.resume(queues)
        self.paused -= queues

    @rule()
    def wait(self) -> None:
        waits = self.assignment.wait(self.wake)
        assert waits == (not self.batches)
        self.waiting += waits

    @precondition(lambda self: self.waiting)
    @rule()
    def a_waiter_gives_up(self) -> None:
        self.assignment.give_up(self.wake)
        self.waiting -= 1

    @invariant()
    def the_assignment_shows_the_model(self) -> None:
        assert self.assignment.queues() == self.model.keys()
        assert self.assignment.announced == self.announced
        assert self.assignment.paused() == self.paused
        for queue in QUEUES:
            assert self.assignment.is_paused(queue) is (queue in self.paused)
        assert self.assignment.cached == sum(len(waiting) for _, waiting in self.batches)
        assert self.assignment.positions() == {
            queue: model.position for queue, model in self.model.items() if model.position >= 0
        }
        for queue, model in self.model.items():
            assigned = self.assigned(queue)
            assert assigned.settled == model.settled
            # What is done may be committed, and nothing else.
            assert (assigned.process_queue.count == 0) == (not model.waiting)
            held = assigned.process_queue
            assert held.size == sum(message.store_size for message in held._messages.values())


TestAssignment = Assignment.TestCase


def assignment_with(*pulls: list[int]) -> tuple[LitePullAssignment, AssignedQueue]:
    assignment = LitePullAssignment()
    assigned = assignment.add(QUEUES[0], ProcessQueue(NOW))
    for pull in pulls:
        assignment.put(assigned, messages(pull), pull[-1] + 1)
    return assignment, assigned


def test_a_poll_after_single_messages_gives_the_rest_of_their_batch() -> None:
    assignment, assigned = assignment_with([3, 4, 5], [6])
    assignment.take_one(NOW)
    assert assigned.position == 4
    assert offsets(assignment.take(NOW) or []) == [4, 5]
    assert (assigned.position, assignment.cached) == (6, 1)


def test_the_last_poll_is_not_settled() -> None:
    assignment, assigned = assignment_with([0, 1], [2, 3])
    assignment.take(NOW)
    assert assignment.begin_poll(0.0) == {}  # no auto-commit
    assignment.take(NOW)
    assert (assigned.settled, assigned.position) == (2, 4)


def test_what_a_commit_names_is_settled() -> None:
    assignment, assigned = assignment_with([0, 1], [2, 3])
    assignment.take(NOW)
    assignment.commit()
    assert assigned.settled == 2
    assignment.take(NOW)
    assignment.commit_at({QUEUES[0]: 3, QUEUES[1]: 9})
    assert (assigned.settled, assigned.position) == (3, 4)


def test_commits_of_chosen_queues_leave_out_those_not_assigned_or_never_polled() -> None:
    assignment, _ = assignment_with([0, 1])
    assignment.add(QUEUES[1], ProcessQueue(NOW))
    assignment.take(NOW)
    assert assignment.commit(QUEUES) == {QUEUES[0]: 2}


def test_what_was_sought_meanwhile_is_not_put_back() -> None:
    assignment, assigned = assignment_with([0, 1])

    def seek(assigned: AssignedQueue, _: Sequence[MessageView]) -> None:
        assignment.seek(assigned, 7)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assignment.take(NOW, seek)
    assert assignment.take(NOW) is None
    assert (assigned.position, assignment.cached) == (7, 0)


def test_one_who_was_woken_and_gives_up_wakes_the_next() -> None:
    assignment, assigned = assignment_with()
    calls: list[str] = []

    def first() -> None:
        calls.append("first")

    def second() -> None:
        calls.append("second")

    assignment.wait(first)
    assignment.wait(second)
    assignment.put(assigned, messages([0]), 1)
    assert calls == ["first"]
    assignment.give_up(first)
    assert calls == ["first", "second"]


def test_nothing_of_a_queue_that_is_being_given_up_is_polled() -> None:
    assignment, assigned = assignment_with([0, 1], [2])
    other = assignment.add(QUEUES[1], ProcessQueue(NOW))
    assignment.put(other, messages([7]), 8)
    assignment.take_one(NOW)
    assigned.process_queue.leaving = True
    noted = Noted(interrupted=False)
    assert offsets(assignment.take(NOW, noted) or []) == [7]
    assert noted.queue == other.queue
    assert assignment.take_one(NOW) is None
    assert (assignment.cached, assigned.position) == (0, 1)


def test_at_the_end_everybody_is_woken_and_nobody_waits_any_more() -> None:
    assignment, _ = assignment_with()
    calls: list[str] = []
    for name in ("first", "second"):
        assignment.wait(partial(calls.append, name))
    assignment.end()
    assert calls == ["first", "second"]
    assert not assignment.wait(lambda: calls.append("third"))
