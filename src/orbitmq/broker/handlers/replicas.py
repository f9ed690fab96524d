"""What slaves and tools ask of a master: 43, 45, 907.

This broker has no slaves. Follows AdminBrokerProcessor.
"""

from __future__ import annotations

from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer, answer_table
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.topic_bodies import HARuntimeInfo


class ReplicaHandlers:
    """Answers as a master without slaves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delay_offsets,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
        }

    def _all_offsets(self, command: RemotingCommand, connection: Connection) -> Answer:
        body = self._broker.saved.consumer_offsets()
        return answer_table(command, connection, body, len(body.offset_table))

    def _delay_offsets(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return answer(command, self._broker.saved.delay_offsets())

    def _ha_status(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        end = self._broker.store.max_physical_offset
        return answer(command, HARuntimeInfo(master_commit_log_max_offset=end))
