"""The name server's settings. Java's are in NamesrvConfig."""

from __future__ import annotations

from pathlib import Path

import msgspec


class NameServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a name server; defaults are Java's."""

    kv_config_path: Path | None = None
    """The file that keys and values are kept in (kvConfigPath). None: in memory alone; the name
    server beside a broker with a store of its own takes ``namesrv/kvConfig.json`` there. Java's is
    in the user's home directory."""
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
