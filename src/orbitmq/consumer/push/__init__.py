"""The push consumer: listeners have messages as they come, concurrently or in order."""

from __future__ import annotations
