"""Which brokers the workers run: names, ports, directories, and what was stored before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.worker_plan import check_lone, number_of, plan
from orbitmq.errors import ConfigError


def numbers(plans: list[list[BrokerConfig]]) -> list[list[int]]:
    return [[number_of(broker) for broker in worker] for worker in plans]


def store(root: Path, name: str) -> None:
    (root / name / "commitlog").mkdir(parents=True)
    (root / name / "commitlog" / f"{0:020d}").touch()


def test_names_ports_and_directories(tmp_path: Path) -> None:
    config = BrokerConfig(fast_listen_port=10909, settings_file=tmp_path / "broker.conf")
    plans = plan(config, 3, tmp_path)
    brokers = [broker for (broker,) in plans]
    assert [broker.broker_name for broker in brokers] == ["broker-a-0", "broker-a-1", "broker-a-2"]
    assert [broker.port for broker in brokers] == [10911, 10921, 10931]
    assert [broker.fast_listen_port for broker in brokers] == [10909, 10919, 10929]
    assert [broker.store_directory for broker in brokers] == [
        tmp_path / broker.broker_name for broker in brokers
    ]
    assert {broker.settings_file for broker in brokers} == {None}


def test_any_free_port_is_any_for_all(tmp_path: Path) -> None:
    plans = plan(BrokerConfig(port=0, name_server_port=0), 2, tmp_path / "none")
    assert [broker.port for (broker,) in plans] == [0, 0]


def test_brokers_that_have_messages_are_served_by_few_workers_too(tmp_path: Path) -> None:
    for number in (0, 2, 3, 7):
        store(tmp_path, f"broker-a-{number}")
    (tmp_path / "broker-a-9" / "commitlog").mkdir(parents=True)  # never had a message
    (tmp_path / "namesrv").mkdir()
    config = BrokerConfig()
    assert numbers(plan(config, 2, tmp_path)) == [[0, 2, 7], [1, 3]]
    assert numbers(plan(config, 8, tmp_path)) == [[number] for number in range(8)]


@pytest.mark.parametrize(
    ("settings", "count", "text"),
    [
        ({}, 0, "workers=0 is not allowed: 1 to 256"),
        ({}, 257, "workers=257"),
        ({"port": 65_530}, 2, "port=65530 is not allowed: broker-a-1 would listen on 65540"),
        ({"port": 9866}, 2, "the name server and broker-a-1 would both listen on 9876"),
        ({"fast_listen_port": 10921}, 2, "broker-a-0 and broker-a-1 would both listen on 10921"),
    ],
)
def test_what_cannot_be(tmp_path: Path, settings: dict[str, Any], count: int, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(BrokerConfig(**settings), count, tmp_path)
    assert text in str(caught.value)


def test_messages_of_other_brokers_are_not_left_unserved(tmp_path: Path) -> None:
    store(tmp_path, "broker-b-1")
    with pytest.raises(ConfigError, match="give the name 'broker-b'"):
        plan(BrokerConfig(), 2, tmp_path)
    store(tmp_path, "data")
    with pytest.raises(ConfigError, match="2 workers"):
        check_lone(tmp_path)
    store(tmp_path, ".")
    check_lone(tmp_path)
    with pytest.raises(ConfigError, match="the store of a single broker"):
        plan(BrokerConfig(), 2, tmp_path)
