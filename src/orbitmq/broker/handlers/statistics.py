"""What the broker tells of its state: 28. Follows AdminBrokerProcessor."""

from __future__ import annotations

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer
from orbitmq.codes import RequestCode
from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.registration import KVTable


class StatisticsHandlers:
    """Answers tools that watch the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._boot_ms = broker.clock.now_ms()

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info}

    def _runtime_info(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        broker, store = self._broker, self._broker.store
        unflushed = store.max_physical_offset - store.flushed_physical_offset
        table = {
            "brokerVersionDesc": f"OrbitMQ speaking protocol {codes.PROTOCOL_VERSION}",
            "brokerActive": "true",
            "bootTimestamp": str(self._boot_ms),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.max_physical_offset),
            "dispatchBehindBytes": "0",
            "earliestMessageTimeStamp": str(store.earliest_timestamp()),
            "remainHowManyDataToFlush": f"{unflushed} B",
            "commitLogFlush": str(store.flush_failure or "works"),
        }
        for level, offset in sorted(broker.delivery.offsets.items()):
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return answer(command, KVTable(table))
