"""Connections: the remoting protocol over asyncio, and over plain sockets for Spark's tasks."""

from __future__ import annotations
