"""The commands of docs/spark-clusters.md, in shells of a user who has no Java and sets nothing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from tests.docs.shells import Shell, free_port
from tests.docs.snippets import ADDRESS, snippet
from tests.patience import eventually
from tests.spark.topics import stored

CLUSTERS = "docs/spark-clusters.md"

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DEFAULTS = """
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 600m
spark.executor.memory 500m
spark.sql.shuffle.partitions 1
spark.ui.enabled false
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One with six flights."""
    with EmbeddedBroker() as running:
        with Producer("places", name_server=running.name_server) as producer:
            for number in range(6):
                producer.send(Message("flights", b"-", tags="UA" if number % 2 else "AA"))
        yield running


def shell_in(directory: Path, broker: EmbeddedBroker, **settings: object) -> Shell:
    """A shell whose Spark stays small, and where the page's program is."""
    lines = [f"{name.replace('_', '.')} {value}" for name, value in settings.items()]
    conf = directory / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("\n".join([DEFAULTS, *lines]))
    program = snippet(CLUSTERS, "groupBy").replace(ADDRESS, broker.name_server)
    (directory / "flights.py").write_text(program)
    return Shell(
        directory,
        SPARK_CONF_DIR=str(conf),
        SPARK_MASTER_WEBUI_PORT="0",
        SPARK_WORKER_WEBUI_PORT="0",
        SPARK_WORKER_DIR=str(directory / "work"),
    )


def check(printed: str) -> None:
    assert "|  UA|    3|" in printed, printed[-4000:]
    assert "|  AA|    3|" in printed


# A cluster is submitted to as well: this one by itself is run by `make places` alone.
@pytest.mark.skipif("ORBITMQ_PLACES" not in os.environ, reason="runs by make places")
def test_spark_submit(broker: EmbeddedBroker, tmp_path: Path) -> None:
    check(shell_in(tmp_path, broker).run(snippet(CLUSTERS, "spark-submit --master 'local", "sh")))


def test_a_cluster_of_two_workers(broker: EmbeddedBroker, tmp_path: Path) -> None:
    commands = snippet(CLUSTERS, "deploy.worker.Worker", "sh")
    check(shell_in(tmp_path, broker).run(commands.replace("7077", str(free_port()))))


@pytest.fixture(scope="module")
def connect(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A server of Spark Connect; the page's command for a client, and the address in it."""
    pytest.importorskip("grpc")
    commands, client = snippet(CLUSTERS, "sc://", "sh").strip().rsplit("\n", 1)
    settings = {"spark_connect_grpc_binding_address": "127.0.0.1"}
    with ExitStack() as servers:
        while True:
            directory, port = tmp_path_factory.mktemp("connect"), free_port()
            server = shell_in(directory, broker, spark_connect_grpc_binding_port=port, **settings)
            process = servers.enter_context(server.running(f"{commands}\nwait %+"))
            said = _what_it_says_first(server, process)
            if _PORT_IN_USE not in said:  # by another test, since it was looked at
                break
        assert _STARTED in said, said[-4000:]
        yield client.replace("15002", str(port)), f"sc://127.0.0.1:{port}"


_STARTED = "Spark Connect server started"
_PORT_IN_USE = "Failed to bind to address"


def _what_it_says_first(server: Shell, process: subprocess.Popen[bytes]) -> str:
    """The output of a server that has started, or could not."""
    eventually(
        lambda: _STARTED in server.output.read_text() or process.poll() is not None,
        "the server",
        lambda: server.output.read_text()[-4000:],
    )
    return server.output.read_text()


def test_spark_connect(broker: EmbeddedBroker, connect: tuple[str, str], tmp_path: Path) -> None:
    check(shell_in(tmp_path, broker).run(connect[0]))


# A shell that begins it anew finds nothing of what it left: all has a name of its own.
LISTENING = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from orbitmq import Message, Producer
from orbitmq.spark import process, show_progress

name_server = sys.argv[1]
topic, group = f"mails-{os.getpid()}", f"mailers-{os.getpid()}"
written, checkpoint = Path(f"{group}-written").absolute(), Path(f"{group}-checkpoint").absolute()
with Producer("mails", name_server=name_server) as producer:
    for body in (b"good", b"bad", b"better"):
        producer.send(Message(topic, body))

class Hook:
    def consume_message_before(self, context):
        note("before")
    def consume_message_after(self, context):
        note("after")

def note(line):
    with open(written, "a") as file:
        file.write(line + "\\n")

def listener(messages, context):
    context.delay_level_when_next_consume = -1  # to the dead letters
    note(messages[0].body.decode())
    return messages[0].body != b"bad"

spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.format("rocketmq").option("nameServer", name_server)
stream = reader.option("topic", topic).option("startingOffsets", "earliest").load()
def run():
    running = process(
        stream, listener, group=group, checkpoint=checkpoint, hooks=[Hook()],
        trigger={"availableNow": True}, name_server=name_server,
    )
    before = running.consume_status(topic)
    show_progress(running.query)
    running.query.awaitTermination()
    after = running.consume_status(topic)
    return before.consume_failed_msgs, after.consume_failed_msgs, after.consume_ok_tps > 0
result = {"group": group, "runs": [run(), run()], "written": written.read_text().split()}
Path("result").write_text(json.dumps(result))
"""


def test_listeners_are_counted_with_spark_connect(
    broker: EmbeddedBroker, connect: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "listening.py").write_text(LISTENING)
    program = f"SPARK_REMOTE={connect[1]} python listening.py {broker.name_server}"
    shell_in(tmp_path, broker).run(program)
    result = json.loads((tmp_path / "result").read_text())
    assert result["runs"] == [[0, 1, True], [0, 0, False]]
    lines = ["after"] * 3 + ["bad"] + ["before"] * 3 + ["better", "good"]
    assert sorted(result["written"]) == lines
    dead = stored(broker, f"%DLQ%{result['group']}").values()
    assert [view.body for views in dead for view in views] == [b"bad"]
