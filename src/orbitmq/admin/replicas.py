"""A broker's slaves, and reading what is no longer in memory: what tools ask and set of these."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.admin.asker import Asker
from orbitmq.codes import RequestCode
from orbitmq.properties_file import format_properties
from orbitmq.wire.operator_headers import ReadAheadRequestHeader
from orbitmq.wire.topic_bodies import ColdDataFlowCtrInfo, HARuntimeInfo


async def ha_status(ask: Asker, broker: str) -> HARuntimeInfo:
    """The slaves of ``broker`` (its name, or host:port), how far each is (getBrokerHAStatus)."""
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_BROKER_HA_STATUS)
    return HARuntimeInfo.decode(answer.body)


async def cold_data_info(ask: Asker, broker: str) -> ColdDataFlowCtrInfo:
    """How much each group reads of what is no longer in memory, and its limits.

    (getColdDataFlowCtrInfo)
    """
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
    return ColdDataFlowCtrInfo.decode(answer.body)


async def update_cold_data_limits(
    ask: Asker,
    limits: Mapping[str, int],
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> None:
    """Limit how many bytes groups may read so, by group (updateColdDataFlowCtrGroupConfig).

    At the masters of ``cluster``, at ``broker`` alone, or at all; a broker of 5.x heeds it with
    coldDataFlowControlEnable.
    """
    named = {ask.namespace.wrap(group): str(limit) for group, limit in limits.items()}
    body = format_properties(named).encode()
    code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    answers = await ask.each(
        await ask.masters(cluster, broker), lambda address: ask.ask(address, code, None, body)
    )
    answers.complete(None)


async def remove_cold_data_limit(
    ask: Asker, group: str, *, cluster: str | None = None, broker: str | None = None
) -> None:
    """Take the limit of ``group`` back (removeColdDataFlowCtrGroupConfig)."""
    body = ask.namespace.wrap(group).encode()
    code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
    answers = await ask.each(
        await ask.masters(cluster, broker), lambda address: ask.ask(address, code, None, body)
    )
    answers.complete(None)


async def set_commit_log_read_ahead(
    ask: Asker, *, enabled: bool, cluster: str | None = None, broker: str | None = None
) -> None:
    """Have the system read ahead in the commit log, or not (setCommitLogReadAheadMode)."""
    header = ReadAheadRequestHeader(mode="0" if enabled else "1")
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(address, RequestCode.SET_COMMITLOG_READ_MODE, header),
    )
    answers.complete(None)
