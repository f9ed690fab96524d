"""Settings by Apache's keys: from a file, shown, changed while the broker runs, and kept."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import msgspec
import pytest

from orbitmq import ConfigError, codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.settings import KEYS, OWN_KEYS, WITHOUT_KEY, load_config
from orbitmq.codes import RequestCode
from orbitmq.properties_file import parse_properties
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.wire.command import RemotingCommand
from tests.broker.remote import Client, Running, bodies, connect, running, with_broker

APACHES_KEYS = (Path(__file__).parent / "apaches_settings.txt").read_text().split()


async def update(client: Client, text: str) -> RemotingCommand:
    return await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())


async def shown(client: Client) -> dict[str, str]:
    answer = await client.call(RequestCode.GET_BROKER_CONFIG)
    assert answer.code == codes.SUCCESS
    assert answer.ext_fields is not None
    assert "counter" in answer.ext_fields["version"]
    return parse_properties(bytes(answer.body).decode())


# The table


def test_every_field_has_a_key() -> None:
    fields = {field.name for field in msgspec.structs.fields(BrokerConfig)} - WITHOUT_KEY
    fields |= {f"store_config.{field.name}" for field in msgspec.structs.fields(StoreConfig)}
    keyed = {key.field for key in KEYS.keys.values()}
    assert keyed == fields, "give the new setting a Key in broker/settings.py"


def test_every_key_of_apaches_is_known_once() -> None:
    known = [*(set(KEYS.keys) - OWN_KEYS), *KEYS.unused, *KEYS.refused]
    assert sorted(known) == sorted(APACHES_KEYS)
    assert set(KEYS.keys) >= OWN_KEYS
    assert all(KEYS.reason(name) for name in [*KEYS.unused, *KEYS.refused])


def test_texts_and_settings_are_the_same() -> None:
    config = BrokerConfig()
    texts = KEYS.texts(config)
    assert KEYS.applied(config, texts) == config
    assert texts["flushDiskType"] == "ASYNC_FLUSH"
    assert texts["mappedFileSizeConsumeQueue"] == "6000000"
    assert texts["serverChannelMaxIdleTimeSeconds"] == "120"


# A file


def file_of(directory: Path, *lines: str) -> Path:
    path = directory / "broker.conf"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_file_sets_what_it_says(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        "# a broker of ours",
        "brokerName = broker-x",
        "listenPort=20911",
        "flushDiskType=SYNC_FLUSH",
        "mappedFileSizeConsumeQueue=2000",
        "serverChannelMaxIdleTimeSeconds=7",
        "enablePropertyFilter=false",
        "brokerId=0",
        "brokerRole=ASYNC_MASTER",
        f"storePathRootDir={tmp_path / 'store'}",
        f"storePathCommitLog={tmp_path / 'store' / 'commitlog'}",
    )
    config = BrokerConfig.from_file(path, host="127.0.0.2", port=20921)
    assert config == BrokerConfig(
        host="127.0.0.2",
        port=20921,
        broker_name="broker-x",
        settings_file=path,
        store_directory=tmp_path / "store",
        connection_idle_ms=7_000,
        enable_property_filter=False,
        store_config=StoreConfig(flush_mode=FlushMode.SYNC, consume_queue_units=100),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("brokrName=a", "brokrName.*did you mean brokerName"),
        ("xyzzy=a", "xyzzy.*check its spelling"),
        ("listenPort=many", "listenPort='many'.*a whole number"),
        ("listenPort=65536", "listenPort='65536'.*0 to 65535"),
        pytest.param(f"listenPort={'9' * 5000}", "listenPort.*a whole number", id="digits"),
        ("autoCreateTopicEnable=yes", "autoCreateTopicEnable='yes'.*true or false"),
        ("flushDiskType=NEVER", "flushDiskType='NEVER'.*ASYNC_FLUSH or SYNC_FLUSH"),
        ("messageDelayLevel=1s 2x", "messageDelayLevel='1s 2x'"),
        ("deleteWhen=25", "deleteWhen='25'.*hours"),
        ("regionId=a\\u0001b", "regionId.*printed"),
        ("brokerName=a b", "brokerName='a b'"),
        ("brokerRole=SLAVE", "brokerRole='SLAVE'.*master without slaves"),
        ("enableControllerMode=true", "enableControllerMode='true'.*no controllers"),
        ("storeType=defaultRocksDB", "storeType='defaultRocksDB'.*RocksDB"),
        ("storePathCommitLog=/elsewhere", "storePathCommitLog='/elsewhere'.*storePathRootDir"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.from_file(file_of(tmp_path, "brokerClusterName=c", line))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.conf"):
        BrokerConfig.from_file(tmp_path / "missing.conf")


def test_keys_without_a_use_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = file_of(tmp_path, "sendMessageThreadPoolNums=16", "haListenPort=1", "abortFile=/x")
    with caplog.at_level(logging.WARNING, "orbitmq"):
        config = load_config(path, BrokerConfig(), {})
    assert config == BrokerConfig(settings_file=path)
    (record,) = caplog.records
    for words in ("sendMessageThreadPoolNums (one loop", "haListenPort (", "abortFile ("):
        assert words in record.getMessage()


def test_an_embedded_broker_reads_a_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, "brokerName=broker-x", "defaultTopicQueueNums=3")
    with EmbeddedBroker(settings_file=path, default_topic_queues=5) as broker:
        assert broker.config.broker_name == "broker-x"
        assert broker.config.default_topic_queues == 5
        assert broker.config.port == 0


# At run time


def test_all_keys_are_shown() -> None:
    async def scenario(node: Running, client: Client) -> None:
        texts = await shown(client)
        assert set(APACHES_KEYS) <= set(texts)
        assert texts["listenPort"] == node.node.address.rpartition(":")[2]
        assert texts["brokerIP1"] == "127.0.0.1"
        assert texts["storePathRootDir"] == str(node.node.store_directory)
        assert texts["filterServerNums"] == "0"
        assert texts["brokerRole"] == "ASYNC_MASTER"

    with_broker(scenario)


def test_changes_take_effect_at_once() -> None:
    async def scenario(node: Running, client: Client) -> None:
        for number in range(4):
            await client.send("T", b"%d" % number)
        assert len(bodies(await client.pull("T"))) == 4
        text = (
            "maxTransferCountOnMessageInMemory=2\nmaxMessageSize=5\nautoCreateTopicEnable=false\n"
            "regionId=elsewhere\ntraceOn=false\nchannelExpiredTimeout=50\n"
            "autoCreateSubscriptionGroup=false\n"
        )
        assert (await update(client, text)).code == codes.SUCCESS
        assert len(bodies(await client.pull("T"))) == 2
        assert (await client.send("T", b"123456")).code == codes.MESSAGE_ILLEGAL
        assert (await client.send("new")).code == codes.TOPIC_NOT_EXIST
        answer = await client.send("T", b"12345")
        assert answer.ext_fields is not None
        assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == (
            "elsewhere", "false",
        )  # fmt: skip
        answer = await client.pull("T", consumer_group="strangers")
        assert answer.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
        assert node.broker.config.client_timeout_ms == 50
        assert (await shown(client))["regionId"] == "elsewhere"
        assert (await update(client, "autoCreateTopicEnable=true")).code == codes.SUCCESS
        assert (await client.send("new", b"1")).code == codes.SUCCESS

    with_broker(scenario)


def test_topics_may_be_made_where_the_broker_began_without() -> None:
    async def scenario(_node: Running, client: Client) -> None:
        assert (await client.send("new")).code == codes.TOPIC_NOT_EXIST
        await update(client, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=2")
        assert (await client.send("new")).code == codes.SUCCESS

    with_broker(scenario, auto_create_topics=False)


def test_a_shorter_interval_counts_from_the_last_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, offset_save_interval_ms=1 << 30) as node:
            client = await node.connect()
            await client.send("T")
            await client.pull("T", sys_flag=5, commit_offset=1)
            node.advance(10_000)
            assert not (tmp_path / "config" / "consumerOffset.json").exists()
            await update(client, "flushConsumerOffsetInterval=5000")
            node.advance(0)
            await asyncio.to_thread(node.broker.saved.close)  # what was begun is written
            assert (tmp_path / "config" / "consumerOffset.json").exists()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("listenPort=1", codes.NO_PERMISSION, "listenPort=1.*restart"),
        ("brokerName=b", codes.NO_PERMISSION, "brokerName=b.*restart"),
        ("flushDiskType=SYNC_FLUSH", codes.NO_PERMISSION, "flushDiskType.*restart"),
        ("maxMessageSize=0", codes.INVALID_PARAMETER, "maxMessageSize='0'"),
        ("maxMesageSize=9", codes.INVALID_PARAMETER, "maxMesageSize.*maxMessageSize"),
        ("brokerRole=SLAVE", codes.INVALID_PARAMETER, "brokerRole"),
        pytest.param(f"{'x' * 100_000}=1", codes.INVALID_PARAMETER, "x{100}='1'", id="name"),
        pytest.param("a" * 300_000, codes.INVALID_PARAMETER, "bytes.*too many", id="length"),
        ("regionId=\\ud800", codes.INVALID_PARAMETER, "regionId"),
    ],
)
def test_all_of_a_change_is_refused_or_nothing(text: str, code: int, words: str) -> None:
    async def scenario(_node: Running, client: Client) -> None:
        before = await shown(client)
        answer = await update(client, f"traceOn=false\n{text}")
        assert answer.code == code
        assert re.search(words, answer.remark or "")
        assert len(answer.remark or "") < 2_000
        assert await shown(client) == before

    with_broker(scenario)


def test_what_does_not_change_needs_no_restart() -> None:
    async def scenario(_node: Running, client: Client) -> None:
        answer = await update(client, "brokerName=broker-a\nbrokerRole=ASYNC_MASTER\n")
        assert answer.code == codes.SUCCESS

    with_broker(scenario)


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            await update(client, "maxTransferCountOnMessageInMemory=7\nhaListenPort=5")
            await update(client, "traceOn=false")
        kept = (tmp_path / "config" / "orbitmq.properties").read_text()
        assert parse_properties(kept) == {
            "maxTransferCountOnMessageInMemory": "7", "haListenPort": "5", "traceOn": "false",
        }  # fmt: skip
        async with running(tmp_path, max_pull_count=3) as node:
            texts = await shown(await node.connect())
            assert node.broker.config.max_pull_count == 7
            assert (texts["haListenPort"], texts["traceOn"]) == ("5", "false")

    asyncio.run(main())


def test_changes_go_into_the_file_the_broker_was_started_with(tmp_path: Path) -> None:
    path = file_of(tmp_path, "# ours", "traceOn=true", "regionId=here")
    with EmbeddedBroker(tmp_path / "store", settings_file=path) as broker:

        async def change() -> None:
            client = await connect(broker.address)
            assert (await update(client, "traceOn=false")).code == codes.SUCCESS
            client.close()

        asyncio.run(change())
    assert path.read_text() == "# ours\ntraceOn=false\nregionId=here\n"
    assert not (tmp_path / "store" / "config" / "orbitmq.properties").exists()
    with EmbeddedBroker(tmp_path / "store", settings_file=path) as broker:
        assert not broker.call(lambda node: node.broker.config.trace_on)


def test_a_change_that_cannot_be_kept_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as node:
            client = await node.connect()
            (tmp_path / "config" / "orbitmq.properties.tmp").mkdir(parents=True)
            answer = await update(client, "traceOn=false")
            assert answer.code == codes.SYSTEM_ERROR
            assert "cannot be kept" in (answer.remark or "")
            assert not node.broker.config.trace_on

    asyncio.run(main())


def test_kept_settings_that_need_a_restart_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "orbitmq.properties").write_text("listenPort=1\n")

    async def main() -> None:
        async with running(tmp_path):
            pass

    with pytest.raises(ConfigError, match=r"listenPort.*orbitmq\.properties"):
        asyncio.run(main())
