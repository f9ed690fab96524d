"""Subscription expressions: which messages of a topic a consumer wants.

The broker filters by them before it sends, the client again after it received.
"""

from __future__ import annotations
