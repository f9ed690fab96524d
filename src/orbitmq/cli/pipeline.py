"""``orbitmq pipeline init | run``: a declarative pipeline of Spark's around a topic."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orbitmq.cli.spark_env import missing_environment
from orbitmq.errors import ConfigError, OrbitMQError
from orbitmq.names import check_group, check_topic

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SPEC: Final = "spark-pipeline.yml"
_SUFFIX: Final = ".txt"


def add_parser(commands: Any) -> None:
    """Add the subcommand to argparse's ``commands``."""
    parser = commands.add_parser(
        "pipeline", help="a declarative pipeline of Spark's around a topic", allow_abbrev=False
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, parser_class=type(parser))
    init = actions.add_parser(
        "init",
        help="write a project",
        description="Write a project that Spark's spark-pipelines runs as it is: topic, bronze "
        "table, cleaned table with expectations and a dead-letter flow, aggregates, result topic. "
        "It takes orders as JSON: change transformations/ to what your messages are.",
        allow_abbrev=False,
    )
    init.add_argument("directory", type=Path, metavar="DIR", help="must be new, or empty")
    init.add_argument("--name-server", default="127.0.0.1:9876", metavar="HOST:PORT[;..]")
    init.add_argument("--topic", default="orders", help="what is read (default: orders)")
    init.add_argument("--group", help="who reads (default: pipeline-TOPIC)")
    init.add_argument("--results", metavar="TOPIC", help="(default: TOPIC-totals)")
    init.add_argument("--dead-letters", metavar="TOPIC", help="(default: TOPIC-rejected)")
    init.set_defaults(run=run_init, parser=init)
    run = actions.add_parser(
        "run",
        help="run a project once, with this Python and a Java that is there",
        description="Run spark-pipelines run for the project in DIR, with PYSPARK_PYTHON and "
        "JAVA_HOME set where they are not. Exit code: that of spark-pipelines.",
        allow_abbrev=False,
    )
    run.add_argument("directory", type=Path, metavar="DIR", nargs="?", default=Path())
    run.add_argument("--dry-run", action="store_true", help="only check the project")
    run.add_argument(
        "--full-refresh-all", action="store_true", help="make all tables anew, from the beginning"
    )
    run.set_defaults(run=run_project, parser=run)


def run_init(options: argparse.Namespace) -> None:
    """Write the project. Raises ConfigError for what cannot be."""
    from orbitmq.client.config import name_servers

    directory: Path = options.directory.resolve()
    if directory.exists() and (not directory.is_dir() or next(directory.iterdir(), None)):
        raise ConfigError("DIR", str(options.directory), "a new or empty directory")
    topic: str = options.topic
    values = {
        "NAME": directory.name,
        "DIRECTORY": str(directory),
        "NAME_SERVER": ";".join(name_servers(options.name_server)),
        "TOPIC": topic,
        "GROUP": options.group or f"pipeline-{topic}",
        "RESULTS": options.results or f"{topic}-totals",
        "DEAD_LETTERS": options.dead_letters or f"{topic}-rejected",
    }
    for name in ("TOPIC", "RESULTS", "DEAD_LETTERS"):
        check_topic(values[name])
    check_group(values["GROUP"])
    if not str(directory).isprintable() or set('"\\#; ') & set(str(directory)):
        raise ConfigError("DIR", str(directory), 'a path without space, ", \\, # and ;')
    for place, text in _project():
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)  # noqa: PLW2901 - bit by bit
        file = directory / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    print(f"wrote {directory}; run it with: orbitmq pipeline run {options.directory}")


def _project() -> list[tuple[str, str]]:
    """The project's files, by their places in it."""
    found: list[tuple[str, str]] = []

    def walk(here: Traversable, place: str) -> None:
        for entry in sorted(here.iterdir(), key=lambda item: item.name):
            if entry.is_dir():
                walk(entry, f"{place}{entry.name}/")
            elif entry.name.endswith(_SUFFIX):
                found.append((place + entry.name.removesuffix(_SUFFIX), entry.read_text()))

    walk(files("orbitmq.cli") / "project", "")
    return found


def run_project(options: argparse.Namespace) -> int:
    """Run it; the exit code of spark-pipelines. Raises OrbitMQError where something is missing."""
    directory: Path = options.directory
    if not (directory / SPEC).is_file():
        raise ConfigError("DIR", str(directory), f"a project: it has a file {SPEC}")
    for module in ("pyspark", "grpc", "grpc_status", "yaml"):
        if find_spec(module) is None:
            raise OrbitMQError(f"{module} is not installed: pip install 'orbitmq[pipelines]'")
    beside = Path(sys.executable).with_name("spark-pipelines")
    command = str(beside) if beside.exists() else shutil.which("spark-pipelines")
    if command is None:
        raise OrbitMQError("there is no command spark-pipelines: pip install 'orbitmq[pipelines]'")
    arguments = ["dry-run" if options.dry_run else "run", "--spec", SPEC]
    if options.full_refresh_all and not options.dry_run:
        arguments.append("--full-refresh-all")
    conf = {"SPARK_CONF_DIR": str((directory / "conf").resolve())}
    environment = {**conf, **os.environ, **missing_environment()}
    return subprocess.run(  # noqa: S603 - Spark's own command
        [command, *arguments], cwd=directory, env=environment, check=False
    ).returncode
