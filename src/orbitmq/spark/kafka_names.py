"""What options of Spark's Kafka source and sink are called here, for errors that name the remedy.

``docs/spark-from-kafka.md`` has all of them, also those that are called the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PAGE: Final = "docs/spark-from-kafka.md"

RENAMED: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "nameServer",
    "subscribe": "topics",
    "kafkaConsumer.pollTimeoutMs": "brokerWaitMs",
    "fetchOffset.numRetries": "brokerWaitMs",
    "fetchOffset.retryIntervalMs": "brokerWaitMs",
    "groupIdPrefix": "group",
    "kafka.group.id": "group",
    "includeHeaders": "includeProperties",
    "kafka.security.protocol": "useTls",
    "kafka.ssl.truststore.location": "tlsCaFile",
    "kafka.ssl.keystore.location": "tlsCertFile",
    "kafka.ssl.key.password": "tlsKeyPassword",
    "kafka.sasl.mechanism": "accessKey",
    "kafka.sasl.jaas.config": "secretKey",
    "kafka.compression.type": "compression",
    "kafka.partitioner.class": "queueSelector",
    "kafka.enable.idempotence": "deliveryGuarantee",
    "kafka.transactional.id": "deliveryGuarantee",
    "kafka.delivery.timeout.ms": "brokerWaitMs",
}
"""The option that does here what theirs does there, of reading or of writing."""

_BY_LOWER: Final = {name.lower(): ours for name, ours in RENAMED.items()}


def hint(name: str, known: Mapping[str, str]) -> str:
    """What to say of the unknown option ``name``, nothing where it is not Kafka's.

    ``known`` has the options there are, by their names in lower case.
    """
    lower = name.lower()
    ours = _BY_LOWER.get(lower, "").lower()
    if ours in known:
        return f"here it is {known[ours]}, see {PAGE}; "
    if lower == "includeheaders":
        return "a column properties is written wherever there is one; "
    if lower.startswith("kafka."):
        return f"settings of Kafka's clients mean nothing here, see {PAGE}; "
    return ""
