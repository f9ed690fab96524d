"""Options of commands that work with a cluster: where it is, and who asks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from orbitmq.spark.cluster import ClusterSettings


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add them to a command's parser."""
    parser.add_argument(
        "--name-server",
        metavar="HOST:PORT",
        help="name servers, separated by ';' (default: env NAMESRV_ADDR)",
    )
    parser.add_argument("--namespace", help="the namespace of topics and groups")
    parser.add_argument("--access-key", help="the account requests are signed by")
    parser.add_argument(
        "--secret-key-file", type=Path, metavar="FILE", help="what holds the account's secret key"
    )
    parser.add_argument("--tls", action="store_true", help="encrypt connections")
    parser.add_argument("--tls-ca", metavar="FILE", help="PEM file of the CAs to trust")
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM file of a certificate of one's own")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file of its private key")


def cluster_settings(options: argparse.Namespace) -> ClusterSettings:
    """What was given. Raises ConfigError for a file of a secret that cannot be read."""
    settings: ClusterSettings = {
        "name_server": options.name_server,
        "namespace": options.namespace,
        "access_key": options.access_key,
        "use_tls": options.tls,
        "tls_ca_file": options.tls_ca,
        "tls_cert_file": options.tls_cert,
        "tls_key_file": options.tls_key,
    }
    file: Path | None = options.secret_key_file
    if file is not None:
        try:
            settings["secret_key"] = file.read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigError("--secret-key-file", str(file), f"a file with it: {error}") from error
    return settings
