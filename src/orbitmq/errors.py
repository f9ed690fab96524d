"""Every error OrbitMQ raises, as one tree.

OrbitMQError
├── ConfigError                a setting, its value, and what is allowed
├── IllegalNameError           a topic or group name RocketMQ refuses
├── InvalidMessageError        a message that cannot be sent
├── RowError                   a row of a Spark write that was not sent, the first one
├── ClientStateError           a call that does not fit the client's state
├── WireError                  bytes that are not the protocol
│   ├── FrameError                 a frame's length or layout
│   ├── HeaderError                a command's header or one of its fields
│   ├── BodyError                  a command's body
│   └── RecordError                a commit-log record
├── NetworkError               the peer was not reached, or did not answer
│   ├── ConnectError
│   ├── ConnectionLostError
│   └── RequestTimeoutError
│       └── ReplyTimeoutError          to a request that was sent
├── PartialFailureError        some of the servers an admin client asked did not do it
├── BrokerError                the peer answered with an error code
│   ├── AuthenticationError        it does not believe who asks, or does not let them
│   ├── TopicNotFoundError, SystemBusyError, ...   by code, see for_code()
├── StoreError                 the store directory
│   ├── StoreLockedError
│   ├── DiskFullError
│   └── CorruptStoreError
└── WorkerError                a worker process of a broker
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from orbitmq import codes


class OrbitMQError(Exception):
    """Anything OrbitMQ raises on purpose."""


class ConfigError(OrbitMQError, ValueError):
    """A setting has a value it may not have.

    Attributes: ``name`` of the setting, the offending ``value``, and what is ``allowed``.
    """

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is not allowed: {allowed}")
        self.name = name
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str]]:
        return type(self), (self.name, self.value, self.allowed)


class IllegalNameError(OrbitMQError, ValueError):
    """A topic or group name that RocketMQ refuses; the text says which character or length."""


class InvalidMessageError(OrbitMQError, ValueError):
    """A message that cannot be sent as it is, such as one over the size limit."""


class RowError(OrbitMQError):
    """A row that a Spark task could not send: the first one, the reason is its ``__cause__``."""


class ClientStateError(OrbitMQError, RuntimeError):
    """A call that does not fit the client's state: not started, started twice, closed."""


class WireError(OrbitMQError, ValueError):
    """Bytes that do not follow the RocketMQ protocol."""


class FrameError(WireError):
    """A frame whose length or layout is impossible. The connection cannot go on after it."""


class HeaderError(WireError):
    """A command header, or one of its fields, that cannot be read."""


class BodyError(WireError):
    """A command body that cannot be read."""


class RecordError(WireError):
    """Bytes that are not a whole commit-log record."""


class NetworkError(OrbitMQError):
    """The peer was not reached or did not answer; ``address`` names it.

    ``retriable`` is true: another broker, or the same one later, may answer.
    """

    retriable = True

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.address = address

    def __reduce__(self) -> tuple[type[NetworkError], tuple[str, str]]:
        return type(self), (str(self), self.address)


class ConnectError(NetworkError):
    """No connection could be made."""


class ConnectionLostError(NetworkError):
    """The connection ended before the answer came."""


class RequestTimeoutError(NetworkError):
    """No answer came in time; whether the peer carried out the request is not known."""


class PartialFailureError(OrbitMQError):
    """Of several servers that were asked at once, some failed; what the others did stays done.

    Attributes: ``result``, what the call returns when nobody fails, made of the answers that came;
    ``failures``, the error of each server that failed, by its address.
    """

    def __init__(self, result: object, failures: Mapping[str, OrbitMQError]) -> None:
        told = "; ".join(f"{address}: {error}" for address, error in failures.items())
        super().__init__(f"{len(failures)} of the servers asked failed: {told}")
        self.result = result
        self.failures = dict(failures)

    def __reduce__(
        self,
    ) -> tuple[type[PartialFailureError], tuple[object, dict[str, OrbitMQError]]]:
        return type(self), (self.result, self.failures)


class ReplyTimeoutError(RequestTimeoutError):
    """A request was sent, and no reply came in time (Java's ``RequestTimeoutException``).

    ``response_code`` is Java's for it.
    """

    response_code = codes.REQUEST_TIMEOUT_EXCEPTION


