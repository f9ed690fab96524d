"""A certificate authority of the tests' own, and a server's certificate signed by it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

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
    """Make them with the openssl program."""
    ca, ca_key, cert, key, locked, request, extensions = (
        str(directory / name)
        for name in (
            "ca.pem",
            "ca.key",
            "cert.pem",
            "key.pem",
            "locked.pem",
            "cert.csr",
            "cert.ext",
        )
    )
    Path(extensions).write_text("subjectAltName=IP:127.0.0.1\n")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", ca, *_name("a test's CA"))
    _openssl("req", *new_key, "-keyout", key, "-out", request, *_name("127.0.0.1"))
    signer = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
    _openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", cert)
    _openssl("pkcs8", "-topk8", "-in", key, "-passout", f"pass:{PASSWORD}", "-out", locked)
    return Certificates(ca, cert, key, locked)


def _name(name: str) -> tuple[str, str]:
    return "-subj", f"/CN={name}"


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
