"""Clean-ups that brokers do by themselves in time, done now."""

from __future__ import annotations

from orbitmq.admin.asker import Asker
from orbitmq.codes import RequestCode


async def clean_expired_consume_queues(
    ask: Asker, *, cluster: str | None = None, broker: str | None = None
) -> list[str]:
    """Have brokers delete the consume queues whose messages are gone (cleanExpiredConsumerQueue).

    At all brokers of ``cluster``, masters and slaves, at ``broker`` alone, or at all. Returns the
    addresses of those that did; raises PartialFailureError where some did not.
    """
    return await _tell(ask, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)


async def clean_unused_topics(
    ask: Asker, *, cluster: str | None = None, broker: str | None = None
) -> list[str]:
    """Have brokers delete the consume queues of topics they do not have any more.

    Where and errors as :meth:`clean_expired_consume_queues`. (cleanUnusedTopic)
    """
    return await _tell(ask, RequestCode.CLEAN_UNUSED_TOPIC, cluster, broker)


async def delete_expired_commit_log(
    ask: Asker, *, cluster: str | None = None, broker: str | None = None
) -> list[str]:
    """Have brokers delete the files of the commit log whose time is over, at any hour of the day.

    Where and errors as :meth:`clean_expired_consume_queues`. (deleteExpiredCommitLog)
    """
    return await _tell(ask, RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, broker)


async def _tell(
    ask: Asker, code: RequestCode, cluster: str | None, broker: str | None
) -> list[str]:
    if broker is None:
        addresses = await ask.masters_and_slaves(cluster)
    else:
        addresses = [await ask.broker(broker)]
    answers = await ask.each(addresses, lambda address: ask.ask(address, code))
    return answers.complete(list(answers.by_address))
