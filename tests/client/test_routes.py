"""Routes: which queues may be written and read, and where the brokers are."""

from __future__ import annotations

from orbitmq.client.routes import RouteTable, describe_route, publish_queues, subscribe_queues
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData


def route(
    *queues: QueueData, order_topic_conf: str | None = None, **addresses: dict[int, str]
) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=list(queues),
        broker_datas=[BrokerData("c", name, at) for name, at in addresses.items()],
        order_topic_conf=order_topic_conf,
    )


def numbers(queues: list[MessageQueue]) -> list[tuple[str, int]]:
    assert all(queue.topic == "t" for queue in queues)
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_writable_queues_come_by_broker_and_number() -> None:
    found = publish_queues(
        "t",
        route(
            QueueData("b", 1, 2, 6),
            QueueData("a", 1, 1, 2),
            QueueData("read_only", 4, 4, 4),
            QueueData("without_master", 4, 4, 6),
            QueueData("unknown", 4, 4, 6),
            a={0: "a:1"},
            b={0: "b:1", 1: "b:2"},
            read_only={0: "r:1"},
            without_master={1: "w:1"},
        ),
    )
    assert numbers(found) == [("a", 0), ("b", 0), ("b", 1)]


def test_an_order_configuration_decides_which_queues_are_written() -> None:
    found = publish_queues("t", route(QueueData("a", 8, 8, 6), order_topic_conf="b:2;a:1"))
    assert numbers(found) == [("b", 0), ("b", 1), ("a", 0)]


def test_readable_queues_do_not_need_a_master() -> None:
    found = subscribe_queues(
        "t", route(QueueData("b", 2, 9, 4), QueueData("a", 1, 9, 6), QueueData("c", 9, 9, 2))
    )
    assert numbers(found) == [("a", 0), ("b", 0), ("b", 1)]


def test_a_route_is_new_only_when_it_says_something_else() -> None:
    table = RouteTable()
    a, b = QueueData("a", 4, 4, 6), QueueData("b", 4, 4, 6)
    assert table.put("t", route(a, b, a={0: "a:1"}, b={0: "b:1"}))
    assert not table.put("t", route(b, a, b={0: "b:1"}, a={0: "a:1"}))
    assert table.put("t", route(a, b, a={0: "a:1"}, b={0: "b:2"}))
    assert table.master_address("b") == "b:2"
    assert table.put("t", route(a, a={0: "a:1"}))
    assert table.get("other") is None


def test_the_queues_to_read_are_kept_until_the_route_changes() -> None:
    table = RouteTable()
    table.put("t", route(QueueData("b", 1, 1, 6), QueueData("a", 2, 2, 6), a={0: "a:1"}))
    queues = table.subscribe_queues("t")
    assert numbers(list(queues)) == [("a", 0), ("a", 1), ("b", 0)]
    table.put("t", route(QueueData("a", 2, 2, 6), QueueData("b", 1, 1, 6), a={0: "a:1"}))
    assert table.subscribe_queues("t") is queues
    table.put("t", route(QueueData("a", 1, 1, 6), a={0: "a:1"}))
    assert numbers(list(table.subscribe_queues("t"))) == [("a", 0)]


def test_another_broker_of_the_name_stands_in_for_a_missing_one() -> None:
    table = RouteTable()
    table.put("t", route(a={0: "m", 2: "s"}, slaves={1: "s1", 2: "s2"}))
    assert table.broker_address("a") == "m"
    assert table.broker_address("a", 2) == "s"
    assert table.broker_address("a", 1) == "s"
    assert table.broker_address("a", 7) == "m"
    assert table.broker_address("a", 7, only_this=True) is None
    assert table.broker_address("slaves") == "s1"
    assert table.broker_address("slaves", only_this=True) is None
    assert table.broker_address("unknown") is None
    assert table.master_address("slaves") is None


def test_a_topic_is_asked_about_at_a_master_or_at_any_broker() -> None:
    table = RouteTable()
    table.put("t", route(a={0: "m", 1: "s"}))
    table.put("slaves", route(b={1: "s1", 2: "s2"}))
    table.put("nowhere", route(c={}))
    assert table.address_for_topic("t") == "m"
    assert table.address_for_topic("slaves") in {"s1", "s2"}
    assert table.address_for_topic("nowhere") is None
    assert table.address_for_topic("unknown") is None


def test_brokers_no_route_names_are_forgotten() -> None:
    table = RouteTable()
    table.put("t", route(a={0: "a0", 1: "a1"}, b={0: "b0"}))
    table.put("u", route(a={0: "a0"}))
    assert sorted(table.brokers()) == ["a0", "b0"]
    table.put("t", route(a={0: "a0"}))
    assert table.forget_offline_brokers() == ["b0"]
    assert table.forget_offline_brokers() == []
    assert list(table.brokers()) == ["a0"]
    assert table.master_address("b") is None


def test_only_masters_are_named_where_asked_for() -> None:
    table = RouteTable()
    table.put("t", route(a={0: "a0", 1: "a1"}, b={1: "b1"}))
    assert sorted(table.brokers()) == ["a0", "a1", "b1"]
    assert list(table.brokers(masters_only=True)) == ["a0"]


def test_a_route_is_described_in_a_line() -> None:
    assert describe_route(route(QueueData("a", 4, 8, 6))) == (
        "read/write queues 4/8 (permission 6) on a"
    )
    assert describe_route(route()) == "no queue"
