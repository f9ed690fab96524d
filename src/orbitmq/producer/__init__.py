"""Producers: a message's way from the user's hand to the broker's answer."""

from __future__ import annotations
