"""Small files of a client's own: offsets, and how far an archive or a replay has come."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of ``path``, so that a crash leaves the old or the new, whole."""
    new = path.with_name(path.name + ".tmp")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_file(path.parent)


def sync_file(path: Path) -> None:
    """Have what is in a file, or the names in a directory, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
