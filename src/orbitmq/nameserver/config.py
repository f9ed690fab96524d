"""The name server's settings. Java's are in NamesrvConfig."""

from __future__ import annotations

from pathlib import Path

import msgspec

from orbitmq.errors import ConfigError


class NameServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a name server; defaults are Java's."""

    kv_config_path: Path | None = None
    """The file that keys and values are kept in (kvConfigPath). None: in memory alone; the name
    server beside a broker with a store of its own takes ``namesrv/kvConfig.json`` there. Java's is
    in the user's home directory."""
    config_store_path: Path | None = None
    """The file that settings changed while it runs are kept in (configStorePath). None: they end
    with it; the name server beside a broker with a store of its own takes
    ``namesrv/namesrv.properties`` there."""
    order_message_enable: bool = False
    """Whether routes carry the order configuration of their topic (orderMessageEnable)."""
    return_order_topic_config_to_broker: bool = True
    """Whether brokers that register are told the order configuration of all topics
    (returnOrderTopicConfigToBroker)."""
    delete_topic_with_broker_registration: bool = False
    """Whether a registration that leaves out a topic takes the broker out of the topic's route
    (deleteTopicWithBrokerRegistration). Its brokers must register changed topics one by one then
    (enableSingleTopicRegister)."""
    enable_all_topic_list: bool = True
    """Whether all topics are told (enableAllTopicList)."""
    enable_topic_list: bool = True
    """Whether the topics of a cluster, and those of units, are told (enableTopicList)."""
    scan_interval_ms: int = 5_000
    """How often silent brokers and idle connections are looked for
    (scanNotActiveBrokerInterval)."""
    connection_idle_ms: int = 120_000
    """After how long a connection ends on which nothing was sent, or nothing of what was sent is
    read (serverChannelMaxIdleTimeSeconds)."""

    def __post_init__(self) -> None:
        for name in ("scan_interval_ms", "connection_idle_ms"):
            if not 1 <= getattr(self, name) <= 1 << 31:
                raise ConfigError(name, getattr(self, name), f"1 to {1 << 31}")
