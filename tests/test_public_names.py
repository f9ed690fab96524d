"""The public names are exactly these, each importable, and importing the package is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import orbitmq


def test_every_public_name_resolves() -> None:
    for name in orbitmq.__all__:
        assert getattr(orbitmq, name).__name__ == name
    assert set(orbitmq.__all__) <= set(dir(orbitmq))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(orbitmq.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        (node.module, alias.name)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {(home, name) for name, home in orbitmq._MODULE_OF.items()}
    assert sorted(orbitmq._MODULE_OF) == orbitmq.__all__


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    code = "import sys, orbitmq; print([m for m in sys.modules if m.startswith('orbitmq.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
