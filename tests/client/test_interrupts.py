"""Exceptions of signal handlers in the midst of calls: nothing hangs, and no room is lost.

In programs of their own: signals come to the main thread. The exceptions come one, two or three at
a time, some microseconds apart, so that they hit the cleaning up, too.
"""

from __future__ import annotations

import sys

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from tests.program import run_python

_STORM = """
import random, signal, sys
if {without_uvloop}:
    sys.modules["uvloop"] = None
from orbitmq import LitePullConsumer, Message, Producer
from orbitmq.testing.wait import wait_until

class Interrupted(Exception):
    pass

shots = 0
over = True

def handler(number, frame):
    global shots
    if over:
        return
    if frame.f_code in HARNESS:  # there it would end the test
        aim(2e-5)
        return
    shots -= 1
    if shots > 0:
        aim(random.uniform(1e-6, 5e-5))
    raise Interrupted

def missed(unraisable):  # the exception came within a finalizer, which swallowed it
    global shots
    if not over:
        shots += 1
        aim(2e-5)

def aim(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)

def interrupt(action, times):
    global shots, over
    shots, over = times, False
    aim(random.uniform(1e-5, 2e-3))
    try:
        while True:
            action()
    except Interrupted:
        over = True
    aim(0)

HARNESS = {{handler.__code__, missed.__code__, aim.__code__, interrupt.__code__}}
signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = missed
server = {name_server!r}
message = Message("t", b"x")
with (
    Producer("makers", name_server=server) as producer,
    LitePullConsumer("readers", name_server=server) as consumer,
):
    consumer.subscribe("t")
    producer.send(message)
    wait_until(consumer.assignment)

    made = []

    def start_and_shut_down():
        made.append(Producer("others", name_server=server))
        made[-1].start()
        made[-1].shutdown()

    for name, action in {{
        "send": lambda: producer.send(message),
        "send_async": lambda: producer.send_async(message),
        "result": lambda: producer.send_async(message).result(),
        "callback": lambda: producer.send_async(message, lambda result, error: None),
        "oneway": lambda: producer.send_oneway(message),
        "poll": lambda: consumer.poll(0.001),
        "commit": consumer.commit_sync,
        "life": start_and_shut_down,
    }}.items():
        for number in range({interruptions}):
            interrupt(action, 1 + number % 3)
            if made:
                made.pop().shutdown()
                assert producer._core.thread.clients == {{producer._core, consumer._core}}
        for _ in range(10):
            action()
        wait_until(lambda: not producer._core.in_flight.messages)
        print(name)
"""

_ACTIONS = "send send_async result callback oneway poll commit life".split()


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 14),
    reason="an exception of a signal handler may leave a lock held: python/cpython#148874",
)
@pytest.mark.parametrize("without_uvloop", [True, False], ids=["asyncio", "uvloop"])
def test_nothing_hangs_or_is_lost_after_interruptions(without_uvloop: bool) -> None:
    with EmbeddedBroker() as broker:
        done = run_python(
            _STORM.format(
                without_uvloop=without_uvloop, name_server=broker.name_server, interruptions=30
            )
        )
    assert done.stdout.split() == _ACTIONS, done.stderr[-3000:]
    assert done.returncode == 0
