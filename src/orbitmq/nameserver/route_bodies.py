"""Routes as they are answered, encoded once: each client asks for each of its topics every 30 s."""

from __future__ import annotations

from typing import Final

from orbitmq.wire.bodies import TopicRouteData

MOST_BYTES: Final = 64 << 20
"""How long the bodies that are kept may be together: those of 100,000 topics and more."""


class RouteBodies:
    """The bodies of routes, each kept for as long as its topic's route is the same object."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, bool], tuple[TopicRouteData, bytes]] = {}
        self._size = 0

    def body(self, topic: str, route: TopicRouteData, *, standard: bool) -> bytes:
        """The body with the route of ``topic``, as standard JSON or not."""
        key = topic, standard
        known = self._bodies.get(key)
        if known is not None:
            if known[0] is route:
                return known[1]
            self._size -= len(known[1])
        body = route.encode(standard=standard)
        if self._size + len(body) > MOST_BYTES:
            self._bodies.clear()
            self._size = 0
        self._bodies[key] = route, body
        self._size += len(body)
        return body
