"""Messages that are sent and pulled at the same time, by consumers that wait for them."""

from __future__ import annotations

import selectors
import time
from contextlib import closing

from benchmarks.frames import Frames, send_frame
from benchmarks.load import Client, Stopwatch, create_topic
from benchmarks.plan import Outcome, Plan
from benchmarks.pullers import Puller

_PULL = 32


def mixed(plan: Plan) -> Outcome:
    """Keep ``window`` sends in flight, each message pulled by one of ``connections`` consumers.

    Each consumer has a queue of its own. What counts is what they got; the figure is how much of it
    the warm-up brought.
    """
    topic = f"{plan.topic}-{time.time_ns()}"
    create_topic(plan.address, topic, plan.connections)
    with closing(_Mixed(plan, topic)) as run:
        before = run.spin(plan.seconds / 2, plan.most // 2)
        watch = Stopwatch(plan.pids)
        return watch.outcome(run.spin(plan.seconds, plan.most), [before])


class _Mixed:
    def __init__(self, plan: Plan, topic: str) -> None:
        queues = range(plan.connections)
        body = b"x" * plan.body
        self._frames = Frames(
            [send_frame(topic, queue, body=body) for queue in queues], plan.window
        )
        self._sender = Client(plan.address, plan.window)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._sender.sock, selectors.EVENT_READ)
        self._pullers = [
            Puller(plan.address, topic, range(queue, queue + 1), _PULL) for queue in queues
        ]
        for puller in self._pullers:
            self._selector.register(puller.sock, selectors.EVENT_READ, puller)
            puller.pull_all()
        self._send()

    def spin(self, seconds: float, most: int) -> int:
        """Go on for so long, or until ``most`` messages (0: all) were pulled; how many were."""
        pulled, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end and not 0 < most <= pulled:
            for key, _ in self._selector.select(60):
                if key.data is None:
                    self._sender.receive()
                    self._send()
                else:
                    pulled += sum(key.data.take().values())
        return pulled

    def close(self) -> None:
        """Hang up, whatever is in flight."""
        self._selector.close()
        for client in (self._sender, *self._pullers):
            client.sock.close()

    def _send(self) -> None:
        missing = self._sender.window - self._sender.pending
        if missing:
            self._sender.pending += missing
            self._sender.sock.sendall(self._frames.take(missing))
