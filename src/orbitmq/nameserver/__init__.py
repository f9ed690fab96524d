"""The name server: which broker has which topics.

RouteTable is the state, NameServer answers requests about it.
"""

from __future__ import annotations
