"""The command ``orbitmq``: one module a subcommand, imported only when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from orbitmq.errors import OrbitMQError

BAD_INPUT = 2
"""Exit code for options, files and addresses that cannot be used."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Says which OrbitMQ this is, and which core runs."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        said = "show the version, and which core runs, and exit"
        super().__init__(option_strings, dest=dest, default=argparse.SUPPRESS, nargs=0, help=said)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        from orbitmq.compiled import CORE

        print(f"orbitmq {version('orbitmq')}, core: {CORE}")
        parser.exit()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, its own, or 2 for what cannot be done as asked."""
    from orbitmq.cli import answer_checks, archive, broker, pipeline, simulate, spark_env, store

    parser = _Parser(prog="orbitmq", description="RocketMQ for Python.", allow_abbrev=False)
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    answer_checks.add_parser(commands)
    archive.add_parser(commands)
    broker.add_parser(commands)
    pipeline.add_parser(commands)
    simulate.add_parser(commands)
    spark_env.add_parser(commands)
    store.add_parser(commands)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int | None = options.run(options)
    except OrbitMQError as error:
        print(f"orbitmq: {error}", file=sys.stderr)
        return BAD_INPUT
    return code or 0
