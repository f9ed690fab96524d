"""The broker's settings: 26. Follows AdminBrokerProcessor."""

from __future__ import annotations

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.command import RemotingCommand, encode_response


class SettingsHandlers:
    """Reads the broker's settings for tools."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {RequestCode.GET_BROKER_CONFIG: self._config}

    def _config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        """The settings under the names they have in Apache's ``broker.conf``."""
        config = self._broker.config
        settings: dict[str, object] = {
            "autoCreateSubscriptionGroup": config.auto_create_groups,
            "autoCreateTopicEnable": config.auto_create_topics,
            "brokerClusterName": config.cluster_name,
            "brokerId": 0,
            "brokerName": config.broker_name,
            "channelExpiredTimeout": config.client_timeout_ms,
            "defaultTopicQueueNums": config.default_topic_queues,
            "enablePropertyFilter": False,
            "flushConsumerOffsetInterval": config.offset_save_interval_ms,
            "flushDelayOffsetInterval": config.delay_offset_save_interval_ms,
            "flushDiskType": config.store_config.flush_mode.value,
            "mappedFileSizeCommitLog": config.store_config.mapped_file_size,
            "maxMessageSize": config.store_config.max_message_size,
            "messageDelayLevel": config.store_config.delay_levels,
            "regionId": config.region_id,
            "storePathRootDir": self._broker.store.directory,
            "traceOn": config.trace_on,
            "useServerSideResetOffset": config.server_side_reset_offset,
        }
        lines = (
            f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"
            for name, value in settings.items()
        )
        body = "".join(lines).encode()
        version = self._broker.topics.version.encode().decode()
        head = encode_response(command, codes.SUCCESS, {"version": version}, body_length=len(body))
        return [head, body]
