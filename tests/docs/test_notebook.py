"""examples/stream.ipynb, run as docs/spark-clusters.md tells: the bar, and the table of results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.docs.shells import Shell
from tests.docs.snippets import ROOT, snippet

NOTEBOOK = ROOT / "examples" / "stream.ipynb"


def outputs(cell: dict[str, Any]) -> list[str]:
    """What a cell shows as HTML."""
    return ["".join(output.get("data", {}).get("text/html", "")) for output in cell["outputs"]]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_notebook(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    shutil.copy(NOTEBOOK, tmp_path)
    scratch = str(tmp_path / "scratch")
    shell = Shell(
        tmp_path, IPYTHONDIR=scratch, JUPYTER_RUNTIME_DIR=scratch, JUPYTER_CONFIG_DIR=scratch
    )
    command = snippet("docs/spark-clusters.md", "jupyter execute", "sh").strip()
    shell.run(f"{command} --startup_timeout=600")
    done = json.loads((tmp_path / "done.ipynb").read_text())
    *_, bar, table, _ = [cell for cell in done["cells"] if cell["cell_type"] == "code"]
    assert "show_progress" in "".join(bar["source"])
    (drawn,) = filter(None, outputs(bar))
    assert '<progress value="4000" max="4000"' in drawn
    assert "<b>delays</b>" in drawn
    (shown,) = filter(None, outputs(table))
    assert "<tr><td>UA</td><td>1000</td><td>30.9</td></tr>" in shown


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
