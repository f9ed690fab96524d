"""Measures OrbitMQ beside Apache RocketMQ and prints the figures as ratios.

    python -m benchmarks [subject ...] [--seconds S] [--rounds N]

Both sides run in the same session and take turns, round by round, so that a machine whose speed
drifts does not favour one; the ratio of each round is taken and the median shown, with the least
and the greatest beside it. Absolute figures are for orientation only. The results, and what they
were measured on, also go to ``build/bench.json``, as a table to ``build/bench.md``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.brokers import PLAIN, Rival, find_apache
from benchmarks.growth import SIZES
from benchmarks.machine import describe
from benchmarks.results import Result, cells, headings, line, markdown
from benchmarks.subjects import ALONE, GROUPS, KAFKA, RIVALS, SUBJECTS, Options
from orbitmq.compiled import CORE


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "subjects",
        nargs="*",
        choices=[*SUBJECTS, *GROUPS],
        metavar="subject",
        help=f"{', '.join(SUBJECTS)} (default: all); "
        + "; ".join(f"{name} for {', '.join(group)}" for name, group in GROUPS.items()),
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of each comparison")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="store to fill")
    parser.add_argument(
        "--pictures", type=Path, default=Path("docs/pictures"), help="where plots go"
    )
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument("--alone", action="store_true", help="without Apache's broker")
    beside.add_argument(
        "--against",
        type=Path,
        metavar="SRC",
        help="instead of Apache's broker that of another version of ours, whose `src` is here",
    )
    parser.add_argument(
        "--plain", action="store_true", help="and our broker on plain Python, in the same rounds"
    )
    arguments = parser.parse_args()
    subjects = chosen(arguments.subjects)
    check(parser, arguments, subjects)
    apache = None
    if not (arguments.against or arguments.alone or set(subjects) <= ALONE):
        apache = find_apache()
    other = arguments.against.resolve() if arguments.against else apache
    rivals: list[Rival] = [other] if other else []
    rivals += [PLAIN] if arguments.plain else []
    options = Options(
        rivals, arguments.seconds, arguments.rounds, arguments.largest, arguments.pictures
    )
    described = describe(apache)
    for name, value in described.items():
        print(f"{name}: {value}")
    rival = "Kafka" if set(subjects) <= set(KAFKA) else "Apache" if apache else "other"
    print(line(headings(rival, plain=len(rivals) > 1)))
    results: list[Result] = []
    try:
        for subject in subjects:
            for result in SUBJECTS[subject](options):
                print(line(cells(result)), flush=True)
                results.append(result)
    finally:
        save(described, results, rival)


def check(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, subjects: list[str]
) -> None:
    """End the program where the options cannot be had together, or here."""
    for option in ("against", "plain"):
        if getattr(arguments, option) and not set(subjects) <= RIVALS:
            parser.error(f"--{option} goes with {', '.join(sorted(RIVALS))} only")
    if arguments.plain and CORE == PLAIN:
        parser.error("--plain: there is no compiled core here to measure beside; see `make core`")
    if arguments.against and not (arguments.against / "orbitmq").is_dir():
        parser.error(f"--against {arguments.against}: there is no orbitmq in it; name a `src`")


def chosen(names: list[str]) -> list[str]:
    """The subjects that these names stand for, each once; all of them for none."""
    return list(dict.fromkeys(one for name in names for one in GROUPS.get(name, [name]))) or list(
        SUBJECTS
    )


def save(described: dict[str, str], results: list[Result], rival: str) -> None:
    """Write what was measured, be it all or not."""
    build = Path("build")
    build.mkdir(exist_ok=True)
    whole = {"measured on": described, "results": [vars(result) for result in results]}
    (build / "bench.json").write_text(json.dumps(whole, indent=1))
    machine = "".join(f"- {name}: {value}\n" for name, value in described.items())
    (build / "bench.md").write_text(f"{machine}\n{markdown(results, rival)}")


if __name__ == "__main__":
    main()
