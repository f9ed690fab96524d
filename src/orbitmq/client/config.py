"""Settings of the clients: frozen value objects, made once from keyword arguments, checked once.

Defaults are those of the Java client (ClientConfig, DefaultMQProducer and the consumers' classes)
unless a field says otherwise. Times are in milliseconds, sizes in bytes. A setting that does not
exist, or has a value it may not have, raises ConfigError naming it, its value and what is allowed.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from orbitmq.errors import ConfigError
from orbitmq.net.addresses import local_ip
from orbitmq.net.tls import ClientTls
from orbitmq.wire.signing import NAMESPACE, NAMESPACED, REQUEST_TYPE, STREAM, Credentials, RpcHook

Millis = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]

NAME_SERVER_ENV = "NAMESRV_ADDR"
"""The environment variable that gives the name servers where ``name_server`` does not."""
ADDRESS_SERVER_ENV = "NAMESRV_DOMAIN"
"""The one that gives the address server where ``address_server`` does not."""

_SECRETS = {"secret_key", "security_token", "tls_key_password"}

_ConfigT = TypeVar("_ConfigT", bound="ClientConfig")


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every client has (Java's ``ClientConfig``)."""

    name_server: str | None = None
    """``host:port`` of the name servers, separated by ``;``. Default: env ``NAMESRV_ADDR``.
    ``http://host:port``, as clouds give it, is one name server too."""
    address_server: str | None = None
    """Where the name servers are asked for over HTTP, at the start and every two minutes, when
    ``name_server`` and ``NAMESRV_ADDR`` give none: a URL, or ``host`` or ``host:port`` for Java's
    ``http://host:8080/rocketmq/nsaddr`` (rocketmq.namesrv.domain). Default: env
    ``NAMESRV_DOMAIN``, or nobody is asked."""
    client_ip: str | None = None
    """What stands before ``@`` in the client id. Default: the address this host speaks from."""
    instance_name: str = "DEFAULT"
    """What stands after ``@`` in the client id. Clients of one process with the same name share
    connections; ``DEFAULT`` becomes ``pid#nanoseconds``, different for each client."""
    unit_name: str | None = None
    """A third part of the client id; an address server is asked for the name servers of this
    unit."""
    unit_mode: bool = False
    """Whether this client belongs to a unit of a divided deployment; told to the brokers."""
    namespace: str | None = None
    """The namespace of its topics and groups, which users do not see in names
    (:mod:`orbitmq.client.namespace`). Default: the ``MQ_INST_..`` in the name server's address,
    where there is one; ``""`` is none."""
    namespace_v2: str | None = None
    """The namespace told with every request instead of within names, for proxies and brokers of
    clouds (NamespaceRpcHook)."""
    poll_name_server_interval_ms: Millis = 30_000
    """How often the routes of the topics in use are fetched anew."""
    heartbeat_interval_ms: Millis = 30_000
    """How often every broker in use hears of this client."""
    persist_offset_interval_ms: Millis = 5_000
    """How often consumers store their offsets."""
    persist_offset_delay_ms: Millis = 10_000
    """When they store them first."""
    rebalance_interval_ms: Millis = 20_000
    """How often consumers balance their queues when nothing calls for it sooner."""
    rebalance_min_interval_ms: Millis = 1_000
    """The least time between two rebalances, and the time to the next after one that failed."""
    api_timeout_ms: Millis = 3_000
    """How long an answer to anything but a send or a pull may take."""
    connect_timeout_ms: Millis = 3_000
    """How long making a connection may take."""
    vip_channel_enabled: bool = False
    """Whether sends, and what is asked of brokers but for pulls and heartbeats, go to a broker's
    second port, two below its first, which Java's brokers keep free of pulls."""
    enable_stream_request_type: bool = False
    """Whether every request says that it comes from a client that reads a stream, and the client
    id too: by ``STREAM`` as its last part."""
    access_key: str | None = None
    """The account requests are signed by, for brokers with ACL or authentication on."""
    secret_key: str | None = None
    """What that account signs with; it is not sent, and shown nowhere."""
    security_token: str | None = None
    """What goes along where the account is a temporary one."""
    use_tls: bool = False
    """Whether connections to name servers and brokers are encrypted (useTLS, ``tls.enable``)."""
    tls_ca_file: str | None = None
    """PEM file of the CAs that may have signed a server's certificate
    (``tls.client.trustCertPath``). Default: any certificate is accepted, as in Java."""
    tls_cert_file: str | None = None
    """PEM file of this client's certificate, for servers that ask for one
    (``tls.client.certPath``)."""
    tls_key_file: str | None = None
    """PEM file of its private key (``tls.client.keyPath``). Default: it is in ``tls_cert_file``."""
    tls_key_password: str | None = None
    """What the key is encrypted with (``tls.client.keyPassword``)."""
    tls_verify: bool | None = None
    """Whether a server must have a certificate of a CA that is trusted
    (``tls.client.authServer``). Default: where ``tls_ca_file`` is given. True without one trusts
    the CAs of the system."""
    tls_check_hostname: bool = False
    """Whether that certificate must name the host connected to. Java's client does not look."""

    def __post_init__(self) -> None:
        _check_credentials(self)
        if not self.use_tls:
            for name in _TLS_SETTINGS:
                if getattr(self, name):
                    shown = "***" if name in _SECRETS else getattr(self, name)
                    raise ConfigError(name, shown, "it has no effect without use_tls=True")

    def __repr__(self) -> str:
        """Without secrets, and without what is as it is by default."""
        given = (
            (field.name, "***" if field.name in _SECRETS else getattr(self, field.name))
            for field in msgspec.structs.fields(type(self))
            if getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given)})"

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses in ``name_server``, or in the environment where it is None.

        None of them where an address server is to be asked.
        """
        if self.name_servers_url is not None:
            return ()
        return name_servers(self.name_server)

    @property
    def name_servers_url(self) -> str | None:
        """Where the name servers are to be asked for; None where they are given."""
        given = os.environ.get(NAME_SERVER_ENV) if self.name_server is None else self.name_server
        server = self.address_server
        if server is None:
            server = os.environ.get(ADDRESS_SERVER_ENV)
        return None if given or not server else _address_server_url(server, self.unit_name)

    @property
    def credentials(self) -> Credentials | None:
        """What requests are signed with, None where they are not."""
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key, self.security_token)

    @property
    def hook(self) -> RpcHook | None:
        """What every request carries besides its own fields, None for nothing."""
        fields = {REQUEST_TYPE: STREAM} if self.enable_stream_request_type else {}
        if self.namespace_v2:
            fields |= {NAMESPACED: "true", NAMESPACE: self.namespace_v2}
        if not fields and self.credentials is None:
            return None
        return RpcHook(fields, self.credentials)

    @property
    def tls(self) -> ClientTls | None:
        """How connections are encrypted, None where they are not."""
        if not self.use_tls:
            return None
        return ClientTls(
            ca_file=self.tls_ca_file,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            verify=self.tls_verify,
            check_hostname=self.tls_check_hostname,
        )

    def new_client_id(self) -> str:
        """The id a client with these settings takes (ClientConfig.buildMQClientId).

        With the instance name DEFAULT every call gives another.
        """
        name = self.instance_name
        if name == "DEFAULT":
            name = f"{os.getpid()}#{time.monotonic_ns()}"
        parts = [self.client_ip or local_ip(), name]
        if self.unit_name:
            parts.append(self.unit_name)
        if self.enable_stream_request_type:
            parts.append("STREAM")
        return "@".join(parts)


class AccessSettings(TypedDict, total=False):
    """The keyword arguments that say who signs requests, and how a connection is secured."""

    access_key: str | None
    secret_key: str | None
    security_token: str | None
    use_tls: bool
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_key_password: str | None
    tls_verify: bool | None
    tls_check_hostname: bool


class ClientSettings(AccessSettings, total=False):
    """The keyword arguments every client takes; see ClientConfig."""

    name_server: str | None
    address_server: str | None
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    namespace: str | None
    namespace_v2: str | None
    poll_name_server_interval_ms: int
    heartbeat_interval_ms: int
    persist_offset_interval_ms: int
    persist_offset_delay_ms: int
    rebalance_interval_ms: int
    rebalance_min_interval_ms: int
    api_timeout_ms: int
    connect_timeout_ms: int
    vip_channel_enabled: bool
    enable_stream_request_type: bool


def make_config(config_type: type[_ConfigT], settings: Mapping[str, Any]) -> _ConfigT:
    """A checked ``config_type`` from keyword arguments.

    Raises ConfigError for an unknown setting, a wrong type or value, and for name servers that
    are missing or malformed.
    """
    unknown = settings.keys() - set(config_type.__struct_fields__)
    if unknown:
        name = min(unknown)
        raise ConfigError(name, settings[name], _no_such_setting(name, config_type))
    try:
        config = msgspec.convert(settings, config_type)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        name, allowed = _explain(error)
        value = "***" if name in _SECRETS else settings.get(name)
        raise ConfigError(name, value, allowed) from error
    _ = config.name_servers  # is checked by being read
    return config


def name_servers(text: str | None) -> tuple[str, ...]:
    """The addresses in ``text``, or in env ``NAMESRV_ADDR`` where it is None.

    Raises ConfigError when there is none, or one that is not ``host:port``.
    """
    given = os.environ.get(NAME_SERVER_ENV) if text is None else text
    parts = (part.strip() for part in (given or "").split(";"))
    # NameServerAddressUtils.getNameSrvAddrFromNamesrvEndpoint
    addresses = tuple(part.removeprefix("http://") for part in parts if part)
    if not addresses:
        raise ConfigError(
            "name_server",
            text,
            f"give host:port, such as name_server='127.0.0.1:9876', set {NAME_SERVER_ENV}, or give "
            "an address_server to ask",
        )
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                "name_server",
                given,
                f"{address!r} is not host:port; several are separated by ';', "
                "such as 'ns1:9876;ns2:9876'",
            )
    return addresses


_TLS_SETTINGS = (
    "tls_ca_file",
    "tls_cert_file",
    "tls_key_file",
    "tls_key_password",
    "tls_verify",
    "tls_check_hostname",
)


def _check_credentials(config: ClientConfig) -> None:
    """Both keys or none; whoever gives one and forgets the other would go unsigned."""
    if config.access_key and not config.secret_key:
        raise ConfigError("secret_key", None, f"access_key={config.access_key!r} needs one too")
    if config.secret_key and not config.access_key:
        raise ConfigError("access_key", config.access_key, "secret_key is given, and needs one too")
    if config.security_token and not config.access_key:
        raise ConfigError(
            "access_key", config.access_key, "security_token is given: it needs the keys too"
        )
    if config.tls_key_file and not config.tls_cert_file:
        raise ConfigError("tls_cert_file", None, "tls_key_file is given: its certificate, too")


def _address_server_url(server: str, unit_name: str | None) -> str:
    """MixAll.getWSAddr and DefaultTopAddressing.fetchNSAddr."""
    url = server
    if not server.startswith(("http://", "https://")):
        if "/" in server or not server.strip():
            raise ConfigError(
                "address_server",
                server,
                "a URL such as 'http://example.com:8080/rocketmq/nsaddr', a host, or host:port",
            )
        host = server if ":" in server else f"{server}:8080"
        url = f"http://{host}/rocketmq/nsaddr"
    return f"{url}-{unit_name}?nofix=1" if unit_name else url


def _no_such_setting(name: str, config_type: type[ClientConfig]) -> str:
    close = difflib.get_close_matches(name, config_type.__struct_fields__, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{config_type.__name__} has no such setting{hint}"


def _explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """The setting and what it may be, from ``Expected `int` >= 1 - at `$.send_timeout_ms```."""
    text, _, path = str(error).partition(" - at ")
    name = re.search(r"\$\.(\w+)", path)
    return name.group(1) if name else "settings", text.replace("`", "")
