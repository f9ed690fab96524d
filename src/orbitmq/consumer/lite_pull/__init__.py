"""The lite pull consumer: messages are pulled ahead, and polled."""

from __future__ import annotations
