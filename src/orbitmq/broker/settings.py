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
from orbitmq.broker.unused_settings import FOLKLORE, REFUSED_DEFAULTS, UNUSED_DEFAULTS, reason
from orbitmq.errors import ConfigError
from orbitmq.properties_file import decode_text, parse_properties
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
    unknown_key,
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
    Key("regionId", "region_id", _TEXT, live=True),
    Key("traceOn", "trace_on", _FLAG, live=True),
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
)
"""Every key that sets something."""

OWN_KEYS: Final = {
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

WITHOUT_KEY: Final = {"tls", "store_config", "settings_file", "name_server_config"}
"""The fields of BrokerConfig that no key sets: they are no single value."""


class FileSettings(msgspec.Struct, frozen=True):
    """The texts of a file, by key: what sets something, and what is taken without effect."""

    used: dict[str, str]
    unused: dict[str, str]


def read_settings(path: Path) -> FileSettings:
    """The settings in a file. Raises ConfigError for one that cannot be read or taken."""
    try:
        texts = parse_properties(decode_text(path.read_bytes()))
    except OSError as error:
        raise ConfigError(
            "settings_file", str(path), f"a file to read ({error.strerror or error})"
        ) from error
    return sorted_settings(texts)


def sorted_settings(texts: Mapping[str, str]) -> FileSettings:
    """``texts`` by what comes of them.

    Raises ConfigError, which names the key, for one that is unknown or has a value that would
    promise what this broker does not do.
    """
    used: dict[str, str] = {}
    unused: dict[str, str] = {}
    for name, text in texts.items():
        if name in KEYS:
            used[name] = text
        elif name in REFUSED_DEFAULTS:
            check_refused(name, text, texts)
        elif name in UNUSED_DEFAULTS or name in FOLKLORE:
            unused[name] = text
        else:
            raise unknown_key(name, (*KEYS.keys, *UNUSED_DEFAULTS, *REFUSED_DEFAULTS))
    return FileSettings(used, unused)


def check_refused(name: str, text: str, texts: Mapping[str, str]) -> None:
    """Take the one value a key of REFUSED may have. Raises ConfigError for another."""
    allowed = REFUSED_DEFAULTS[name]
    if name == "storePathCommitLog" and text in {
        "",
        str(Path(texts.get("storePathRootDir", ".")) / "commitlog"),
    }:
        return
    if text.strip().lower() != allowed.lower():
        raise ConfigError(
            name, text[:100], f"{reason(name)}; leave it at {allowed or 'nothing'}, or take it out"
        )


def load_config(path: Path, base: BrokerConfig, overrides: Mapping[str, Any]) -> BrokerConfig:
    """``base`` with what the file at ``path`` sets, and over that ``overrides``, by field.

    Keys that set nothing are told in the log. Raises ConfigError.
    """
    found = read_settings(path)
    if found.unused:
        told = (f"{name} ({reason(name)})" for name in found.unused)
        log.warning("settings of %s that have no use here: %s", path, "; ".join(told))
    given = {field: value for field, value in overrides.items() if value is not None}
    set_elsewhere = {name for name, key in KEYS.keys.items() if key.field in given}
    used = {name: text for name, text in found.used.items() if name not in set_elsewhere}
    config = KEYS.applied(msgspec.structs.replace(base, settings_file=path), used)
    return msgspec.structs.replace(config, **given)
