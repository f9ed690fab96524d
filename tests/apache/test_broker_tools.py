"""Settings and statistics of our broker and name server as Apache's own tools see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import EmbeddedBroker, Message, Producer, PullConsumer, codes
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import TopicConfig
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.apache.java_program import JavaProgram, options

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease

TOPIC, GROUP, COUNT = "counted", "counting", 5

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm-alone")]


class BrokerTools(JavaProgram):
    """See java/BrokerTools.java for its calls."""

    def __init__(self, release: ApacheRelease, name_server: str) -> None:
        super().__init__(release, "BrokerTools", options({"nameServer": name_server}))
        self._answers = 0

    def ask(self, *words: object) -> tuple[str, Any]:
        """What came of a call: `answer` and what it returned, or `refused` with code and text."""
        self.send_line(" ".join(map(str, words)))
        self._answers += 1

        def answers() -> list[Any]:
            return [mark for mark in self.marks if mark.kind in ("answer", "refused")]

        self.wait_until(lambda: len(answers()) == self._answers, f"the answer to {words}")
        kind, value = answers()[-1]
        return kind, value

    def answer(self, *words: object) -> Any:
        kind, value = self.ask(*words)
        assert kind == "answer", value
        return value

    def refusal(self, *words: object) -> tuple[int, str]:
        kind, value = self.ask(*words)
        assert kind == "refused", value
        return value[0], value[1]


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_settings_and_statistics(version: str) -> None:
    with (
        EmbeddedBroker() as broker,
        BrokerTools(release_or_skip(version), broker.name_server) as tools,
        Producer("makers", name_server=broker.name_server) as producer,
    ):
        address, names = broker.address, broker.name_server
        topic = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        broker.call(lambda node: node.broker.topics.put(topic))
        for number in range(COUNT):
            producer.send(Message(TOPIC, b"%d" % number), queue=_queue(broker))
        _consume_two(broker)
        check_settings(tools, address)
        check_name_server(tools, names)
        check_statistics(tools, broker)


def check_settings(tools: BrokerTools, address: str) -> None:
    settings = tools.answer("settings", address)
    assert settings["brokerName"] == "broker-a"
    assert settings["listenPort"] == address.rpartition(":")[2]
    assert {"filterServerNums", "slaveReadEnable", "useTLS", "haListenPort"} <= settings.keys()
    assert tools.answer("set", address, "maxTransferCountOnMessageInMemory", 7)
    assert tools.answer("settings", address)["maxTransferCountOnMessageInMemory"] == "7"
    code, text = tools.refusal("set", address, "maxMessageSize", "lots")
    assert code == codes.INVALID_PARAMETER
    assert "maxMessageSize" in text
    code, text = tools.refusal("set", address, "listenPort", 1)
    assert code == codes.NO_PERMISSION
    assert "restart" in text


def check_name_server(tools: BrokerTools, names: str) -> None:
    assert tools.answer("nameServerSettings", names)[names]["enableTopicList"] == "true"
    assert tools.answer("setNameServer", names, "enableTopicList", "false")
    assert tools.answer("nameServerSettings", names)[names]["enableTopicList"] == "false"
    assert tools.answer("setNameServer", names, "enableTopicList", "true")


def check_statistics(tools: BrokerTools, broker: EmbeddedBroker) -> None:
    address = broker.address
    minute, hour, day, tps, average = tools.answer("statistic", address, "TOPIC_PUT_NUMS", TOPIC)
    assert hour == day == COUNT
    assert minute in (0, COUNT)  # a minute may have passed on a busy machine
    assert tps >= 0
    assert average in (0, 1)
    _, hour, *_ = tools.answer("statistic", address, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")
    assert hour >= 2
    _, text = tools.refusal("statistic", address, "TOPIC_PUT_NUMS", "nothing")
    assert "not exist" in text
    runtime = tools.answer("runtime", address)
    assert len(runtime["putTps"].split()) == 3
    assert int(runtime["msgPutTotalTodayNow"]) >= COUNT
    behind, told, groups = tools.answer("progress", address)
    assert told == address
    assert behind == COUNT - 2
    assert [2, 0, 0, 0] in groups[GROUP]
    spans = tools.answer("spans", TOPIC, GROUP)
    (first,) = [span for span in spans if span[0] == 0]
    assert 0 < first[1] <= first[3] <= first[2]
    assert any("makers" in group for group in tools.answer("producers", address))


def _queue(broker: EmbeddedBroker) -> MessageQueue:
    return MessageQueue(TOPIC, broker.config.broker_name, 0)


def _consume_two(broker: EmbeddedBroker) -> None:
    with PullConsumer(GROUP, name_server=broker.name_server) as consumer:
        pulled = consumer.pull(_queue(broker), "*", 0, 2)
        assert len(pulled.messages) == 2
    broker.call(lambda node: node.broker.offsets.commit(GROUP, TOPIC, 0, 2))
