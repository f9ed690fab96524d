"""The broker's state as one table of texts, with the keys that Apache's tools read (28).

Follows AdminBrokerProcessor.prepareRuntimeInfo, DefaultMessageStore.getRuntimeInfo and
ScheduleMessageService.buildRunningStats, of 4.9.7 and 5.x together.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.names import SCHEDULE_TOPIC

_POOLS: Final = {
    "sendThreadPoolQueue": "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueue": "pullThreadPoolQueueCapacity",
    "litePullThreadPoolQueue": "litePullThreadPoolQueueCapacity",
    "queryThreadPoolQueue": "queryThreadPoolQueueCapacity",
    "ackThreadPoolQueue": "ackThreadPoolQueueCapacity",
}
"""Java's queues of requests, and the keys of their capacities: here nothing waits in queues."""


def runtime_info(broker: Broker) -> dict[str, str]:
    """All of it, as it is now."""
    table = broker.statistics.store.table(broker.clock.now_ms())
    table |= _store(broker)
    table |= _requests(broker.settings.texts())
    table |= _timers(broker)
    table |= {
        "brokerVersionDesc": f"OrbitMQ speaking protocol {codes.PROTOCOL_VERSION}",
        "brokerVersion": str(codes.PROTOCOL_VERSION),
        "brokerActive": "true",
        "startAcceptSendRequestTimeStamp": "0",
    }
    for level, offset in sorted(broker.delivery.offsets.items()):
        end = broker.store.max_offset(SCHEDULE_TOPIC, level - 1)
        table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return table


def _store(broker: Broker) -> dict[str, str]:
    store = broker.store
    log = store.directory / "commitlog"
    unflushed = store.max_physical_offset - store.flushed_physical_offset
    table = {
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.max_physical_offset),
        "dispatchBehindBytes": "0",
        "pageCacheLockTimeMills": "0",
        "earliestMessageTimeStamp": str(store.earliest_timestamp()),
        "remainTransientStoreBufferNumbs": "0",
        "remainHowManyDataToFlush": _human(unflushed),
        "commitLogFlush": str(store.flush_failure or "works"),
    }
    try:
        total, _, free = shutil.disk_usage(store.directory)
    except OSError:  # it is not there any more
        return table
    ratio = str(1 - free / max(1, total))
    table[f"commitLogDiskRatio_{log}"] = table["commitLogDiskRatio"] = ratio
    table["consumeQueueDiskRatio"] = ratio
    table["commitLogDirCapacity"] = f"Total : {_human(total)}, Free : {_human(free)}."
    return table


def _requests(settings: Mapping[str, str]) -> dict[str, str]:
    """One loop answers requests as they come: none waits in a queue."""
    table = {"EndTransactionQueueSize": "0"}
    table["EndTransactionThreadPoolQueueCapacity"] = settings["endTransactionPoolQueueCapacity"]
    for name, capacity in _POOLS.items():
        table[f"{name}Size"] = "0"
        table[capacity] = settings[capacity]
        table[f"{name}HeadWaitTimeMills"] = "0"
    return table


def _timers(broker: Broker) -> dict[str, str]:
    """How far timers are behind, in seconds and messages, and how many wait in the wheel."""
    behind_ms = backlog = waiting = 0
    taken_in = delivered = 0.0
    if broker.timers is not None:
        behind_ms = broker.clock.now_ms() - (broker.timers.due_ms or broker.clock.now_ms())
        backlog = broker.timers.backlog
        waiting = broker.timers.metrics.total
        taken_in, delivered = broker.timers.metrics.rates()
    return {
        "timerReadBehind": str(max(0, behind_ms) // 1000),
        "timerOffsetBehind": str(backlog),
        "timerCongestNum": str(waiting),
        "timerEnqueueTps": str(round(taken_in, 3)),
        "timerDequeueTps": str(round(delivered, 3)),
    }


def _human(count: int) -> str:
    """Bytes as MixAll.humanReadableByteCount writes them, in powers of 1,024."""
    if count < 1024:
        return f"{count} B"
    exponent = (count.bit_length() - 1) // 10
    return f"{count / 1024**exponent:.1f} {'KMGTPE'[exponent - 1]}iB"
