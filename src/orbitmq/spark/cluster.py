"""Which cluster a function of this package works with: the settings of clients, as far as it needs.

``format("rocketmq")`` takes options instead, see :mod:`orbitmq.spark.source.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from orbitmq.client.config import AccessSettings, ClientConfig, make_config
from orbitmq.client.namespace import Namespace
from orbitmq.errors import ConfigError
from orbitmq.net.blocking import Access


class ClusterSettings(AccessSettings, total=False):
    """Keyword arguments that say which cluster is meant; see ClientConfig."""

    name_server: str | None
    namespace: str | None


class Cluster(NamedTuple):
    """Where it is, by whom requests are signed, and the namespace of topics and groups."""

    name_servers: tuple[str, ...]
    access: Access
    namespace: Namespace


def cluster_of(settings: Mapping[str, Any]) -> Cluster:
    """The cluster that ``settings`` name. ConfigError, naming the setting, where they cannot."""
    for name in settings:
        if name not in ClusterSettings.__annotations__:
            raise ConfigError(
                name, settings[name], f"known are {', '.join(ClusterSettings.__annotations__)}"
            )
    config = make_config(ClientConfig, settings)
    if not config.name_servers:
        raise ConfigError("name_server", None, "give host:port; no address server is asked here")
    return Cluster(
        config.name_servers, Access(config.credentials, config.tls), Namespace.of(config)
    )
