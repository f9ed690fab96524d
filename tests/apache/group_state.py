"""A group as its members and its brokers see it, told when something awaited did not come true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.apache import remoting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.apache.orbit import Cluster
    from tests.consumer_program import ConsumerMarks, Queue


def describe_group(
    cluster: Cluster, topic: str, group: str, queues: int, members: Sequence[ConsumerMarks]
) -> str:
    """Who has and wants which queues of a topic, `queues` a broker; whose locks brokers keep.

    `members` are those of now and of before.
    """
    lines = [f"group {group}"]
    for member in members:
        lines += _member(cluster, topic, group, member)
    everybody = [member.client_id for member in members if member.client_id]
    for broker in cluster.brokers:
        ids = _asked(remoting.consumer_ids, broker.address, group)
        lines.append(f"{broker.name} has the members {ids}")
        holders = _asked(
            *(remoting.lock_holders, broker.address, broker.name),
            *(group, topic, queues, everybody),
        )
        lines.append(f"{broker.name} has the locks {holders}")
    return "\n".join(lines)


def _member(cluster: Cluster, topic: str, group: str, member: ConsumerMarks) -> list[str]:
    state = "running" if member.process.poll() is None else f"ended: {member.process.returncode}"
    lines = [f"{member.name} {member.client_id or 'not started'}, {state}"]
    lines.append(f"  tells that it has {_names(member.queues)}")
    wanted = member.values("wanted")
    if wanted:
        lines.append(f"  tells that it wants {_names(map(tuple, wanted[-1]))}")
    if member.process.poll() is None and member.client_id:
        address = cluster.brokers[0].address
        held = _asked(remoting.held_queues, address, group, member.client_id, topic)
        lines.append(f"  answers that it has {held}")
        lines += [f"  | {line}" for line in member.tail().splitlines()]
    return lines


def _asked(ask: Callable[..., object], *arguments: object) -> object:
    """The answer, or why there is none: what else is known shall be told too."""
    try:
        return ask(*arguments)
    except (OSError, remoting.RemotingCallError) as failure:
        return f"unknown: {failure}"


def _names(queues: Iterable[Queue]) -> str:
    return " ".join(f"{broker}/{number}" for broker, number in sorted(queues)) or "none"
