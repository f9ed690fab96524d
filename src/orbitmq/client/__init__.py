"""The clients: producers and consumers on a private event loop, one per process."""

from __future__ import annotations
