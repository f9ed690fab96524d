"""``orbitmq broker -c broker.conf``: settings by Apache's keys, as a user runs it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.properties_file import parse_properties
from tests.broker.remote import connect
from tests.cli.test_broker import failure, started, stopped


def test_a_file_is_read_options_go_before_it_and_changes_are_kept_in_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# ours\nbrokerName=broker-x\nbrokerClusterName=ours\nlistenPort=1\n"
        f"storePathRootDir={tmp_path / 'store'}\ntraceOn=true\n"
    )

    async def ask(address: str) -> dict[str, str]:
        client = await connect(address)
        try:
            answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"traceOn=false")
            assert answer.code == codes.SUCCESS
            answer = await client.call(RequestCode.GET_BROKER_CONFIG)
            return parse_properties(bytes(answer.body).decode())
        finally:
            client.close()

    with started("-c", str(path), "--cluster", "another") as broker:
        settings = asyncio.run(ask(broker.address))
        assert stopped(broker, signal.SIGTERM)[0] == 0
    assert broker.store == tmp_path / "store"
    assert settings["brokerName"] == "broker-x"
    assert settings["brokerClusterName"] == "another"
    assert settings["listenPort"] == broker.address.rpartition(":")[2]
    assert path.read_text().startswith("# ours\n")
    assert parse_properties(path.read_text())["traceOn"] == "false"


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokrName=broker-x\n")
    assert "brokrName" in failure("-c", str(path))
    assert "brokerName" in failure("-c", str(path))
