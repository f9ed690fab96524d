"""The name server's settings by Apache's keys: shown, changed while it runs, and kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from orbitmq import ConfigError, codes
from orbitmq.codes import RequestCode
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.settings import KEYS
from orbitmq.properties_file import parse_properties
from orbitmq.wire.command import RemotingCommand
from tests.broker.remote import Client, running


async def update(client: Client, text: str) -> RemotingCommand:
    return await client.call(RequestCode.UPDATE_NAMESRV_CONFIG, None, text.encode())


async def shown(client: Client) -> dict[str, str]:
    answer = await client.call(RequestCode.GET_NAMESRV_CONFIG)
    assert answer.code == codes.SUCCESS
    return parse_properties(bytes(answer.body).decode())


def test_every_field_has_a_key() -> None:
    fields = {field.name for field in msgspec.structs.fields(NameServerConfig)}
    assert {key.field for key in KEYS.keys.values()} == fields


def test_settings_are_shown_and_changed_and_survive_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            names = await node.connect(node.node.name_server)
            texts = await shown(names)
            assert texts["listenPort"] == node.node.name_server.rpartition(":")[2]
            assert texts["productEnvName"] == "center"
            assert texts["enableTopicList"] == texts["enableAllTopicList"] == "true"
            assert (await update(names, "enableAllTopicList=false")).code == codes.SUCCESS
            answer = await names.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert answer.code == codes.SYSTEM_ERROR
        async with running(tmp_path) as node:
            names = await node.connect(node.node.name_server)
            assert (await shown(names))["enableAllTopicList"] == "false"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("kvConfigPath=/etc/passwd", codes.NO_PERMISSION, "kvConfigPath"),
        ("configStorePath=/etc/passwd", codes.NO_PERMISSION, "configStorePath"),
        ("enableTopicLst=false", codes.INVALID_PARAMETER, "enableTopicList"),
        ("scanNotActiveBrokerInterval=0", codes.INVALID_PARAMETER, "scanNotActiveBrokerInterval"),
        ("enableControllerInNamesrv=true", codes.INVALID_PARAMETER, "no controllers"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, code: int, words: str) -> None:
    async def main() -> None:
        async with running() as node:
            names = await node.connect(node.node.name_server)
            before = await shown(names)
            answer = await update(names, text)
            assert (answer.code, words in (answer.remark or "")) == (code, True)
            assert await shown(names) == before

    asyncio.run(main())


def test_kept_settings_that_cannot_be_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "namesrv").mkdir()
    (tmp_path / "namesrv" / "namesrv.properties").write_text("enableTopicList=perhaps\n")

    async def main() -> None:
        async with running(tmp_path):
            pass

    with pytest.raises(ConfigError, match="enableTopicList"):
        asyncio.run(main())
