"""The synchronous faces of the clients: they delegate to the private loop and do nothing else.

Each face is used as a context manager, or by ``start`` and ``shutdown``. Any number of threads
may share one. Ctrl-C interrupts whatever waits here.
"""

from __future__ import annotations
