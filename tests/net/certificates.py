"""A certificate authority of the tests' own, and a server's certificate signed by it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

PASSWORD = "open sesame"


class Certificates(NamedTuple):
    """PEM files."""

    ca: str
    cert: str
    """Signed by the CA, for 127.0.0.1, not for localhost."""
    key: str
    """Its private key."""
    locked_key: str
    """The same, encrypted with PASSWORD."""


def make_certificates(directory: Path) -> Certificates:
    """Make them in ``directory``."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    key = server.private_key_pem.bytes()
    locked = load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )
    contents = {
        "ca.pem": authority.cert_pem.bytes(),
        "cert.pem": b"".join(pem.bytes() for pem in server.cert_chain_pems),
        "key.pem": key,
        "locked.pem": locked,
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return Certificates(*(str(directory / name) for name in contents))
