"""Draw the pictures of the documentation: ``python -m docs.drawings``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.plots import write
from docs.drawings import batches, spark

PICTURES: Final = {
    "spark-overview": spark.overview,
    "spark-pipeline": spark.pipeline,
    "spark-listeners": spark.listeners,
    "spark-places": spark.places,
    "spark-write": spark.writing,
    "spark-queues": spark.queues,
    "spark-decode": spark.decoding,
    "spark-archive": spark.archive,
    "spark-lag": batches.lag,
    "spark-batch": batches.micro_batch,
    "spark-tasks": batches.tasks,
    "spark-guarantees": batches.guarantees,
}
"""What each file of ``docs/pictures`` shows."""


def draw(directory: Path) -> None:
    """Write all pictures into ``directory``."""
    for name, drawing in PICTURES.items():
        write(directory / f"{name}.svg", drawing().svg())


if __name__ == "__main__":
    draw(Path("docs/pictures"))
