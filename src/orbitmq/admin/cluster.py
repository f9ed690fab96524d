"""The cluster: its brokers as name servers know them, and whether topics there may be written."""

from __future__ import annotations

from orbitmq.admin.asker import Answers, Asker
from orbitmq.codes import RequestCode
from orbitmq.wire.bodies import ClusterInfo
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import BrokerNameRequestHeader, TopicCountResponseHeader


async def cluster_info(ask: Asker) -> ClusterInfo:
    """All brokers by name, and the broker names of each cluster (examineBrokerClusterInfo)."""
    return await ask.cluster_info()


async def name_servers(ask: Asker) -> list[str]:
    """The addresses of the name servers this client asks (getNameServerAddressList)."""
    return await ask.instance.name_servers.all(timeout_ms=ask.config.api_timeout_ms)


async def wipe_write_perm(ask: Asker, broker_name: str) -> dict[str, int]:
    """Have name servers tell producers not to write to ``broker_name`` any more.

    Returns how many topics that concerns, by name server. It holds until the broker registers a
    topic anew. (wipeWritePermOfBroker)
    """
    answers = await _set_write_perm(ask, broker_name, RequestCode.WIPE_WRITE_PERM_OF_BROKER)
    return answers.complete(
        {
            server: answer.header(TopicCountResponseHeader).wipe_topic_count or 0
            for server, answer in answers.by_address.items()
        }
    )


async def add_write_perm(ask: Asker, broker_name: str) -> dict[str, int]:
    """Take back :meth:`wipe_write_perm`; how many topics that concerns (addWritePermOfBroker)."""
    answers = await _set_write_perm(ask, broker_name, RequestCode.ADD_WRITE_PERM_OF_BROKER)
    return answers.complete(
        {
            server: answer.header(TopicCountResponseHeader).add_topic_count or 0
            for server, answer in answers.by_address.items()
        }
    )


async def _set_write_perm(
    ask: Asker, broker_name: str, code: RequestCode
) -> Answers[RemotingCommand]:
    return await ask.each_name_server(code, BrokerNameRequestHeader(broker_name=broker_name))
