"""Settings of running brokers and name servers, by Apache's key names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitmq.admin.asker import Asker
from orbitmq.codes import RequestCode
from orbitmq.errors import ConfigError
from orbitmq.properties_file import decode_text, format_properties, parse_properties


async def broker_config(ask: Asker, broker: str) -> dict[str, str]:
    """All settings of ``broker`` (its name, or host:port), by Apache's names (getBrokerConfig)."""
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_BROKER_CONFIG)
    return parse_properties(decode_text(bytes(answer.body)))


async def update_broker_config(
    ask: Asker,
    settings: Mapping[str, object],
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> None:
    """Change settings while brokers run, by Apache's names: ``{"fileReservedTime": 48}``.

    At the masters of ``cluster``, at ``broker`` alone, or at all. Raises BrokerError or
    PartialFailureError where a setting or value is refused. (updateBrokerConfig)
    """
    body = _body(settings)
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, body),
    )
    answers.complete(None)


async def name_server_config(
    ask: Asker, servers: Iterable[str] | None = None
) -> dict[str, dict[str, str]]:
    """The settings of every name server, or of ``servers``, by address (getNameServerConfig)."""
    answers = await ask.each_name_server(RequestCode.GET_NAMESRV_CONFIG, servers=servers)
    return answers.complete(
        {
            server: parse_properties(decode_text(bytes(answer.body)))
            for server, answer in answers.by_address.items()
        }
    )


async def update_name_server_config(
    ask: Asker, settings: Mapping[str, object], servers: Iterable[str] | None = None
) -> None:
    """Change settings of every name server, or of ``servers`` (updateNameServerConfig)."""
    body = _body(settings)
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    answers = await ask.each_name_server(code, None, body, servers=servers)
    answers.complete(None)


def _body(settings: Mapping[str, object]) -> bytes:
    if not settings:
        raise ConfigError("settings", {}, "one setting at least")
    return format_properties(
        {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
        }
    ).encode()
