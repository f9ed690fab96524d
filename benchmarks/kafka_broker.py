"""A Kafka broker from Maven Central, and the jars of Spark's Kafka source and sink."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.apache.jars import find_jars, find_program
from tests.apache.ports import held_port
from tests.patience import eventually

POMS = Path(__file__).with_name("kafka")
_HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_STOP_SECONDS = 60
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
"""All else is Kafka's default: like our broker with async flush it leaves writing to the system."""


@dataclass(frozen=True)
class KafkaRelease:
    """Kafka, ready to run: ``java``, the broker's jars, and those that Spark's source needs."""

    java: str
    broker: Path
    source: Path

    @property
    def source_classpath(self) -> str:
        """What Spark's driver gets."""
        return ":".join(map(str, sorted(self.source.glob("*.jar"))))


def find_kafka() -> KafkaRelease:
    """Kafka, fetched if it is not in the cache yet. Raises ApacheMissingError."""
    return KafkaRelease(
        find_program("java"),
        find_jars(POMS / "broker.xml", Path("kafka/broker-4.1.0")),
        find_jars(POMS / "source.xml", Path("kafka/source-4.2.0")),
    )


@contextmanager
def kafka_broker(release: KafkaRelease) -> Iterator[str]:
    """A broker in KRaft mode with an empty directory; yields its address."""
    with tempfile.TemporaryDirectory(prefix="kafka-") as directory, held_port(1) as port:
        settings = Path(directory) / "server.properties"
        settings.write_text(
            _PROPERTIES.format(port=port, controller=port + 1, logs=Path(directory) / "logs")
        )
        java = [release.java, "-cp", f"{release.broker}/*"]
        name = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        form = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", name]
        subprocess.run([*form, "--config", str(settings)], check=True, capture_output=True)
        with (Path(directory) / "log").open("w") as log:
            process = subprocess.Popen(
                [*java, *_HEAP, "kafka.Kafka", str(settings)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: _answers(process, port), "Kafka's broker")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"Kafka's broker ended with status {process.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
