"""``orbitmq broker`` with a certificate and a VIP channel."""

from __future__ import annotations

import signal
import subprocess

import pytest

from orbitmq import Message, Producer
from orbitmq.errors import NetworkError
from tests.cli.test_broker import COMMAND, started, stopped
from tests.client.test_security import two_free_ports
from tests.net.certificates import Certificates


def test_it_speaks_tls_only_where_told_so(certificates: Certificates) -> None:
    port = two_free_ports()
    options = ["--tls-cert", certificates.cert, "--tls-key", certificates.key]
    options += ["--tls-mode", "enforcing", "--port", str(port)]
    with started(*options, "--fast-listen-port", str(port - 2)) as broker:
        with Producer(
            "g",
            name_server=broker.name_server,
            use_tls=True,
            tls_ca_file=certificates.ca,
            vip_channel_enabled=True,
        ) as producer:
            producer.send(Message("t", b"x"))
        with (
            Producer("g", name_server=broker.name_server) as producer,
            pytest.raises(NetworkError),
        ):
            producer.send(Message("t", b"x"), timeout=0.6)
        code, _, errors = stopped(broker, signal.SIGTERM)
        assert code == 0
        assert "use_tls=True" in errors


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--tls-key", "key.pem"], "--tls-key is given: its certificate, too"),
        (["--tls-cert", "/nowhere"], "there is no such file"),
        (["--fast-listen-port", "70000"], "fast_listen_port=70000"),
    ],
)
def test_options_that_cannot_be_are_named(options: list[str], error: str) -> None:
    done = subprocess.run(
        [*COMMAND, "--port", "0", "--name-server-port", "0", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert error in done.stderr
    assert "Traceback" not in done.stderr
