"""How many files and connections this process may have open, and who gets how many of them.

The operating system counts both together (RLIMIT_NOFILE, ``ulimit -n``). A broker whose clients
take them all can neither read nor save, so connections leave a part of them free.
"""

from __future__ import annotations

import logging
import resource
import sys
from typing import Final

log = logging.getLogger("orbitmq.descriptors")

_MOST_RESERVED: Final = 2048


def limit() -> int:
    """How many descriptors this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def reserve() -> int:
    """How many of them connections leave to files: a quarter, at most 2,048."""
    return min(limit() // 4, _MOST_RESERVED)


def queue_files() -> int:
    """How many queue files a store keeps open for reading: half of that reserve."""
    return max(1, reserve() // 2)


def raise_limit() -> None:
    """Raise the limit as far as this user may, for a process that is a broker and nothing else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning(
            "the limit of open files and connections stays at %d (%s): raise it by 'ulimit -n'",
            soft, error,
        )  # fmt: skip
