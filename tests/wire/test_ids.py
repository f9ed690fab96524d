from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import WireError
from orbitmq.wire.ids import (
    UniqueIdGenerator,
    create_unique_id,
    decode_offset_message_id,
    host_bytes,
    host_text,
    java_hash,
    offset_message_id,
    tags_code,
)

GOLDEN = Path(__file__).parent / "golden"
JUNE_15 = 1_750_000_000_000  # 2025-06-15T15:06:40Z
JUNE_1 = 1_748_736_000_000  # 2025-06-01T00:00:00Z
JULY_1 = 1_751_328_000_000


def golden(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text())["cases"]
    return cases


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("case", golden("record_hashes.json"), ids=lambda case: case["utf16"][:32])
def test_hashes_as_java(case: dict[str, Any]) -> None:
    text = bytes.fromhex(case["utf16"]).decode("utf-16-be", "surrogatepass")
    assert java_hash(text) == case["hash"]
    assert tags_code(text) == case["tags_code"]


def test_no_tags_have_code_0() -> None:
    assert tags_code(None) == 0
    assert tags_code("") == 0
    assert tags_code("TagA") == 2598919


@given(st.text(st.characters()))
def test_hash_is_the_polynomial_over_utf16_units(text: str) -> None:
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    value = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    assert (value - java_hash(text)) % 2**32 == 0
    assert -(2**31) <= java_hash(text) < 2**31


@pytest.mark.parametrize("case", golden("record_offset_ids.json"), ids=lambda case: case["ip"])
def test_offset_message_ids_as_java(case: dict[str, Any]) -> None:
    host = host_bytes(case["ip"], case["port"])
    assert offset_message_id(host, case["offset"]) == case["id"]
    ip, port, offset = decode_offset_message_id(case["id"])
    assert (port, offset) == (case["port"], case["offset"])
    assert host_bytes(ip, port) == host_bytes(case["ip_read"], port)
    assert decode_offset_message_id(case["id"].lower()) == (ip, port, offset)


@given(
    st.ip_addresses(),
    st.integers(0, 2**32 - 1),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
)
def test_offset_message_id_round_trip(ip: object, port: int, offset: int) -> None:
    host = host_bytes(str(ip), port)
    found_ip, found_port, found_offset = decode_offset_message_id(offset_message_id(host, offset))
    assert host_bytes(found_ip, found_port) == host
    assert (found_port, found_offset) == (port, offset)


@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF \n", max_size=60))
def test_what_is_no_id_raises_wire_error(text: str) -> None:
    try:
        decode_offset_message_id(text)
    except WireError:
        return
    assert len(text) in (32, 56)


def test_hosts() -> None:
    assert host_bytes("127.0.0.1", 10911) == b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    assert host_bytes("::ffff:127.0.0.1", 10911) == b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    assert host_bytes("fe80::1%eth0", 1) == host_bytes("fe80::1", 1)
    assert host_text(host_bytes("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert host_text(host_bytes("fe80::1", 10911)) == "[fe80::1]:10911"


@pytest.mark.parametrize(
    ("ip", "port"),
    [("localhost", 1), ("", 1), ("1.2.3", 1), ("::zz", 1), ("1.2.3.4", -1), ("\0", 1)],
)
def test_what_is_no_numeric_host_raises_wire_error(ip: str, port: int) -> None:
    with pytest.raises(WireError):
        host_bytes(ip, port)


def test_a_host_of_another_length_raises_wire_error() -> None:
    with pytest.raises(WireError, match="8 or 20"):
        host_text(b"123")


@pytest.mark.usefixtures("utc")
def test_unique_id_is_laid_out_as_javas() -> None:
    generator = UniqueIdGenerator(
        bytes([10, 0, 0, 1]), 70000, lambda: JUNE_15 * 1_000_000, salt=b"\1\2\3\4"
    )
    span = JUNE_15 - JUNE_1
    assert generator.next() == "0A0000011170" + "01020304" + f"{span:08X}" + "0000"
    assert generator.next()[-4:] == "0001"
    assert len(UniqueIdGenerator(bytes(16), 1).next()) == 56


@pytest.mark.usefixtures("utc")
def test_unique_id_follows_the_month_and_bears_a_clock_set_back() -> None:
    now = JULY_1 - 1
    generator = UniqueIdGenerator(bytes(4), 1, lambda: now * 1_000_000)

    def span() -> int:
        return int(generator.next()[20:28], 16)

    assert span() == 30 * 86_400_000 - 1  # more than 2^31 ms
    now = JULY_1
    assert span() == 0
    now = JULY_1 - 500
    assert span() == 0
    now = JULY_1 - 2_000_000
    assert span() == -2_000_000 % 2**32


def test_the_month_begins_at_local_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC-8")  # POSIX for eight hours east
        time.tzset()
        generator = UniqueIdGenerator(bytes(4), 1, lambda: JUNE_1 * 1_000_000)
        assert int(generator.next()[20:28], 16) == 8 * 3_600_000
    time.tzset()


def test_ids_of_many_threads_are_distinct() -> None:
    generator = UniqueIdGenerator(bytes(4), 1, lambda: JUNE_15 * 1_000_000)
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend([generator.next() for _ in range(5000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 20000


def test_generators_of_one_process_differ() -> None:
    first, second = (UniqueIdGenerator(bytes(4), 1, lambda: JUNE_15 * 1_000_000) for _ in range(2))
    assert first.next() != second.next()


def test_addresses_and_salts_have_their_lengths() -> None:
    with pytest.raises(ValueError, match="ip takes"):
        UniqueIdGenerator(b"123", 1)


def test_process_ids_name_the_process() -> None:
    first, second = create_unique_id(), create_unique_id()
    assert first != second
    assert first[:20] == second[:20]
    assert int(first[8:12], 16) == os.getpid() & 0xFFFF


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_other_ids() -> None:
    script = """
import os, sys
from orbitmq.wire.ids import create_unique_id
create_unique_id()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(create_unique_id(), flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(output) == 2
    assert output[0][12:20] != output[1][12:20]
