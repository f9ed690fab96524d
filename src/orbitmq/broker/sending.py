"""What sending a message means: which topic and queue take it, and what is stored.

Knows neither sockets nor header letters. What it appends is staged in the store, and written when
the tick of the broker ends. Follows SendMessageProcessor, AbstractSendMessageProcessor and
HookUtils. Most messages are stored as they come: those of a turn go through
:meth:`Sending.send_plain` together, the others one by one through :meth:`Sending.send`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from orbitmq import codes
from orbitmq.broker.admission import check_admitted
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.deferring import Deferring, delay_level
from orbitmq.broker.retry import Retrying
from orbitmq.broker.timer_messages import TIMERS
from orbitmq.broker.topics import (
    PERM_WRITE,
    UNIT_SUB_TOPIC,
    UNIT_TOPIC,
    TopicTable,
    any_queue,
)
from orbitmq.broker.transaction_metrics import TransactionMetrics
from orbitmq.broker.transactions import ROOM_FOR_CHECKS, make_half
from orbitmq.errors import BrokerError, RecordError
from orbitmq.names import HALF_TOPIC, RETRY_PREFIX, UNSENDABLE_TOPICS
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.ids import create_unique_id, tags_code
from orbitmq.wire.plain_sends import Noted, SendRules
from orbitmq.wire.properties import (
    CLUSTER,
    DELAY,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    POP_CK,
    TAGS,
    TRACE_SWITCH,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
    find_property,
)
from orbitmq.wire.record import MULTI_TAGS, Draft
from orbitmq.wire.response_template import ResponseTemplate

_SPECIAL: Final = (DELAY, TRANSACTION_PREPARED, "TIMER_DELIVER", POP_CK)
_MULTI_TAG: Final = "MULTI_TAG"


class SendRequest(Protocol):
    """A message to be stored, without its body, as both send headers and others describe it."""

    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None
    reconsume_times: int | None
    unit_mode: bool | None
    max_reconsume_times: int | None


class Placed(msgspec.Struct, gc=False):
    """Where a message will be once the tick is written.

    ``queue_id`` is the one sent to, even where a delayed message waits elsewhere first.
    ``recall_handle`` is by what a message with a timer can be recalled.
    """

    queue_id: int
    queue_offset: int
    physical_offset: int
    unique_key: str
    recall_handle: str | None = None


class PlacedBatch(msgspec.Struct, gc=False):
    """Where the messages of a batch will be; ``unique_key`` is the batch's own, if it has one."""

    queue_id: int
    queue_offset: int
    physical_offsets: list[int]
    unique_key: str | None


