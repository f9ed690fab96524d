"""The pull consumer: the user pulls, and keeps the offsets."""

from __future__ import annotations
