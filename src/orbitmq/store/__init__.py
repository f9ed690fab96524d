"""The store: commit log, consume queues and their recovery, in Apache RocketMQ's own format.

Knows files and records, nothing of the network. MessageStore is the way in.
"""

from __future__ import annotations
