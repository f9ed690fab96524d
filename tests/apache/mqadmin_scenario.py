"""What mqadmin is run over: a topic with messages, a consumer that is online, a producer."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from orbitmq import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    TopicNotFoundError,
    TraceType,
)
from tests.patience import eventually

MESSAGES: Final = 4
# What differs from one run to the next: ids, addresses, times, and places in the commit log.
_CHANGING: Final = (
    (re.compile(r"\b[\d.]+@\d+#\d+"), "{client}"),
    (re.compile(r"(CommitLog Offset: +|physicOffset=|@\{message_id\}@)\d+"), r"\1{offset}"),
    (re.compile(r"\b[0-9A-F]{56}\b|\b[0-9A-F]{32}\b"), "{id}"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "{address}"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:]\d{3})?"), "{time}"),
    (re.compile(r"\b1\d{12}\b"), "{ms}"),
    (re.compile(r" +"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)
# A hash map, whose order depends on that in which they were stored.
_PROPERTIES: Final = re.compile(r"(?<=^Properties: \{)\S+=.*(?=\}$)", re.MULTILINE)


def _in_order(properties: re.Match[str]) -> str:
    return ", ".join(sorted(properties[0].split(", ")))


class Scenario:
    """What is there, at a broker of ours or Apache's; ``names`` are what commands may say."""

    def __init__(self, name_server: str, topic: str) -> None:
        self.names: dict[str, str] = {
            "name_server": name_server,
            "topic": topic,
            "group": f"{topic}-mailers",
            "producer_group": f"{topic}-makers",
        }
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            temporary = tempfile.TemporaryDirectory(prefix="orbitmq-scenario-")
            self._write_files(Path(opened.enter_context(temporary)))
            server, topic = self.names["name_server"], self.names["topic"]
            admin = opened.enter_context(Admin(name_server=server, api_timeout_ms=60_000))
            self._send(opened, admin, server, topic)
            self._consume(opened, admin, server, topic)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def words(self, arguments: str) -> list[str]:
        """Arguments with the names in them replaced."""
        return [word.format(**self.names) for word in arguments.split()]

    def plain(self, output: str) -> str:
        """An output with names in place of what they stand for here, and without what changes."""
        for name, value in sorted(self.names.items(), key=lambda item: -len(item[1])):
            output = output.replace(value, f"{{{name}}}")
        for pattern, text in _CHANGING:
            output = pattern.sub(text, output)
        return _PROPERTIES.sub(_in_order, output).strip()

    def _write_files(self, directory: Path) -> None:
        topics = [{"topicName": f"listed-{number}", "perm": 6} for number in range(2)]
        groups = [{"groupName": f"listed-{number}"} for number in range(2)]
        for name, value in ("topics", topics), ("groups", groups):
            (directory / name).write_text(json.dumps(value))
            self.names[f"{name}_file"] = str(directory / name)
        self.names["directory"] = str(directory)

    def _send(self, opened: ExitStack, admin: Admin, server: str, topic: str) -> None:
        (address,) = admin.create_topic(topic, 2)
        self.names["broker"] = address
        eventually(lambda: topic in admin.list_topics(), "the topic's route")
        producer = opened.enter_context(
            Producer(self.names["producer_group"], name_server=server, enable_trace=True)
        )
        for number in range(MESSAGES):
            queue = MessageQueue(topic, "broker-a", number % 2)
            message = Message(topic, b"body-%d" % number, tags="UA", keys=f"k{number}")
            result = producer.send(message, queue=queue)
            if number == 1:
                self.names["message_id"] = result.message_id
                self.names["offset_message_id"] = result.offset_message_id

    def _consume(self, opened: ExitStack, admin: Admin, server: str, topic: str) -> None:
        seen: set[str] = set()
        group = self.names["group"]
        consumer = PushConsumer(
            group,
            lambda messages: seen.update(message.message_id for message in messages),
            name_server=server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            persist_offset_delay_ms=100,
            persist_offset_interval_ms=100,
            enable_trace=True,
        )
        consumer.subscribe(topic)
        opened.enter_context(consumer)
        eventually(lambda: len(seen) >= MESSAGES, "the messages consumed")
        eventually(lambda: f"%RETRY%{group}" in admin.list_topics(), "the retry topic's route")
        eventually(lambda: admin.consumer_progress(group, topic).lag == 0, "the offsets committed")

        def traced() -> bool:
            try:
                traces = admin.message_trace(self.names["message_id"])
            except TopicNotFoundError:  # it is made when the first traces are sent
                return False
            return {TraceType.PUB, TraceType.SUB_AFTER} <= {trace.trace_type for trace in traces}

        eventually(traced, "the traces of producer and consumer")
        (client,) = admin.consumer_connection(group).connection_set
        self.names["client_id"] = client.client_id
