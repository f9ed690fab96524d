"""The house has one direction of imports: a layer sees only what stands before it in LAYERS."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "orbitmq"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")

LAYERS = (
    "codes clock compiled descriptors errors names message properties_file settings wire filters "
    "allocate net store live_settings settings_requests nameserver broker client producer "
    "consumer admin blocking aio spark testing cli"
).split()

# What a layer may not see although it stands before it.
_SERVERS = {"store", "nameserver", "broker"}
FORBIDDEN = {
    "store": {"net"},  # it knows files and records, nothing of the network
    "client": _SERVERS,  # it works against any cluster
    "producer": _SERVERS,
    "consumer": _SERVERS,
    "admin": _SERVERS,
    "blocking": _SERVERS,
    "aio": _SERVERS | {"blocking"},  # neither face stands on the other
    "spark": _SERVERS,  # a task on a cluster carries no broker
}

# The layers a plain `pip install orbitmq` must be able to import.
CORE = {*LAYERS[: LAYERS.index("aio") + 1]}

# Layers that compute and never wait for anything: no files, sockets, threads or event loops ...
NO_IO = {"codes", "errors", "names", "message", "properties_file", "wire", "filters", "allocate"}
IO_MODULES = (
    "asyncio concurrent fcntl http io mmap multiprocessing pathlib select selectors shutil signal "
    "socket socketserver ssl subprocess tempfile threading urllib uvloop"
).split()
# ... but these names out of such modules only compute.
PURE = {"mmap.mmap", "socket.AF_INET", "socket.AF_INET6", "socket.inet_ntop", "socket.inet_pton"}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def each_source(layers: Collection[str] | None = None) -> pytest.MarkDecorator:
    """One test for each source file, of all layers or of these."""
    paths = [path for path in SOURCES if layers is None or layer_of(path) in layers]
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(PACKAGE)))


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node below ``tree``, but for what only type checkers read."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from running_nodes(child)


def imported_names(node: ast.AST) -> list[str]:
    """The dotted names an import statement brings; ``from a import b`` brings ``a.b``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@each_source()
def test_a_module_imports_only_earlier_layers(path: Path) -> None:
    layer = layer_of(path)
    assert layer in LAYERS, "put the new layer in its place in LAYERS"
    allowed = {*LAYERS[: LAYERS.index(layer) + 1]} - FORBIDDEN.get(layer, set())
    for node in running_nodes(parsed(path)):
        for name in imported_names(node):
            package, _, rest = name.partition(".")
            if package == "orbitmq":
                assert rest.partition(".")[0] in allowed, f"{layer} imports {name}"


@each_source(NO_IO)
def test_the_protocol_does_no_io(path: Path) -> None:
    for node in running_nodes(parsed(path)):
        if isinstance(node, ast.ImportFrom | ast.Attribute):
            for name in imported_names(node) or [ast.unparse(node)]:
                assert name.partition(".")[0] not in IO_MODULES or name in PURE, name
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in {"open", "input", "print"}


@each_source(CORE)
def test_the_core_needs_nothing_but_msgspec(path: Path) -> None:
    """Optional packages are imported where they are used, not at the top of a module."""
    for statement in parsed(path).body:
        for name in imported_names(statement):
            package = name.partition(".")[0]
            assert package in sys.stdlib_module_names | {"orbitmq", "msgspec"}, f"imports {name}"
