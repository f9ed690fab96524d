"""What slaves and tools ask of a master, and about the store's engines.

Offsets (43, 45) and replicas (907), of which this broker has none; cold data and reading ahead
(2001 to 2004); the engine of timers (5001). Follows AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.cold_data import ColdDataLimits
from orbitmq.broker.handlers.answering import answer, answer_table
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.properties_file import decode_text
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.topic_bodies import HARuntimeInfo

_READ_AHEAD_MODE: Final = "READ_AHEAD_MODE"
_READ_AHEAD: Final = {"0": True, "1": False}  # madvise's MADV_NORMAL and MADV_RANDOM

_TIMER_ENGINE: Final = "E_T"
_FILE_ENGINE: Final = "F"


class ReplicaHandlers:
    """Answers as a master without slaves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._limits = ColdDataLimits()

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delay_offsets,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self._update_limits,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self._remove_limit,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self._cold_data,
            RequestCode.SET_COMMITLOG_READ_MODE: self._read_ahead,
            RequestCode.SWITCH_TIMER_ENGINE: self._switch_timers,
        }

    def _all_offsets(self, command: RemotingCommand, connection: Connection) -> Answer:
        body = self._broker.saved.consumer_offsets()
        return answer_table(command, connection, body, len(body.offset_table))

    def _delay_offsets(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return answer(command, self._broker.saved.delay_offsets())

    def _ha_status(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        end = self._broker.store.max_physical_offset
        return answer(command, HARuntimeInfo(master_commit_log_max_offset=end))

    def _update_limits(self, command: RemotingCommand, _connection: Connection) -> bytes:
        self._limits.update(decode_text(bytes(command.body)))
        return encode_response(command, codes.SUCCESS)

    def _remove_limit(self, command: RemotingCommand, _connection: Connection) -> bytes:
        self._limits.remove(decode_text(bytes(command.body)))
        return encode_response(command, codes.SUCCESS)

    def _cold_data(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return answer(command, self._limits.info())

    def _read_ahead(self, command: RemotingCommand, _connection: Connection) -> bytes:
        mode = command.ext_fields.get(_READ_AHEAD_MODE, "")
        if mode not in _READ_AHEAD:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"{_READ_AHEAD_MODE}={mode[:99]!r} is no mode: 0 reads ahead, 1 does not",
            )
        self._broker.store.set_read_ahead(enabled=_READ_AHEAD[mode])
        remark = f"set commitlog readahead mode success, mode: {mode}"  # tools show it
        return encode_response(command, codes.SUCCESS, remark=remark)

    def _switch_timers(self, command: RemotingCommand, _connection: Connection) -> bytes:
        """Stay with the one engine there is: the wheel in files."""
        engine = command.ext_fields.get(_TIMER_ENGINE, "")
        if self._broker.timers is None:
            raise BrokerError(codes.INVALID_PARAMETER, "broker timerWheelEnable is false")
        if engine != _FILE_ENGINE:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"{_TIMER_ENGINE}={engine[:99]!r} is not here: F, in files, is the only engine",
            )
        return encode_response(command, codes.SUCCESS, remark="switch timer engine success")
