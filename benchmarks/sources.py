"""Which of this repository's code a command depends on, and a digest of it.

Modules are found by their imports, read from the text and followed as far as they go, and a name of `irwm` leads to the
module where it lives. Comments, docstrings and line breaks are no part of the digest: no figure depends on them. Nor
are the files that the code reads, such as what is known of each family.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# They put figures where they belong, and no figure depends on them.
WRITERS = ("benchmarks.written", "benchmarks.sources")
ROOMS = ("irwm", "benchmarks", "tools", "ui", "storage")
DIGITS = 12


@functools.cache
def digest(module: str) -> str:
    """SHA-256 of `module` and all that it imports here, its first 12 hexadecimal digits.

    Args:
        module: its dotted name, as `python -m` takes it.

    Raises:
        ModuleNotFoundError: there is no such module here.
    """
    if _file(module) is None:
        raise ModuleNotFoundError(f"no module {module} in {ROOT}")
    texts = {name: _text(name) for name in sorted(needed(module))}
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:DIGITS]


def needed(module: str) -> set[str]:
    """Names of the modules of this repository that `module` needs, itself among them."""
    found: set[str] = set()
    waiting = [module, f"{module}.__main__"]
    while waiting:
        name = waiting.pop()
        if name not in found and name not in WRITERS and _file(name) is not None:
            found.add(name)
            waiting += [name.rpartition(".")[0], *_imports(name)]
    return found


def _file(name: str) -> Path | None:
    if name.partition(".")[0] not in ROOMS:
        return None
    path = ROOT.joinpath(*name.split("."))
    tried = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in tried if file.is_file()), None)


@functools.cache
def _tree(name: str) -> ast.Module:
    file = _file(name)
    assert file is not None
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def _text(name: str) -> str:
    """The module's code without its words."""
    tree = ast.parse(ast.unparse(_tree(name)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1 and _says(body[0]):
            del body[0]
    return ast.dump(tree)


def _says(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _imports(name: str) -> Iterator[str]:
    for node in _run(_tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (_home(node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "irwm":
            yield _home("irwm", node.attr)


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The tree without what only a type checker reads."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _run(child)


def _home(package: str, name: str) -> str:
    """Where a name that `package` offers lives; the packages that import it only when it is used keep a table."""
    file = _file(package)
    homes: dict[str, str] = {}
    for statement in _tree(package).body if file else ():
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_HOMES":
            homes = ast.literal_eval(statement.value)
    return f"{package}.{homes.get(name, name)}"
