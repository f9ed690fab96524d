"""What a process is given that is a broker and nothing else."""

from __future__ import annotations

import gc

from orbitmq.broker import process


def test_what_is_there_at_the_start_is_not_searched_for_garbage() -> None:
    before = gc.get_freeze_count()
    try:
        process.started()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
