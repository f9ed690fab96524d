"""Forked children, and what comes after the end: ClientStateError at once, and no noise."""

from __future__ import annotations

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from tests.program import run_python

_CALLS = """
import asyncio, os, sys, warnings
import orbitmq
from orbitmq import *
from orbitmq.testing.wait import wait_until

server = {name_server!r}
QUEUE = MessageQueue("t", "broker-a", 0)
MESSAGE = Message("t", b"x")
warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, from 3.12 on

def makers(prefix):
    def cls(name):
        return getattr(orbitmq, prefix + name)
    async def work(queue, context): ...
    schedule = cls("PullConsumerScheduleService")("schedulers" + prefix, name_server=server)
    schedule.register_pull_task_callback("t", work if prefix else lambda queue, context: None)
    push = cls("PushConsumer")("listeners" + prefix, lambda messages: None, name_server=server)
    push.subscribe("t")
    lite = cls("LitePullConsumer")("pollers" + prefix, name_server=server)
    lite.assign([QUEUE])
    return [
        cls("Producer")("makers" + prefix, name_server=server),
        lite,
        cls("PullConsumer")("pullers" + prefix, name_server=server),
        push,
        schedule,
    ]

producer, lite, pull, push, schedule = blocking = makers("")
async_producer, async_lite, async_pull, async_push, async_schedule = coroutine = makers("Async")
calls = {{
    "send": lambda: producer.send(MESSAGE),
    "send_async": lambda: producer.send_async(MESSAGE),
    "send_oneway": lambda: producer.send_oneway(MESSAGE),
    "publish_queues": lambda: producer.publish_queues("t"),
    "poll": lambda: lite.poll(0),
    "next": lambda: next(lite),
    "iter": lambda: [message for message in lite],
    "commit": lambda: lite.commit(),
    "commit_sync": lambda: lite.commit_sync(),
    "committed": lambda: lite.committed(QUEUE),
    "seek": lambda: lite.seek(QUEUE, 0),
    "assignment": lambda: lite.assignment(),
    "assign": lambda: lite.assign([QUEUE]),
    "pause": lambda: lite.pause([QUEUE]),
    "pull": lambda: pull.pull(QUEUE, "*", 0, 32),
    "pull_async": lambda: pull.pull_async(QUEUE, "*", 0, 32),
    "update_consume_offset": lambda: pull.update_consume_offset(QUEUE, 1),
    "fetch_message_queues_in_balance": lambda: pull.fetch_message_queues_in_balance("t"),
    "push subscribe": lambda: push.subscribe("u"),
    "push wait": lambda: push.wait(),
    "push suspend": lambda: push.suspend(),
    "push consume_status": lambda: push.consume_status("t"),
    "schedule wait": lambda: schedule.wait(),
    "schedule pull": lambda: schedule.pull_consumer.pull(QUEUE, "*", 0, 32),
    "start": lambda: lite.start(),
    "update_name_server_address": lambda: push.update_name_server_address(server),
}}

async def iterate():
    async for message in async_lite:
        pass

async_calls = {{
    "send": lambda: async_producer.send(MESSAGE),
    "send_oneway": lambda: async_producer.send_oneway(MESSAGE),
    "poll": lambda: async_lite.poll(0),
    "iter": iterate,
    "commit_sync": lambda: async_lite.commit_sync(),
    "pull": lambda: async_pull.pull(QUEUE, "*", 0, 32),
    "push": lambda: async_push.reset_offset_by_timestamp(0),
    "start": lambda: async_push.start(),
}}

def outcome(call):
    try:
        call()
    except ClientStateError as error:
        return "refused" if TEXT in str(error) else str(error)
    except BaseException as error:
        return repr(error)
    return "done"

async def outcome_async(call):
    try:
        await asyncio.wait_for(call(), 20)
    except ClientStateError as error:
        return "refused" if TEXT in str(error) else str(error)
    except BaseException as error:
        return repr(error)
    return "done"

async def try_all_async():
    for name, call in async_calls.items():
        if (what := await outcome_async(call)) != "refused":
            print("async", name, what)
    for client in coroutine:
        await client.shutdown()

def try_all():
    for name, call in calls.items():
        if (what := outcome(call)) != "refused":
            print(name, what)
    for client in blocking:
        client.shutdown()
    assert not lite.is_running and not async_lite.is_running
    asyncio.run(try_all_async())

def start_all():
    with Producer("first", name_server=server) as first:
        for number in range(40):
            first.send(MESSAGE, queue=QUEUE)
    for client in blocking:
        client.start()

    async def start():
        for client in coroutine:
            await client.start()

    asyncio.run(start())
    wait_until(lambda: lite._core.assignment.cached == 40)
"""

_FORK = (
    _CALLS
    + """
TEXT = "forked"
start_all()
sys.stdout.flush()
child = os.fork()
if not child:
    with lite.__class__("unstarted", name_server=server):
        pass  # a client of its own works
    try_all()
    lite.__exit__(None, None, None)
    print("child", flush=True)
    sys.exit(7)
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("polled", sum(len(lite.poll(0)) for _ in range(40)))
for client in blocking:
    client.shutdown()

async def end():
    for client in coroutine:
        await client.shutdown()

asyncio.run(end())
"""
)

_EXIT = (
    "import atexit\natexit.register(lambda: (try_all(), print('all')))\n"
    + _CALLS
    + """
TEXT = "process ends"
start_all()
future = producer.send_async(MESSAGE)
atexit.register(lambda: print("future", future.done()))
calls["result"] = lambda: print(future.result(20).status.name) or producer.send(MESSAGE)
warnings.simplefilter("ignore", ResourceWarning)
"""
)


def test_a_forked_child_is_refused_at_once_and_takes_nothing_from_its_parent() -> None:
    with EmbeddedBroker() as broker:
        done = run_python(_FORK.format(name_server=broker.name_server))
    expected = "child\nstatus 7\npolled 40\n"
    assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)


def test_calls_after_the_end_are_refused_at_once() -> None:
    with EmbeddedBroker() as broker:
        done = run_python(_EXIT.format(name_server=broker.name_server))
    lines = done.stdout.splitlines()
    assert lines[-2:] == ["SEND_OK", "all"], done
    assert (len(lines), done.stderr, done.returncode) == (3, "", 0)


@pytest.mark.parametrize("without_uvloop", [True, False], ids=["asyncio", "uvloop"])
def test_an_end_without_shutdowns_warns_of_these_alone(without_uvloop: bool) -> None:
    with EmbeddedBroker() as broker:
        done = run_python(
            f"import sys\nif {without_uvloop}: sys.modules['uvloop'] = None\n"
            + _CALLS.format(name_server=broker.name_server)
            + "import logging\n"
            + "logging.getLogger('orbitmq').addHandler(logging.StreamHandler())\n"
            + "warnings.simplefilter('always', ResourceWarning)\n"
            + "start_all()\n"
        )
    assert (done.stdout, done.returncode) == ("", 0)
    # True, and due where the asyncio push consumer gets its message after its loop was closed.
    also = "the event loop that runs the coroutines"
    lines = done.stderr.splitlines()
    told = [line for line in lines if not line.startswith("  ") and also not in line]
    assert len(told) == 10, done.stderr
    assert all("ResourceWarning" in line and "was not shut down" in line for line in told)