class BrokerError(OrbitMQError):
    """The broker or name server answered with an error.

    Attributes: ``code`` (a :mod:`orbitmq.codes` response code), ``remark`` (the peer's own
    words), ``address`` of the peer. ``retriable`` says whether sending the same request again, to
    this or another broker, may succeed (DefaultMQProducer.retryResponseCodes); ``refresh_route``
    whether the topic's route must be fetched anew first.
    """

    retriable = False
    refresh_route = False

    def __init__(self, code: int, remark: str | None, address: str = "") -> None:
        name = codes.response_name(code)
        where = f" from {address}" if address else ""
        super().__init__(f"{name} ({code}){where}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address

    def __reduce__(self) -> tuple[type[BrokerError], tuple[int, str, str]]:
        return type(self), (self.code, self.remark, self.address)


class BrokerInternalError(BrokerError):
    """SYSTEM_ERROR (1): the broker failed while it carried out the request."""

    retriable = True


class SystemBusyError(BrokerError):
    """SYSTEM_BUSY (2): the broker sheds load; try again a little later."""

    retriable = True


class RequestNotSupportedError(BrokerError):
    """REQUEST_CODE_NOT_SUPPORTED (3): the peer does not know this request."""


class MessageIllegalError(BrokerError):
    """MESSAGE_ILLEGAL (13): the broker refuses this message."""


class ServiceUnavailableError(BrokerError):
    """SERVICE_NOT_AVAILABLE (14): the store cannot take writes now, for example a full disk."""

    retriable = True


class NoPermissionError(BrokerError):
    """NO_PERMISSION (16): the topic or the broker may not be written or read."""

    retriable = True
    refresh_route = True


class AuthenticationError(BrokerError):
    """SYSTEM_ERROR (1) or NO_PERMISSION (16) with a remark that it is about who asks.

    ``access_key`` is the account that signed the request, None where nobody did.
    """

    def __init__(
        self, code: int, remark: str | None, address: str = "", access_key: str | None = None
    ) -> None:
        super().__init__(code, remark, address)
        self.access_key = access_key
        remedy = (
            "the request was not signed: give access_key and secret_key"
            if access_key is None
            else f"the request was signed by access_key={access_key!r}: check its secret_key, and "
            "what the broker allows this account"
        )
        self.args = (f"{self.args[0]}; {remedy}",)

    def __reduce__(self) -> tuple[type[BrokerError], tuple[int, str, str, str | None]]:  # type: ignore[override]
        return type(self), (self.code, self.remark, self.address, self.access_key)


class TopicNotFoundError(BrokerError):
    """TOPIC_NOT_EXIST (17): no route, or the broker does not have the topic."""

    retriable = True
    refresh_route = True


class QueryNotFoundError(BrokerError):
    """QUERY_NOT_FOUND (22): the broker has no value, such as no offset of this group yet."""


class SubscriptionError(BrokerError):
    """SUBSCRIPTION_PARSE_FAILED, _NOT_EXIST, _NOT_LATEST (23, 24, 25)."""


_BY_CODE: dict[int, type[BrokerError]] = {
    codes.SYSTEM_ERROR: BrokerInternalError,
    codes.SYSTEM_BUSY: SystemBusyError,
    codes.REQUEST_CODE_NOT_SUPPORTED: RequestNotSupportedError,
    codes.MESSAGE_ILLEGAL: MessageIllegalError,
    codes.SERVICE_NOT_AVAILABLE: ServiceUnavailableError,
    codes.NO_PERMISSION: NoPermissionError,
    codes.TOPIC_NOT_EXIST: TopicNotFoundError,
    codes.QUERY_NOT_FOUND: QueryNotFoundError,
    codes.SUBSCRIPTION_PARSE_FAILED: SubscriptionError,
    codes.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    codes.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
}


_ABOUT_WHO_ASKS = re.compile(
    r"AclException|username cannot be null|User:.*(?:not found|disabled)|signature failed"
)
"""In remarks of PlainPermissionManager, and of 5.x's DefaultAuthenticationHandler."""


def for_code(
    code: int, remark: str | None, address: str = "", access_key: str | None = None
) -> BrokerError:
    """The error that stands for a response ``code``: its own class, or plain BrokerError.

    ``access_key`` is the account the request was signed by.
    """
    if code in {codes.SYSTEM_ERROR, codes.NO_PERMISSION} and _ABOUT_WHO_ASKS.search(remark or ""):
        return AuthenticationError(code, remark, address, access_key)
    return _BY_CODE.get(code, BrokerError)(code, remark, address)


class StoreError(OrbitMQError):
    """The store directory cannot be used or written; ``path`` names it."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return type(self), (str(self), self.path)


class StoreLockedError(StoreError):
    """Another process uses the store directory."""


class DiskFullError(StoreError):
    """The disk of the store has no room; nothing of the failed write took effect."""


class CorruptStoreError(StoreError):
    """A file of the store has a size or content that cannot be right."""


class WorkerError(OrbitMQError):
    """A worker process of a broker did not start, or did not save everything; the text says why."""


class DataLossError(OrbitMQError):
    """Messages a query was to read are gone; ``failOnDataLoss=false`` goes on without them."""


class ArchiveError(OrbitMQError):
    """A directory is no archive, or not the one meant, or another process works on it."""
