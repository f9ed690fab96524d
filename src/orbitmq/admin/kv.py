"""What name servers keep for operators: keys and values, and the order configurations of topics."""

from __future__ import annotations

from orbitmq.admin.asker import Asker
from orbitmq.codes import RequestCode
from orbitmq.errors import ConfigError, QueryNotFoundError
from orbitmq.names import ORDER_TOPIC_CONFIG
from orbitmq.wire.namesrv_bodies import (
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    KVConfigRequestHeader,
    PutKVConfigRequestHeader,
)
from orbitmq.wire.registration import KVTable


async def put_kv(ask: Asker, namespace: str, key: str, value: str) -> None:
    """Set a value at every name server; PartialFailureError (createAndUpdateKvConfig)."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    answers = await ask.each_name_server(RequestCode.PUT_KV_CONFIG, header)
    answers.complete(None)


async def get_kv(ask: Asker, namespace: str, key: str) -> str | None:
    """A value as a name server has it, None where it has none (getKVConfig)."""
    header = KVConfigRequestHeader(namespace=namespace, key=key)
    try:
        answer = await ask.name_server(RequestCode.GET_KV_CONFIG, header)
    except QueryNotFoundError:
        return None
    return answer.header(GetKVConfigResponseHeader).value


async def delete_kv(ask: Asker, namespace: str, key: str) -> None:
    """Delete a value at every name server; PartialFailureError (deleteKvConfig)."""
    header = KVConfigRequestHeader(namespace=namespace, key=key)
    answers = await ask.each_name_server(RequestCode.DELETE_KV_CONFIG, header)
    answers.complete(None)


async def kv_list(ask: Asker, namespace: str) -> dict[str, str]:
    """All keys and values of a namespace; none where there is no such (getKVListByNamespace)."""
    header = GetKVListByNamespaceRequestHeader(namespace=namespace)
    try:
        answer = await ask.name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
    except QueryNotFoundError:
        return {}
    return KVTable.decode(answer.body).table


async def order_conf(ask: Asker, topic: str) -> str | None:
    """The order configuration of ``topic``, ``broker-a:8;broker-b:8``, None where it has none."""
    return await get_kv(ask, ORDER_TOPIC_CONFIG, ask.namespace.wrap(topic))


async def update_order_conf(ask: Asker, topic: str, conf: str, *, add: bool = False) -> None:
    """Set how many queues of each broker producers of ``topic`` write, present or not.

    ``conf`` is such as ``broker-a:8;broker-b:8``. With ``add`` it names one broker, and what is
    set for the others stays. Raises ConfigError for what is no such list.
    (createOrUpdateOrderConf)
    """
    parts = _parts(conf)
    if add:
        parts = _parts(await order_conf(ask, topic) or "") | parts
    text = ";".join(f"{broker}:{queues}" for broker, queues in parts.items())
    await put_kv(ask, ORDER_TOPIC_CONFIG, ask.namespace.wrap(topic), text)


async def delete_order_conf(ask: Asker, topic: str) -> None:
    """Delete the order configuration of ``topic``."""
    await delete_kv(ask, ORDER_TOPIC_CONFIG, ask.namespace.wrap(topic))


def _parts(conf: str) -> dict[str, int]:
    parts: dict[str, int] = {}
    for part in filter(None, conf.split(";")):
        broker, _, queues = part.partition(":")
        if not broker or not (queues.isascii() and queues.isdigit()):
            raise ConfigError("conf", conf, f"{part!r} is not broker:queues, such as broker-a:8")
        parts[broker] = int(queues)
    return parts
