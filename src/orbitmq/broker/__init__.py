"""The broker: what sending, pulling, committing and locking mean, and how it is asked for them.

Services (sending.py, pulling.py, retry.py, schedule.py) and tables (topics.py, clients.py, ...)
know neither sockets nor headers; handlers/ translates requests into calls of theirs; server.py
and node.py run them.
"""

from __future__ import annotations
