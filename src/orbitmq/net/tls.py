"""TLS on either side of a connection, from PEM files, as Java's TlsSystemConfig and TlsHelper.

Where Java trusts any certificate unless told otherwise, a client here verifies as soon as it is
given a CA; without one it encrypts, but does not know to whom.
"""

from __future__ import annotations

import ssl
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import ConfigError

HANDSHAKE_SECONDS: Final = 10.0
"""How long a client may take for its handshake."""
SHUTDOWN_SECONDS: Final = 1.0
"""How long the peer may take to say good-bye, before the connection is just closed."""
HANDSHAKE_BYTE: Final = b"\x16"
"""What every TLS connection begins with, and no frame of the remoting protocol can."""


class ClientTls(msgspec.Struct, frozen=True, kw_only=True):
    """How a client speaks TLS (Java's ``tls.client.*`` properties)."""

    ca_file: str | None = None
    """PEM file of the certificates it trusts (trustCertPath)."""
    cert_file: str | None = None
    """PEM file of its own certificate, for servers that ask for one (certPath)."""
    key_file: str | None = None
    """PEM file of its private key (keyPath). Default: the key is in ``cert_file``."""
    key_password: str | None = None
    """What its private key is encrypted with (keyPassword)."""
    verify: bool | None = None
    """Whether the server's certificate must be signed by whom it trusts (authServer). Default:
    where a ``ca_file`` is given. True without one trusts whom the system trusts."""
    check_hostname: bool = False
    """Whether that certificate must name the host connected to; Java's client does not look."""

    @property
    def verifies(self) -> bool:
        """Whether an unknown server is refused."""
        return self.ca_file is not None if self.verify is None else self.verify

    def __repr__(self) -> str:
        return f"ClientTls(ca_file={self.ca_file!r}, verifies={self.verifies})"

    def context(self) -> ssl.SSLContext:
        """The context of this client's connections. Raises ConfigError naming the setting."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_hostname and self.verifies
        if not self.verifies:
            context.verify_mode = ssl.CERT_NONE
        elif self.ca_file is not None:
            _trust(context, "tls_ca_file", self.ca_file)
        else:
            context.load_default_certs()
        if self.cert_file is not None:
            _load_own(context, self.cert_file, self.key_file, self.key_password)
        return context


class TlsMode(Enum):
    """Which connections a server takes (Java's ``TlsMode``)."""

    DISABLED = "disabled"
    """Plain ones only."""
    PERMISSIVE = "permissive"
    """Both: the first byte tells which it is."""
    ENFORCING = "enforcing"
    """Those over TLS only."""


class ClientAuth(Enum):
    """Whether a server asks clients for a certificate (tls.server.need.client.auth)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class ServerTls(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker and its name server speak TLS (Java's ``tls.server.*`` properties)."""

    cert_file: str | Path
    """PEM file of the certificate, and those between it and a CA (tls.server.certPath)."""
    key_file: str | Path | None = None
    """PEM file of the private key (tls.server.keyPath). Default: the key is in ``cert_file``."""
    key_password: str | None = None
    """What the private key is encrypted with (tls.server.keyPassword)."""
    mode: TlsMode = TlsMode.PERMISSIVE
    """Which connections are taken (tls.server.mode)."""
    client_auth: ClientAuth = ClientAuth.NONE
    """Whether clients are asked for a certificate (tls.server.need.client.auth)."""
    ca_file: str | Path | None = None
    """PEM file of whom their certificates must be signed by (tls.server.trustCertPath)."""

    def __post_init__(self) -> None:
        if self.client_auth is not ClientAuth.NONE and self.ca_file is None:
            raise ConfigError(
                "client_auth",
                self.client_auth.value,
                "certificates of clients are verified: give the ca_file that signed them",
            )

    def __repr__(self) -> str:
        return f"ServerTls(cert_file={str(self.cert_file)!r}, mode={self.mode.value!r})"

    def context(self) -> ssl.SSLContext:
        """The context of the server's connections. Raises ConfigError naming the setting."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.ca_file is not None:
            _trust(context, "ca_file", str(self.ca_file))
        context.verify_mode = _VERIFY_MODES[self.client_auth]
        key_file = None if self.key_file is None else str(self.key_file)
        _load_own(context, str(self.cert_file), key_file, self.key_password)
        return context


def describe_failure(error: OSError) -> str:
    """What went wrong with TLS, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); give the CA that signed it "
            "as tls_ca_file, or check that this is the right server"
        )
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused; check the address, and that the server runs"
    return f"TLS failed ({error.strerror or error}); check that the server takes TLS"


def _trust(context: ssl.SSLContext, setting: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:  # an SSLError is one too
        raise ConfigError(
            setting, path, f"a PEM file of certificates ({error.strerror or error})"
        ) from error


def _load_own(
    context: ssl.SSLContext, cert_file: str, key_file: str | None, password: str | None
) -> None:
    for setting, path in (("tls_cert_file", cert_file), ("tls_key_file", key_file)):
        if path is not None and not Path(path).is_file():
            raise ConfigError(setting, path, "there is no such file; give the path of a PEM file")
    try:
        context.load_cert_chain(cert_file, key_file, password or "")
    except OSError as error:
        raise ConfigError(
            "tls_cert_file",
            cert_file,
            f"with the key in {key_file or cert_file} this is no certificate and its private key, "
            f"or tls_key_password does not fit ({error.strerror or error})",
        ) from error
