"""``orbitmq archive`` and ``orbitmq replay``: a topic to Parquet files, and back to a topic."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orbitmq.cli.cluster import add_cluster, cluster_settings
from orbitmq.cli.progress import progress
from orbitmq.errors import DataLossError, OrbitMQError


def add_parser(commands: Any) -> None:
    """Add both subcommands to argparse's ``commands``."""
    archive = commands.add_parser(
        "archive",
        help="bring a topic into Parquet files, by day",
        description="Bring the archive of TOPIC in DIR up to now: Parquet files in directories "
        "day=YYYY-MM-DD, which Spark and others read as one table. Run it again, for example every "
        "hour, and it goes on where it ended or was killed; each message is there once.",
        epilog="Exit code: 0, it is up to now; 2, it cannot be done as asked. Needs orbitmq[spark],"
        " but no Java.",
        allow_abbrev=False,
    )
    archive.add_argument("topic", metavar="TOPIC")
    archive.add_argument("directory", type=Path, metavar="DIR", help="made if it is not there")
    archive.add_argument(
        "--tags", default="*", help="only messages of these, separated by '||' (default: all)"
    )
    archive.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help="where the first run begins: earliest, latest, or JSON such as "
        '{"broker-a": {"0": 120}} (default: earliest)',
    )
    archive.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="go on where the broker removed messages before they were archived",
    )
    add_cluster(archive)
    archive.set_defaults(run=run_archive, parser=archive)

    replay = commands.add_parser(
        "replay",
        help="send an archive to a topic",
        description="Send the messages of the archive in DIR to a topic, with keys, tags, "
        "properties and message ids as they were, and each queue in its order. A run that was "
        "killed is gone on with; a later run sends what was archived since.",
        epilog="Exit code: 0, all is sent; 2, it cannot be done as asked. Needs orbitmq[spark], "
        "but no Java.",
        allow_abbrev=False,
    )
    replay.add_argument("directory", type=Path, metavar="DIR")
    replay.add_argument("--topic", help="where to (default: the topic that was archived)")
    replay.add_argument("--from-day", metavar="DAY", help="first day, such as 2026-11-22 (UTC)")
    replay.add_argument("--until-day", metavar="DAY", help="last day")
    replay.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="where is kept how far it came (default: DIR/_replays/TOPIC.json)",
    )
    replay.add_argument("--restart", action="store_true", help="forget that, and send all anew")
    add_cluster(replay)
    replay.set_defaults(run=run_replay, parser=replay)


def run_archive(options: argparse.Namespace) -> None:
    """Archive, and say how much. Raises OrbitMQError when it cannot be done."""
    check_extra()
    from orbitmq.spark import archive

    try:
        with progress("archiving") as on_progress:
            done = archive(
                options.topic,
                options.directory,
                tags=options.tags,
                starting_offsets=options.starting_offsets,
                fail_on_data_loss=not options.allow_data_loss,
                on_progress=on_progress,
                **cluster_settings(options),
            )
    except DataLossError as error:
        raise DataLossError(f"{error}; here by --allow-data-loss") from error
    print(f"archived {done.messages:,} messages in {done.files:,} files, {done.total:,} in all")


def run_replay(options: argparse.Namespace) -> None:
    """Replay, and say how much. Raises OrbitMQError when it cannot be done."""
    check_extra()
    from orbitmq.spark import replay

    with progress("replaying") as on_progress:
        done = replay(
            options.directory,
            options.topic,
            from_day=options.from_day,
            until_day=options.until_day,
            checkpoint=options.checkpoint,
            restart=options.restart,
            on_progress=on_progress,
            **cluster_settings(options),
        )
    found = f", {done.found:,} were there already" if done.found else ""
    print(f"replayed {done.messages:,} messages{found}")


def check_extra() -> None:
    """Raise OrbitMQError where a package of the extra ``spark`` is missing."""
    for name in ("pyarrow", "pyspark"):
        if find_spec(name) is None:
            raise OrbitMQError(f"{name} is not installed: pip install 'orbitmq[spark]'")
