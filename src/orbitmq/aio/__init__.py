"""The faces of the clients for coroutines, on whatever loop these run."""

from __future__ import annotations
