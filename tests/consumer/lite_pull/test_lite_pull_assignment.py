"""The lite pull assignment against a plain model: nothing lost, nothing twice, positions exact."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.consumer.lite_pull.assignment import AssignedQueue, LitePullAssignment
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.message import MessageQueue
from tests.consumer.records import messages, offsets

NOW = 1_000_000
INTERVAL_MS = 5_000
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]
a_queue = st.sampled_from(QUEUES)


class Model:
    """One assigned queue: what waits, what was polled, where the next pull starts."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.next_pull = 0
        self.position = -1
        self.settled = -1
        self.leaving = False


class Assignment(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.assignment = LitePullAssignment(INTERVAL_MS)
        self.now_ms = NOW
        self.next_commit_ms = 0
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
            self.model[queue] = Model()

    @rule(queue=a_queue)
    def lose(self, queue: MessageQueue) -> None:
        removed = self.assignment.remove(queue)
        model = self.model.pop(queue, None)
        assert (removed is None) == (model is None)
        if removed is not None and model is not None:
            assert removed.process_queue.dropped
            assert (removed.position, removed.settled) == (model.position, model.settled)
            self.assignment.put(removed, messages([99]), 100)  # a pull's answer that came too late
        self.batches = [batch for batch in self.batches if batch[0] != queue]
        if queue not in self.announced:
            self.paused.discard(queue)

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
            if not model.waiting:
                model.position = max(model.position, model.next_pull)

    @rule()
    def poll(self) -> None:
        self.skip_leaving()
        taken = self.assignment.take(self.now_ms)
        assert (taken is None) == (not self.batches)
        if taken is not None:
            queue, expected = self.batches.pop(0)
            assert (taken[0].queue, offsets(taken[1])) == (queue, expected)
            self.polled(queue, len(expected))

    @rule()
    def poll_one(self) -> None:
        self.skip_leaving()
        taken = self.assignment.take_one(self.now_ms)
        assert (taken is None) == (not self.batches)
        if taken is not None:
            queue, waiting = self.batches[0]
            assert (taken[0].queue, taken[1].queue_offset) == (queue, waiting.pop(0))
            if not waiting:
                self.batches.pop(0)
            self.polled(queue, 1)

    def skip_leaving(self) -> None:
        """What leads the cache of a leaving queue is forgotten, for its next owner to consume."""
        while self.batches and self.model[self.batches[0][0]].leaving:
            queue = self.batches[0][0]
            self.batches = [batch for batch in self.batches if batch[0] != queue]

    def polled(self, queue: MessageQueue, count: int) -> None:
        model = self.model[queue]
        model.waiting = model.waiting[count:]
        model.position = model.waiting[0] if model.waiting else model.next_pull

    @rule(passed_ms=st.sampled_from([0, 1, 999, INTERVAL_MS - 1, INTERVAL_MS, 60_000]))
    def begin_poll(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for model in self.model.values():
            model.settled = model.position
        due = self.now_ms >= self.next_commit_ms
        if due:
            self.next_commit_ms = self.now_ms + INTERVAL_MS
        settled = {queue: model.settled for queue, model in self.model.items()}
        assert self.assignment.begin_poll(self.now_ms) == (
            {queue: offset for queue, offset in settled.items() if offset >= 0} if due else {}
        )

    @rule(queues=st.none() | st.sets(a_queue))
    def commit(self, queues: set[MessageQueue] | None) -> None:
        wanted = self.model.keys() if queues is None else queues & self.model.keys()
        positions = {queue: self.model[queue].position for queue in wanted}
        assert self.assignment.positions(queues) == {
            queue: position for queue, position in positions.items() if position >= 0
        }

    @rule(queue=a_queue, offset=st.integers(0, 30))
    def seek(self, queue: MessageQueue, offset: int) -> None:
        if queue in self.model and not self.model[queue].leaving:
            model = self.model[queue]
            self.assignment.seek(self.assigned(queue), offset)
            model.waiting = []
            model.next_pull = model.position = model.settled = offset
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

    @rule()
    def wake_all(self) -> None:
        woken = self.woken
        self.assignment.wake_all()
        assert self.woken - woken == self.waiting
        self.waiting = 0

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
            # Java commits what it removed from the ProcessQueue, so it may not run ahead.
            assert (assigned.process_queue.count == 0) == (not model.waiting)


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
    taken = assignment.take(NOW)
    assert taken is not None
    assert offsets(taken[1]) == [4, 5]
    assert (assigned.position, assignment.cached) == (6, 1)


def test_the_last_poll_is_not_settled() -> None:
    assignment, assigned = assignment_with([0, 1], [2, 3])
    assignment.take(NOW)
    assert assignment.begin_poll(NOW) == {}  # no auto-commit
    assignment.take(NOW)
    assert (assigned.settled, assigned.position) == (2, 4)


def test_positions_of_chosen_queues_leave_out_those_not_assigned_or_never_polled() -> None:
    assignment, _ = assignment_with([0, 1])
    assignment.add(QUEUES[1], ProcessQueue(NOW))
    assignment.take(NOW)
    assert assignment.positions(QUEUES) == {QUEUES[0]: 2}


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
    taken = assignment.take(NOW)
    assert taken is not None
    assert (taken[0], offsets(taken[1])) == (other, [7])
    assert assignment.take_one(NOW) is None
    assert (assignment.cached, assigned.position) == (0, 1)