class Sending:
    """Takes in messages. ``store_host`` is this broker's address as records hold it.

    ``half_messages`` counts those of transactions that are open.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        retrying: Retrying,
        deferring: Deferring,
        half_messages: TransactionMetrics,
        store_host: bytes,
    ) -> None:
        self._store = store
        self._half_messages = half_messages
        self._deferring = deferring
        self._topics = topics
        self._retrying = retrying
        self._store_host = store_host
        self.renew(config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._config = config
        self._is_read_only = not config.broker_permission & PERM_WRITE
        self._reject_transactions = config.reject_transaction_messages
        self._max_body = config.store_config.max_message_size
        self._own_properties = {
            CLUSTER: config.cluster_name,
            MSG_REGION: config.region_id,
            TRACE_SWITCH: "true" if config.trace_on else "false",
        }

    def plain_rules(self, answer: ResponseTemplate) -> SendRules:
        """What send_plain() is to go by, from now on; ``answer`` makes the answers."""
        suffix = encode_properties(self._own_properties).decode()
        return SendRules(
            self._store_host, suffix, self._max_body, _SPECIAL, answer.text, answer.parts
        )

    def send_plain(
        self, noted: Sequence[Noted], first: int, rules: SendRules
    ) -> list[bytes | None]:
        """Stage messages from the ``first`` on that are stored as they come: their answers.

        It ends at one that needs send() or send_batch(). Raises StoreError, for all.
        """
        return self._store.append_plain(noted, first, rules, self._find_plain)

    def send(self, request: SendRequest, body: bytes | memoryview, born_host: bytes) -> Placed:
        """Stage one message, whatever it asks for. Raises BrokerError when it is refused."""
        topic, queue_id = self._place(request, len(body))
        properties = decode_properties((request.properties or "").encode())
        properties.pop(POP_CK, None)
        properties.update(self._own_properties)
        unique_key = properties.get(UNIQ_KEY)
        if unique_key is None:
            unique_key = properties[UNIQ_KEY] = create_unique_id()
        draft = Draft(
            request.topic,
            queue_id,
            body,
            b"",
            tags_code(properties.get(TAGS)),
            request.flag,
            _sys_flag(request, topic),
            request.born_timestamp,
            born_host,
            self._store_host,
            request.reconsume_times or 0,
        )
        if draft.topic.startswith(RETRY_PREFIX) and self._retrying.is_exhausted(
            draft, request.max_reconsume_times
        ):
            self._retrying.give_up(draft, properties)
        level = delay_level(properties)
        is_retry = draft.reconsume_times > 0 and level > 0  # of a client before 4.6.1
        if properties.get(TRANSACTION_PREPARED, "").lower() == "true" and not is_retry:
            self._check_half(properties, level)
            make_half(draft, properties)
        else:
            self._deferring.defer(draft, properties)
        draft.properties = encode_properties(properties)
        size = len(draft.properties)
        if draft.topic == HALF_TOPIC:
            size += ROOM_FOR_CHECKS
        if size > MAX_PROPERTIES_BYTES:
            raise _too_many_properties(size)
        placed = self._store.append(draft)
        if draft.topic == HALF_TOPIC:
            self._half_messages.add(request.topic, 1)
        return Placed(
            queue_id,
            placed.queue_offset,
            placed.physical_offset,
            unique_key,
            self._deferring.recall_handle(properties),
        )

    def send_batch(
        self, request: SendRequest, body: bytes | memoryview, born_host: bytes
    ) -> PlacedBatch:
        """Stage the messages of a batch, all or none. Raises BrokerError when it is refused.

        Unlike a single message's, their properties are stored as they are, as Java's broker does
        (MessageStore.append says when not).
        """
        topic, queue_id = self._place(request, len(body))
        name = request.topic
        batch_properties = (request.properties or "").encode()
        if name.startswith(RETRY_PREFIX) or find_property(batch_properties, DELAY):
            raise _illegal(
                f"the batch to {name} is refused: neither retry topics nor delays go with a "
                "batch; send its messages one by one"
            )
        if not body:
            raise _illegal(f"the batch to {name} is empty: put a message into it")
        common = Draft(
            name,
            queue_id,
            b"",
            b"",
            0,
            0,
            _sys_flag(request, topic),
            request.born_timestamp,
            born_host,
            self._store_host,
            request.reconsume_times or 0,
        )
        try:
            placed = self._store.append_batch(common, bytes(body))
        except RecordError as error:
            raise _illegal(f"the batch to {name} cannot be read: {error}") from error
        return PlacedBatch(
            queue_id,
            placed.queue_offset,
            placed.physical_offsets,
            find_property(batch_properties, UNIQ_KEY),
        )

    def _check_half(self, properties: dict[str, str], level: int) -> None:
        """Raise BrokerError for a message whose transaction cannot be begun.

        Apache's brokers take a delayed one, and lose it when it is due.
        """
        if self._reject_transactions:
            raise BrokerError(
                codes.NO_PERMISSION,
                "this broker takes no messages of transactions (rejectTransactionMessage): send "
                "to another, or without a transaction",
            )
        if level > 0 or any(name in properties for name in TIMERS):
            raise _illegal(
                "a message of a transaction cannot be delayed: send it without a delay, or without "
                "a transaction"
            )

    def queue_for(self, request: SendRequest, size: int) -> int:
        """The queue of a message of ``size`` bytes. Raises BrokerError when it is refused."""
        return self._place(request, size)[1]

    def _place(self, request: SendRequest, size: int) -> tuple[TopicConfig, int]:
        """The topic, made if need be, and the queue of a message. Raises BrokerError."""
        topic = self._topics.get(request.topic)
        if topic is None or topic.topic_name in UNSENDABLE_TOPICS:
            topic = self._admit(request)
        if topic.attributes or not topic.perm & PERM_WRITE or self._is_read_only:
            check_admitted(topic, request.properties or "", self._config)
        if size > self._max_body:
            raise self._too_long(size)
        queue_id = request.queue_id
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = _other_queue(queue_id, topic)
        return topic, queue_id

    def _find_plain(self, name: str) -> tuple[int, int] | None:
        """The number of a topic's queues, and its bits in sysFlag, if it takes what comes."""
        topic = self._topics.get(name)
        if (
            topic is None
            or topic.attributes
            or not topic.perm & PERM_WRITE
            or self._is_read_only
            or name in UNSENDABLE_TOPICS
            or name.startswith(RETRY_PREFIX)
        ):
            return None
        return topic.write_queue_nums, _filter_bits(topic)

    def _admit(self, request: SendRequest) -> TopicConfig:
        """The topic of a message whose topic is unknown, made if it may be, or not to be sent to.

        Raises BrokerError, or IllegalNameError.
        """
        name = request.topic
        if name in UNSENDABLE_TOPICS:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"topic {name} is the broker's own and takes no messages: send to another",
            )
        is_retry = name.startswith(RETRY_PREFIX)
        sys_flag = 0
        if request.unit_mode:
            sys_flag = UNIT_SUB_TOPIC if is_retry else UNIT_TOPIC
        topic = self._topics.create_by_sending(
            name, request.default_topic, request.default_topic_queue_nums, sys_flag
        )
        if topic is None and is_retry:
            topic = self._topics.create_derived(name, 1, sys_flag)
        if topic is None:
            raise BrokerError(
                codes.TOPIC_NOT_EXIST,
                f"topic {name} does not exist, and {request.default_topic!r} is no pattern to make "
                "it from: create the topic first",
            )
        return topic

    def _too_long(self, size: int) -> BrokerError:
        return _illegal(
            f"the message body has {size} bytes, {self._max_body} is the most (maxMessageSize): "
            "compress it, split it, or raise the limit"
        )


def _other_queue(queue_id: int, topic: TopicConfig) -> int:
    """The queue for an id that is not one to write to: any, for a negative one.

    A queue that can only be read still takes what was sent to it. Raises BrokerError for an id
    the topic does not have.
    """
    if queue_id < 0:
        return any_queue(topic)
    limit = max(topic.write_queue_nums, topic.read_queue_nums)
    if queue_id < limit:
        return queue_id
    raise BrokerError(
        codes.INVALID_PARAMETER,
        f"topic {topic.topic_name} has no queue {queue_id}: its queues are 0 to {limit - 1}; ask "
        "for its route again",
    )


def _sys_flag(request: SendRequest, topic: TopicConfig) -> int:
    return request.sys_flag | _filter_bits(topic)


def _filter_bits(topic: TopicConfig) -> int:
    return MULTI_TAGS if topic.topic_filter_type == _MULTI_TAG else 0


def _too_many_properties(size: int) -> BrokerError:
    return _illegal(
        f"the message's properties take {size} bytes, {MAX_PROPERTIES_BYTES} is the most: put "
        "less into keys and properties, or move it into the body"
    )


def _illegal(reason: str) -> BrokerError:
    return BrokerError(codes.MESSAGE_ILLEGAL, reason)
