"""What every request of a client says of its sender: fields of its own, and the ACL signature.

Java hangs such things into its remoting client as RPC hooks; here one RpcHook does for all. The
signature is that of AclClientRPCHook, the same in RocketMQ 4.9 and 5: HmacSHA1, by the secret key,
over the values of all extFields in the order of their names, then the body; base64 of that goes
along as one more field. Brokers compute it anew (PlainAccessValidator, in 5.x
DefaultAuthenticationProvider), so what is signed must be exactly what is sent.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from orbitmq.wire.command import Header

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - a field's name
SIGNATURE: Final = "Signature"
REQUEST_TYPE: Final = "ReqT"
"""The field that says what kind of client asks (MixAll.REQ_T)."""
STREAM: Final = "0"
"""Its value for one that reads a stream (RequestType.STREAM)."""
NAMESPACED: Final = "nsd"
"""The field that says a namespace is told (MixAll.RPC_REQUEST_HEADER_NAMESPACED_FIELD)."""
NAMESPACE: Final = "ns"
"""The field that tells it."""

Fields: TypeAlias = Header | Mapping[str, str] | None
"""The extFields of a request, as its sender gives them."""


class Credentials(msgspec.Struct, frozen=True):
    """Who a client is to brokers that ask (Java's ``SessionCredentials``); secrets stay unseen."""

    access_key: str
    """The name of the account."""
    secret_key: str
    """What it signs with; never sent."""
    security_token: str | None = None
    """Sent along, and signed, where the account is a temporary one."""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"


class RpcHook:
    """Adds ``fields`` to each request, and with ``credentials`` who signs it and the signature.

    It keeps no state between requests.
    """

    __slots__ = ("_mac", "fields")

    def __init__(
        self, fields: Mapping[str, str] | None = None, credentials: Credentials | None = None
    ) -> None:
        self.fields = dict(fields or {})
        """What it adds, but for the signature, which differs from request to request."""
        self._mac: hmac.HMAC | None = None
        if credentials is not None:
            self.fields[ACCESS_KEY] = credentials.access_key
            if credentials.security_token is not None:
                self.fields[SECURITY_TOKEN] = credentials.security_token
            self._mac = hmac.new(credentials.secret_key.encode(), digestmod="sha1")

    @property
    def signs(self) -> bool:
        """Whether there are credentials to sign with."""
        return self._mac is not None

    def apply(self, header: Fields, body: bytes | memoryview) -> dict[str, str]:
        """The extFields of a request, its own and those added here."""
        own = header.ext_fields() if isinstance(header, Header) else header
        fields = {**own, **self.fields} if own else dict(self.fields)
        if self._mac is not None:
            fields[SIGNATURE] = self.signature(signed_text(fields), body)
        return fields

    def signature(self, text: str, body: bytes | memoryview) -> str:
        """The signature of a request by its :func:`signed_text` and body (AclSigner).

        Only to be asked of a hook that signs.
        """
        assert self._mac is not None  # noqa: S101 - see above
        mac = self._mac.copy()
        mac.update(text.encode())
        mac.update(body)
        return b2a_base64(mac.digest(), newline=False).decode()


def signed_text(fields: Mapping[str, str]) -> str:
    """What is signed of the extFields: their values, without names, in the order of the names.

    AclUtils.combineRequestContent of AclClientRPCHook.parseRequestContent; a signature that is
    among them already is left out.
    """
    return "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
