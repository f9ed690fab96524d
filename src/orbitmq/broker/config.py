"""The broker's settings, made once and checked once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.errors import ConfigError, IllegalNameError
from orbitmq.names import TRACE_TOPIC, check_topic
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.net.tls import ClientTls, ServerTls
from orbitmq.store.config import StoreConfig

_MAX_PORT: Final = 65535
_WHITE_SPACE: Final = re.compile(r"\s")
_ADDRESS: Final = re.compile(r"\S+:\d{1,5}")


_LIMITS: Final = (
    "max_unanswered_bytes",
    "max_unanswered_bytes_per_connection",
    "max_receiving_bytes",
    "max_held_pulls",
    "max_held_pulls_per_connection",
    "max_offset_entries",
    "max_topics",
    "max_groups",
)


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a broker and the name server beside it; defaults are Java's where it has one."""

    host: str = "127.0.0.1"
    """The address both listen on; ``0.0.0.0`` listens on all of the machine's
    (bindAddress, there 0.0.0.0)."""
    advertised_host: str = ""
    """The address or name clients are told; empty: ``host``, or this machine's own address when
    that is a wildcard (brokerIP1)."""
    port: int = 10911
    """The broker's port; 0 takes any free one (listenPort)."""
    fast_listen_port: int | None = None
    """A second port of the broker, the VIP channel: clients that use it expect it two below
    ``port``, where Java's broker always has one. None: there is none (fastListenPort)."""
    name_server_port: int = 9876
    """The name server's port; 0 takes any free one."""
    tls: ServerTls | None = None
    """The certificate with which the broker and its name server speak TLS on all ports, and
    whether they speak the plain protocol too. None: plain only. Java's make up a certificate."""
    name_server: str = ""
    """``host:port`` of name servers to register at, separated by ``;``, in place of a name server
    of its own (namesrvAddr)."""
    name_server_tls: ClientTls | None = None
    """How the broker speaks TLS to those name servers; None: it does not (Java's system property
    tls.enable)."""
    name_server_config: NameServerConfig = NameServerConfig()
    """Settings of the name server beside it."""
    broker_name: str = "broker-a"
    """The name queues are known by (brokerName)."""
    cluster_name: str = "DefaultCluster"
    """The cluster the broker belongs to (brokerClusterName)."""
    store_directory: Path | None = None
    """Where everything is kept; None: a temporary directory that goes at the end
    (storePathRootDir)."""
    store_config: StoreConfig = StoreConfig()
    """Settings of the store."""

    settings_file: Path | None = None
    """The ``broker.conf`` these settings came from, where changes made while the broker runs are
    kept; None: ``config/orbitmq.properties`` in the store. To read one use :meth:`from_file`."""

    auto_create_topics: bool = True
    """Whether a send to an unknown topic creates it (autoCreateTopicEnable)."""
    auto_create_groups: bool = True
    """Whether an unknown consumer group may consume (autoCreateSubscriptionGroup)."""
    default_topic_queues: int = 8
    """The most queues a topic gets by being sent to (defaultTopicQueueNums)."""
    broker_permission: int = 6
    """What the broker as a whole allows, 4 (read) and 2 (write): without read nothing is pulled,
    without write nothing comes back from consumers and ordered topics take no messages; routes
    show all topics so (brokerPermission)."""
    topic_message_type_check: bool = True
    """Whether a topic with the attribute ``message.type`` refuses messages of other types. Java's
    proxies do; its brokers leave it to them (enableTopicMessageTypeCheck)."""
    enable_mixed_message_type: bool = False
    """Whether ``message.type`` may be MIXED (enableMixedMessageType)."""
    validate_system_topics: bool = True
    """Whether the broker's own topics are kept from being changed and deleted
    (validateSystemTopicWhenUpdateTopic)."""
    clear_retry_topics: bool = True
    """Whether the retry topics of pop consumers go with the topic
    (clearRetryTopicWhenDeleteTopic)."""
    cluster_topic_enable: bool = True
    """Whether the topic named after the cluster can be read and written (clusterTopicEnable)."""
    broker_topic_enable: bool = True
    """Whether the topic named after the broker can be read and written (brokerTopicEnable)."""
    reject_pull_consumers: bool = False
    """Whether groups of consumers without listeners are left out of heartbeats
    (rejectPullConsumerEnable)."""
    enable_split_metadata: bool = True
    """Whether all topics and all groups are told in pages to who asks for pages
    (enableSplitMetadata)."""
    split_metadata_size: int = 2_000
    """The most topics or groups of a page (splitMetadataSize)."""
    enable_single_topic_register: bool = False
    """Whether name servers are told of one changed topic at a time, in a request of its own
    (enableSingleTopicRegister)."""
    region_id: str = "DefaultRegion"
    """What clients put into their traces (regionId)."""
    trace_topic_enable: bool = False
    """Whether the broker makes the topic that clients' traces go to (traceTopicEnable)."""
    trace_topic: str = TRACE_TOPIC
    """That topic's name (msgTraceTopicName)."""
    trace_on: bool = True
    """Whether clients that trace shall do so (traceOn)."""

    enable_property_filter: bool = True
    """Whether consumers may filter by SQL92 (enablePropertyFilter). Java's default is false, since
    it costs the broker time; here nothing needs to be switched on."""
    filter_support_retry: bool = False
    """Whether a group that subscribes to its retry topic by SQL92 gets what passes its subscription
    to the topic the message came from (filterSupportRetry)."""
    max_pull_count: int = 1024
    """The most messages a pull is answered with, whatever it asks for. Java's broker gives 32
    (maxTransferCountOnMessageInMemory)."""
    max_pull_bytes: int = 4 << 20
    """The most bytes a pull is answered with, but always one message. Java's gives 256 KiB
    (maxTransferBytesOnMessageInMemory)."""
    hold_sweep_interval_ms: int = 5_000
    """How often held pulls are looked through (PullRequestHoldService)."""
    server_side_reset_offset: bool = True
    """Whether the broker itself moves a group's offsets when an operator resets them, and sends the
    consumers there at their next pull; otherwise it tells the consumers that are online to do it,
    as brokers before 5 do (useServerSideResetOffset)."""
    offset_save_interval_ms: int = 5_000
    """How often consumer offsets are saved (flushConsumerOffsetInterval)."""
    recall_enabled: bool = True
    """Whether messages whose timers are not due can be recalled. Java's default is false
    (recallMessageEnable)."""
    delay_offset_save_interval_ms: int = 10_000
    """How often the delivery offsets of delayed messages are saved (flushDelayOffsetInterval)."""
    store_reply_messages: bool = True
    """Whether replies to requests are stored besides being pushed (storeReplyMessageEnable)."""
    reject_transaction_messages: bool = False
    """Whether messages of transactions are refused (rejectTransactionMessage)."""
    transaction_timeout_ms: int = 6_000
    """How long a transaction may be open until its producer is asked how it ended, unless its
    message says otherwise with CHECK_IMMUNITY_TIME_IN_SECONDS (transactionTimeOut)."""
    transaction_check_interval_ms: int = 30_000
    """How often open transactions are looked through (transactionCheckInterval). Java's 4.9 does so
    every 60 s."""
    transaction_check_max: int = 15
    """How often the producer of a transaction is asked; then the message goes to
    TRANS_CHECK_MAX_TIME_TOPIC (transactionCheckMax)."""
    client_timeout_ms: int = 120_000
    """After how long without a heartbeat a client is gone (channelExpiredTimeout)."""
    connection_idle_ms: int = 120_000
    """After how long a connection ends on which nothing was sent, or nothing of what was sent is
    read (serverChannelMaxIdleTimeSeconds)."""
    scan_interval_ms: int = 10_000
    """How often silent clients, idle connections and run-out locks are looked for."""

    fast_failure: bool = True
    """Whether sends are refused as long as too much waits for the disk, ``max_unanswered_bytes``;
    otherwise all wait, whatever memory that takes (brokerFastFailureEnable)."""
    max_unanswered_bytes: int = 256 << 20
    """How many bytes of messages may wait for the disk with SYNC_FLUSH; more are refused
    (maxUnansweredBytes)."""
    max_unanswered_bytes_per_connection: int = 64 << 20
    """How many of one connection (maxUnansweredBytesPerConnection)."""
    max_connections: int = 0
    """The most connections of a port; 0: as many as the process may open (maxConnections)."""
    max_receiving_bytes: int = 256 << 20
    """How many bytes of frames that are not whole yet are held, of all connections, beside 256 KiB
    for each; above it the connection that holds most is closed (maxReceivingBytes)."""
    max_held_pulls: int = 200_000
    """The most pulls that wait for messages (maxHeldPulls)."""
    max_held_pulls_per_connection: int = 65_536
    """The most that wait for one connection (maxHeldPullsPerConnection)."""
    max_offset_entries: int = 2_000_000
    """The most queues, counted for each group, of which offsets are kept (maxOffsetEntries)."""
    max_topics: int = 200_000
    """The most topics there may be (maxTopics)."""
    max_groups: int = 100_000
    """The most consumer groups there may be (maxGroups)."""

    @staticmethod
    def from_file(path: str | Path, **overrides: Any) -> BrokerConfig:
        """The settings in a ``broker.conf``, by Apache's keys, and before them ``overrides``.

        Raises ConfigError, which names the key, for a file that cannot be read, an unknown key and
        a value that cannot be.
        """
        from orbitmq.broker.settings import load_config

        return load_config(Path(path), BrokerConfig(), overrides)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses in ``name_server``."""
        return tuple(part.strip() for part in self.name_server.split(";") if part.strip())

    def __post_init__(self) -> None:
        for name in ("port", "name_server_port"):
            _check_range(name, getattr(self, name), 0, _MAX_PORT)
        if self.fast_listen_port is not None:
            _check_range("fast_listen_port", self.fast_listen_port, 0, _MAX_PORT)
        for address in self.name_servers:
            if not _ADDRESS.fullmatch(address):
                raise ConfigError(
                    "name_server", self.name_server, "host:port, several separated by ';'"
                )
        if self.port and self.port == self.name_server_port and not self.name_servers:
            raise ConfigError(
                "port", self.port, "the broker and the name server need a port each (0: any free)"
            )
        if not self.host or _WHITE_SPACE.search(self.host):
            raise ConfigError("host", self.host, "an address or name of this machine")
        for name in ("broker_name", "cluster_name", "trace_topic"):
            _check_name(name, getattr(self, name))
        _check_range("default_topic_queues", self.default_topic_queues, 1, 65_536)
        _check_range("broker_permission", self.broker_permission, 0, 7)
        _check_range("split_metadata_size", self.split_metadata_size, 1, 1 << 20)
        _check_range("max_pull_count", self.max_pull_count, 1, 1 << 20)
        _check_range("max_pull_bytes", self.max_pull_bytes, 1, 15 << 20)
        _check_range("max_connections", self.max_connections, 0, 1 << 31)
        for name in _LIMITS:
            _check_range(name, getattr(self, name), 1, 1 << 50)
        for name in (
            "hold_sweep_interval_ms",
            "offset_save_interval_ms",
            "delay_offset_save_interval_ms",
            "transaction_timeout_ms",
            "transaction_check_interval_ms",
            "transaction_check_max",
            "client_timeout_ms",
            "connection_idle_ms",
            "scan_interval_ms",
        ):
            _check_range(name, getattr(self, name), 1, 1 << 31)


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(name, value, f"{lowest} to {highest}")


def _check_name(setting: str, name: str) -> None:
    """A broker and a cluster each lend their name to a topic."""
    try:
        check_topic(name)
    except IllegalNameError as error:
        raise ConfigError(setting, name, str(error)) from error
