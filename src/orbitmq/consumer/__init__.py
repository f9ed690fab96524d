"""Consumers: a group and its queues, pulling, offsets; who takes the messages has a room each."""

from __future__ import annotations
