"""What brokers and name servers of this process are asked."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

import pytest

from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Dispatcher
from orbitmq.wire.command import RemotingCommand

ACCOUNT = {"access_key": "account", "secret_key": "secret", "security_token": "token"}


class Seen(NamedTuple):
    """A request that a broker or name server got, from where, and on which port."""

    command: RemotingCommand
    peer: str
    port: int


def watch_requests(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """Every request that a broker or name server of this process gets from now on."""
    seen: list[Seen] = []
    dispatch = Dispatcher.dispatch

    def watch(self: Dispatcher, command: RemotingCommand, connection: Connection) -> None:
        port = connection._transport.get_extra_info("sockname")[1]
        seen.append(Seen(command, connection.peer, port))
        dispatch(self, command, connection)

    monkeypatch.setattr(Dispatcher, "dispatch", watch)
    return seen


def is_signed(command: RemotingCommand) -> bool:
    """Whether a request is signed by ACCOUNT, computed without OrbitMQ's help."""
    fields = command.ext_fields
    signature = fields.pop("Signature", "")
    text = "".join(value for _, value in sorted(fields.items())).encode()
    digest = hmac.new(b"secret", text + bytes(command.body), hashlib.sha1).digest()
    return (
        base64.b64encode(digest).decode() == signature
        and fields["AccessKey"] == "account"
        and fields["SecurityToken"] == "token"
    )
