"""The request frames that load generators send, made once and sent again and again."""

from __future__ import annotations

import time
from itertools import accumulate

from benchmarks.plan import QUEUES, Plan
from orbitmq.codes import RequestCode
from orbitmq.wire.command import encode_request
from orbitmq.wire.headers import (
    CreateTopicRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
    TopicQueueRequestHeader,
)
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import encode_batch

HOLD_MS = 600_000
"""For how long a held pull waits: longer than anything that is measured."""
MOST_FRAMES = 12_500
"""Pull requests that are walked over; more take memory and tell no more."""
_COMMIT, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
_MARK = 1_234_567_890_123


class Frames:
    """Requests to be sent again and again, in turn, as slices of one buffer."""

    def __init__(self, frames: list[bytes], window: int) -> None:
        turns = frames * (1 + -(-window // len(frames)))
        self._bytes = memoryview(b"".join(turns))
        self._starts = list(accumulate(map(len, turns), initial=0))
        self._count = len(frames)
        self._next = 0

    def take(self, count: int) -> memoryview:
        """The next ``count`` requests, a window of them at most."""
        first = self._next
        self._next = (first + count) % self._count
        return self._bytes[self._starts[first] : self._starts[first + count]]


class Template:
    """A request in whose header one number, ``mark`` in ``frame``, is another each time."""

    def __init__(self, frame: bytes, mark: int) -> None:
        end = 8 + int.from_bytes(frame[5:8])
        self._before, self._after = frame[8:end].split(b"%d" % mark)
        self._body = frame[end:]

    def fill(self, number: int) -> bytes:
        """The request with this number."""
        header = b"%b%d%b" % (self._before, number, self._after)
        length = len(header)
        whole = 4 + length + len(self._body)
        return b"%b%b%b%b" % (whole.to_bytes(4), length.to_bytes(4), header, self._body)


def create_topic_frame(topic: str, queues: int = QUEUES) -> bytes:
    """Makes a topic with so many queues."""
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
    )
    return encode_request(RequestCode.UPDATE_AND_CREATE_TOPIC, 1, header)


def max_offset_frame(topic: str) -> bytes:
    """Asks for little."""
    return encode_request(
        RequestCode.GET_MAX_OFFSET, 1, TopicQueueRequestHeader(topic=topic, queue_id=0)
    )


def send_frames(plan: Plan) -> list[bytes]:
    """A send request for each queue: one message, or a batch of them."""
    body = b"x" * plan.body
    return [send_frame(topic, queue, plan.size, body) for topic, queue in plan.targets()]


def send_frame(
    topic: str, queue: int, batch: int = 0, body: bytes = b"x" * 100, opaque: int | None = None
) -> bytes:
    """One send request; its opaque is the queue if no other is given."""
    if opaque is None:
        opaque = queue
    properties = encode_properties(
        {"KEYS": "key-000001", "UNIQ_KEY": "7F0000010B7763947C65000A7D0C0000", "WAIT": "true"}
    )
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=properties.decode(),
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=0,
        batch=bool(batch),
    )
    if not batch:
        return encode_request(RequestCode.SEND_MESSAGE_V2, opaque, header, body)
    bodies = encode_batch([(0, body, properties)] * batch)
    return encode_request(RequestCode.SEND_BATCH_MESSAGE, opaque, header, bodies)


def numbered_sends(topic: str, queues: int, body: bytes) -> list[Template]:
    """For each queue a send request whose opaque is the number."""
    return [
        Template(send_frame(topic, queue, body=body, opaque=_MARK), _MARK)
        for queue in range(queues)
    ]


def pull_frames(plan: Plan) -> list[bytes]:
    """Pull requests that walk over all queues, ``plan.size`` messages each, group after group."""
    targets = plan.targets()
    each = plan.filled // len(targets)
    step = max(plan.size, plan.filled // MOST_FRAMES)
    places = [(*at, offset) for offset in range(0, each - plan.size + 1, step) for at in targets]
    if not places:
        raise ValueError(f"{each} messages a queue are too few for pulls of {plan.size}")
    frames = []
    for number in range(max(len(places), plan.groups)):
        topic, queue, offset = places[number % len(places)]
        group = f"bench-pull-{number % plan.groups}"
        frames.append(pull_frame(group, topic, queue, offset, plan.size, commit=plan.groups > 1))
    return frames


def held_pulls(topic: str, queue: int, size: int, group: str = "bench-held") -> Template:
    """Pulls of one queue that wait for messages; the number is the offset, the opaque the queue."""
    return Template(pull_frame(group, topic, queue, _MARK, size, hold=True), _MARK)


def pull_frame(
    group: str,
    topic: str,
    queue: int,
    offset: int,
    size: int,
    *,
    hold: bool = False,
    commit: bool = False,
) -> bytes:
    """One pull request, whose opaque is the queue; with ``commit`` it tells how far a group got."""
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=queue,
        queue_offset=offset,
        max_msg_nums=size,
        max_msg_bytes=16 << 20,
        sys_flag=_SUBSCRIPTION | (_SUSPEND if hold else 0) | (_COMMIT if commit else 0),
        commit_offset=0,
        suspend_timeout_millis=HOLD_MS if hold else 0,
        subscription="*",
        sub_version=1,
        expression_type="TAG",
    )
    return encode_request(RequestCode.PULL_MESSAGE, queue, header)
