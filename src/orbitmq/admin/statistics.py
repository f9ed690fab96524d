"""What brokers count: their state, the TPS of topics and groups, and how far groups are behind."""

from __future__ import annotations

import msgspec

from orbitmq.admin.asker import Asker, merge_queues
from orbitmq.client.timeouts import in_ms
from orbitmq.codes import RequestCode
from orbitmq.wire.admin_bodies import ConsumeStats
from orbitmq.wire.operator_bodies import BrokerStatsData, ConsumeStatsList
from orbitmq.wire.operator_headers import (
    GetConsumeStatsInBrokerHeader,
    ViewBrokerStatsDataRequestHeader,
)
from orbitmq.wire.registration import KVTable


class BrokerRuntimeInfo(msgspec.Struct, frozen=True):
    """The state of a broker: all of it by Apache's names in ``table``, the most asked for typed.

    TPS are messages a second over the last 10 s, minute and 10 minutes.
    """

    table: dict[str, str]

    @property
    def version(self) -> str:
        """The broker's version in words, such as ``V5_5_0``."""
        return self.table.get("brokerVersionDesc", "")

    @property
    def put_tps(self) -> tuple[float, ...]:
        """Messages stored."""
        return self._tps("putTps")

    @property
    def get_tps(self) -> tuple[float, ...]:
        """Messages given to consumers."""
        return self._tps("getTransferredTps", "getTransferedTps")

    @property
    def messages_put_today(self) -> int:
        """How many messages were stored since local midnight."""
        return self._int("msgPutTotalTodayNow") - self._int("msgPutTotalTodayMorning")

    @property
    def messages_got_today(self) -> int:
        """How many messages went to consumers since local midnight."""
        return self._int("msgGetTotalTodayNow") - self._int("msgGetTotalTodayMorning")

    @property
    def boot_timestamp(self) -> int:
        """When the broker was started, ms since the epoch."""
        return self._int("bootTimestamp")

    @property
    def earliest_message_timestamp(self) -> int:
        """When its oldest message was stored, ms since the epoch; -1 without one."""
        return self._int("earliestMessageTimeStamp", -1)

    @property
    def commit_log_disk_ratio(self) -> float:
        """How full the disk of the commit log is, 0 to 1."""
        return float(self.table.get("commitLogDiskRatio") or 0)

    def _tps(self, *names: str) -> tuple[float, ...]:
        text = next((self.table[name] for name in names if name in self.table), "")
        return tuple(map(float, text.split()))

    def _int(self, name: str, default: int = 0) -> int:
        return int(self.table.get(name) or default)


class BrokerConsumeStats(msgspec.Struct, frozen=True):
    """How far all groups of a broker are; ``groups`` has each group's topics, one after another."""

    groups: dict[str, list[ConsumeStats]]
    total_lag: int
    total_inflight: int


async def broker_runtime_info(ask: Asker, broker: str) -> BrokerRuntimeInfo:
    """The state of ``broker`` (its name, or host:port) (fetchBrokerRuntimeStats)."""
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_BROKER_RUNTIME_INFO)
    return BrokerRuntimeInfo(KVTable.decode(answer.body).table)


async def broker_stats(ask: Asker, stats_name: str, stats_key: str, broker: str) -> BrokerStatsData:
    """A statistic of ``broker`` over the last minute, hour and day (viewBrokerStatsData).

    ``stats_name`` is such as ``TOPIC_PUT_NUMS`` with the topic as ``stats_key``, or
    ``GROUP_GET_NUMS`` with ``topic@group``. Raises BrokerError where nothing was counted.
    """
    header = ViewBrokerStatsDataRequestHeader(stats_name=stats_name, stats_key=stats_key)
    answer = await ask.ask(await ask.broker(broker), RequestCode.VIEW_BROKER_STATS_DATA, header)
    return BrokerStatsData.decode(answer.body)


async def consume_stats_in_broker(
    ask: Asker,
    broker: str,
    *,
    order: bool = False,
    timeout: float | None = None,  # noqa: ASYNC109
) -> BrokerConsumeStats:
    """How far all groups of ``broker`` are, those that consume in order or the others.

    May take ``timeout`` seconds (50). (fetchConsumeStatsInBroker)
    """
    answer = await ask.ask(
        await ask.broker(broker),
        RequestCode.GET_BROKER_CONSUME_STATS,
        GetConsumeStatsInBrokerHeader(is_order=order),
        timeout_ms=50_000 if timeout is None else in_ms(timeout),
    )
    found = ConsumeStatsList.decode(answer.body)
    groups = {
        ask.namespace.unwrap(group): [
            ConsumeStats(merge_queues(ask.namespace, [one.offset_table]), one.consume_tps)
            for one in stats
        ]
        for table in found.consume_stats_list
        for group, stats in sorted(table.items())
    }
    return BrokerConsumeStats(groups, found.total_diff, found.total_inflight_diff)
