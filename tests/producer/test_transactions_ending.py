"""Transactions of processes that fork, or end without a shutdown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from tests.producer.test_transactions import delivered, has_ended

FORKS = """
import os, sys
from orbitmq import Message, TransactionProducer

with TransactionProducer("shop", name_server=sys.argv[1]) as producer:
    with producer.transaction(Message("orders", b"x")):
        child = os.fork()
        if child == 0:
            raise ValueError("in the child, which rolls nothing back")
        os.waitpid(child, 0)
"""
ENDS = """
import sys
from orbitmq import Message, TransactionProducer

producer = TransactionProducer("shop", name_server=sys.argv[1])
producer.start()
with producer.transaction(Message("orders", b"x")):
    pass
"""


@pytest.mark.parametrize("program", [FORKS, ENDS])
def test_it_commits(broker: EmbeddedBroker, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, broker.name_server],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": "src:."},
    )
    assert done.returncode == 0, done.stderr
    has_ended(broker)
    assert delivered(broker) == [b"x"]
