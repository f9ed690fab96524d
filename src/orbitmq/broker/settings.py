"""The broker's settings by the keys of Apache's broker.conf, and the file they are read from.

KEYS is the whole table. Keys that set nothing here are in unused_settings.py. A key that nobody
knows, and a value that cannot be, is refused by name (Java's MixAll.properties2Object takes no
notice of either).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.unused_settings import FOLKLORE, REFUSED, UNUSED
from orbitmq.live_settings import read_properties
from orbitmq.settings import (
    Choice,
    Directory,
    Flag,
    Inverse,
    Key,
    Kind,
    Number,
    Optional,
    SettingsTable,
    Text,
)
from orbitmq.store.config import FlushMode

log = logging.getLogger("orbitmq.broker")

_NUMBER: Final = Number()
_SECONDS: Final = Number(1000, "a whole number of seconds")
_FLAG: Final = Flag()
_TEXT: Final = Text()
_UNIT_SIZE: Final = 20


def _store(name: str, field: str, kind: Kind, *, live: bool = False) -> Key:
    return Key(name, f"store_config.{field}", kind, live)


def _is_below_root(name: str, text: str, texts: Mapping[str, str]) -> bool:
    """Whether a path is given that is the one there is."""
    root = texts.get("storePathRootDir")
    return (
        name == "storePathCommitLog" and root is not None and Path(text) == Path(root, "commitlog")
    )


KEYS: Final[SettingsTable[BrokerConfig]] = SettingsTable(
    # Who and where: a restart is needed.
    Key("bindAddress", "host", _TEXT),
    Key("brokerIP1", "advertised_host", _TEXT),
    Key("listenPort", "port", _NUMBER),
    Key("fastListenPort", "fast_listen_port", Optional(_NUMBER)),
    Key("nameServerPort", "name_server_port", _NUMBER),
    Key("namesrvAddr", "name_server", _TEXT),
    Key("brokerName", "broker_name", _TEXT),
    Key("brokerClusterName", "cluster_name", _TEXT),
    Key("storePathRootDir", "store_directory", Directory()),
    # Topics, groups and messages.
    Key("autoCreateTopicEnable", "auto_create_topics", _FLAG, live=True),
    Key("autoCreateSubscriptionGroup", "auto_create_groups", _FLAG, live=True),
    Key("defaultTopicQueueNums", "default_topic_queues", _NUMBER, live=True),
    Key("storeReplyMessageEnable", "store_reply_messages", _FLAG, live=True),
    Key("brokerPermission", "broker_permission", _NUMBER, live=True),
    Key("enableTopicMessageTypeCheck", "topic_message_type_check", _FLAG, live=True),
    Key("enableMixedMessageType", "enable_mixed_message_type", _FLAG, live=True),
    Key("validateSystemTopicWhenUpdateTopic", "validate_system_topics", _FLAG, live=True),
    Key("clearRetryTopicWhenDeleteTopic", "clear_retry_topics", _FLAG, live=True),
    Key("clusterTopicEnable", "cluster_topic_enable", _FLAG),
    Key("brokerTopicEnable", "broker_topic_enable", _FLAG),
    Key("rejectPullConsumerEnable", "reject_pull_consumers", _FLAG, live=True),
    Key("enableSplitMetadata", "enable_split_metadata", _FLAG, live=True),
    Key("splitMetadataSize", "split_metadata_size", _NUMBER, live=True),
    Key("enableSingleTopicRegister", "enable_single_topic_register", _FLAG, live=True),
    Key("regionId", "region_id", _TEXT, live=True),
    Key("traceOn", "trace_on", _FLAG, live=True),
    Key("traceTopicEnable", "trace_topic_enable", _FLAG),
    Key("msgTraceTopicName", "trace_topic", _TEXT),
    # Transactions.
    Key("rejectTransactionMessage", "reject_transaction_messages", _FLAG, live=True),
    Key("transactionTimeOut", "transaction_timeout_ms", _NUMBER, live=True),
    Key("transactionCheckInterval", "transaction_check_interval_ms", _NUMBER, live=True),
    Key("transactionCheckMax", "transaction_check_max", _NUMBER, live=True),
    # Pulling.
    Key("enablePropertyFilter", "enable_property_filter", _FLAG, live=True),
    Key("filterSupportRetry", "filter_support_retry", _FLAG, live=True),
    Key("maxTransferCountOnMessageInMemory", "max_pull_count", _NUMBER, live=True),
    Key("maxTransferBytesOnMessageInMemory", "max_pull_bytes", _NUMBER, live=True),
    Key("holdSweepInterval", "hold_sweep_interval_ms", _NUMBER, live=True),
    Key("useServerSideResetOffset", "server_side_reset_offset", _FLAG, live=True),
    # Intervals.
    Key("flushConsumerOffsetInterval", "offset_save_interval_ms", _NUMBER, live=True),
    Key("flushDelayOffsetInterval", "delay_offset_save_interval_ms", _NUMBER, live=True),
    Key("channelExpiredTimeout", "client_timeout_ms", _NUMBER, live=True),
    Key("serverChannelMaxIdleTimeSeconds", "connection_idle_ms", _SECONDS, live=True),
    Key("scanInterval", "scan_interval_ms", _NUMBER, live=True),
    # Protection.
    Key("brokerFastFailureEnable", "fast_failure", _FLAG, live=True),
    Key("maxUnansweredBytes", "max_unanswered_bytes", _NUMBER, live=True),
    Key(
        "maxUnansweredBytesPerConnection", "max_unanswered_bytes_per_connection", _NUMBER, live=True
    ),
    Key("maxConnections", "max_connections", _NUMBER, live=True),
    Key("maxReceivingBytes", "max_receiving_bytes", _NUMBER, live=True),
    Key("maxHeldPulls", "max_held_pulls", _NUMBER, live=True),
    Key("maxHeldPullsPerConnection", "max_held_pulls_per_connection", _NUMBER, live=True),
    Key("maxOffsetEntries", "max_offset_entries", _NUMBER, live=True),
    Key("maxTopics", "max_topics", _NUMBER, live=True),
    Key("maxGroups", "max_groups", _NUMBER, live=True),
    # The store.
    _store("mappedFileSizeCommitLog", "mapped_file_size", _NUMBER),
    _store("mappedFileSizeConsumeQueue", "consume_queue_units", Inverse(_UNIT_SIZE)),
    _store("maxMessageSize", "max_message_size", _NUMBER, live=True),
    _store("flushDiskType", "flush_mode", Choice(FlushMode)),
    _store("flushIntervalCommitLog", "flush_interval_ms", _NUMBER, live=True),
    _store("flushIntervalConsumeQueue", "queue_flush_interval_ms", _NUMBER, live=True),
    _store("markInterval", "mark_interval_ms", _NUMBER, live=True),
    _store("markBytes", "mark_bytes", _NUMBER, live=True),
    _store("maxUnflushedBytes", "max_unflushed_bytes", _NUMBER, live=True),
    _store("messageDelayLevel", "delay_levels", _TEXT),
    # The key index.
    _store("messageIndexEnable", "message_index_enable", _FLAG),
    _store("maxHashSlotNum", "max_hash_slot_num", _NUMBER),
    _store("maxIndexNum", "max_index_num", _NUMBER),
    _store("defaultQueryMaxNum", "default_query_max_num", _NUMBER, live=True),
    _store("maxMsgsNumBatch", "max_msgs_num_batch", _NUMBER, live=True),
    # Retention.
    _store("fileReservedTime", "file_reserved_hours", _NUMBER, live=True),
    _store("deleteWhen", "delete_when", _TEXT, live=True),
    _store("diskMaxUsedSpaceRatio", "disk_max_used_ratio", _NUMBER, live=True),
    _store("diskSpaceCleanForciblyRatio", "disk_clean_forcibly_ratio", _NUMBER, live=True),
    _store("diskSpaceWarningLevelRatio", "disk_warning_ratio", _NUMBER, live=True),
    _store("cleanFileForciblyEnable", "clean_files_forcibly", _FLAG, live=True),
    _store("cleanResourceInterval", "clean_interval_ms", _NUMBER, live=True),
    _store(
        "deleteCommitLogFilesInterval",
        "delete_log_files_interval_ms",
        _NUMBER,
        live=True,
    ),
    _store(
        "deleteConsumeQueueFilesInterval",
        "delete_queue_files_interval_ms",
        _NUMBER,
        live=True,
    ),
    _store("deleteFileBatchMax", "delete_file_batch_max", _NUMBER, live=True),
    # Timers.
    _store("timerWheelEnable", "timer_wheel", _FLAG),
    _store("timerPrecisionMs", "timer_precision_ms", _NUMBER),
    _store("timerMaxDelaySec", "timer_max_delay_seconds", _NUMBER, live=True),
    _store("timerRollWindowSlot", "timer_roll_window_slots", _NUMBER),
    _store("timerCongestNumEachSlot", "timer_congestion_per_slot", _NUMBER, live=True),
    _store("timerFlushIntervalMs", "timer_flush_interval_ms", _NUMBER, live=True),
    _store("mappedFileSizeTimerLog", "timer_log_file_size", _NUMBER),
    _store(
        "appendTopicForTimerDeleteKey",
        "append_topic_for_timer_delete_key",
        _FLAG,
        live=True,
    ),
    Key("recallMessageEnable", "recall_enabled", _FLAG, live=True),
    _store("cutDamagedLog", "cut_damaged_log", _FLAG),
    unused=UNUSED,
    refused=REFUSED,
    folklore=FOLKLORE,
    may_be=_is_below_root,
)
"""Every key that sets something."""

KEPT_SETTINGS: Final = "orbitmq.properties"
"""Where changes are kept, below ``config/``, when the broker was started without a file."""

OWN_KEYS: Final = {
    "maxUnansweredBytes",
    "maxUnansweredBytesPerConnection",
    "maxConnections",
    "maxReceivingBytes",
    "maxHeldPulls",
    "maxHeldPullsPerConnection",
    "maxOffsetEntries",
    "maxTopics",
    "maxGroups",
    "enableTopicMessageTypeCheck",
    "fastListenPort",
    "nameServerPort",
    "holdSweepInterval",
    "scanInterval",
    "markInterval",
    "markBytes",
    "maxUnflushedBytes",
    "cutDamagedLog",
}
"""The keys that Apache's broker does not have; it takes no notice of them."""

WITHOUT_KEY: Final = {
    "tls",
    "name_server_tls",
    "store_config",
    "settings_file",
    "name_server_config",
}
"""The fields of BrokerConfig that no key sets: they are no single value."""


def load_config(path: Path, base: BrokerConfig, overrides: Mapping[str, Any]) -> BrokerConfig:
    """``base`` with what the file at ``path`` sets, and over that ``overrides``, by field.

    Keys that set nothing are told in the log. Raises ConfigError.
    """
    found = KEYS.sorted(read_properties(path))
    if found.unused:
        told = (f"{name} ({KEYS.reason(name)})" for name in found.unused)
        log.warning("settings of %s that have no use here: %s", path, "; ".join(told))
    given = {field: value for field, value in overrides.items() if value is not None}
    set_elsewhere = {name for name, key in KEYS.keys.items() if key.field in given}
    used = {name: text for name, text in found.used.items() if name not in set_elsewhere}
    config = KEYS.applied(msgspec.structs.replace(base, settings_file=path), used)
    return msgspec.structs.replace(config, **given)
