"""The code of this repository that a command depends on, and a digest of it.

Modules are found by following all imports in the source text. A name of `irwm` leads to the module that defines it. The
digest ignores comments, docstrings, line breaks, sentences and the texts of errors, because no figure depends on them.
It also ignores `READERS`, and the data of the model families, which have no effect on models of other families. Other
files that the code names count: the bundled models, and texts next to a module.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# They write figures into pages, and no figure depends on them.
WRITERS = ("benchmarks.written", "benchmarks.sources")
# They find and print numbers but compute none that the rest of `irwm` uses. So their code counts only for a command
# that imports them itself, or through `tools`, `storage` or `ui`. `irwm.checkpoint.quantised` computes weights, so it
# counts.
READERS = ("irwm.checkpoint.formats", "irwm.checkpoint.remote", "irwm.language", "irwm.report")
# A string of the program with this many spaces is a sentence. Labels of random streams have fewer. In `benchmarks` and
# `tools` it may be a prompt.
SENTENCE_SPACES = 3
PROGRAM = ("irwm", "storage", "ui")
ROOMS = ("irwm", "benchmarks", "tools", "ui", "storage")
DIGITS = 12
# Folders of the bundled models, as code names them.
MODELS = (("assets", "demo"), ("tests", "models"))


@functools.cache
def digest(module: str) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of `module` and all its imports from this repository.

    Args:
        module: dotted name, as for `python -m`.

    Raises:
        ModuleNotFoundError: this repository has no such module.
    """
    if _file(module) is None:
        raise ModuleNotFoundError(f"no module {module} in {ROOT}")
    names = sorted(needed(module))
    texts = {name: _text(name) for name in names}
    files = {str(file.relative_to(ROOT)): _hash(file) for name in names for file in _files(name)}
    return hashlib.sha256(repr((texts, sorted(files.items()))).encode()).hexdigest()[:DIGITS]


def module_of(module: str, options: str) -> str:
    """Return the module that a command's figures depend on: that of one claim, if `--only NAME` chose it, and else the
    command's own."""
    chosen = re.search(r"--only (\w+)(?= -|$)", options)  # of two claims the command's own module counts
    own = f"{module}.{chosen[1]}" if chosen else module
    return module if _file(own) is None else own


def needed(module: str) -> set[str]:
    """Return the names of the modules of this repository on which the figures of `module` depend, including itself."""
    found: set[str] = set()
    waiting = [module, f"{module}.__main__"]
    while waiting:
        name = waiting.pop()
        if name not in found and name not in WRITERS and _file(name) is not None:
            found.add(name)
            waiting += [name.rpartition(".")[0], *(other for other in _imports(name) if not _only_reads(other, name))]
    return found


def _only_reads(module: str, importer: str) -> bool:
    """Return whether the module is in one of `READERS`, and the importer is elsewhere in `irwm`."""
    package = next((each for each in READERS if f"{module}.".startswith(f"{each}.")), None)
    return package is not None and importer.startswith("irwm") and not f"{importer}.".startswith(f"{package}.")


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
    """Return the module's code without docstrings, comments, sentences and the texts of errors."""
    tree, program = ast.parse(ast.unparse(_tree(name))), name.partition(".")[0] in PROGRAM
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1 and _says(body[0]):
            del body[0]
        if program and isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = "" if node.value.count(" ") >= SENTENCE_SPACES else node.value
        for part in ast.walk(node) if isinstance(node, ast.Raise) else ():
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                part.value = ""
    return ast.dump(tree)


def _files(name: str) -> Iterator[Path]:
    """Yield the data files that a module names, and the weights of the bundled models if it names their folder."""
    file = _file(name)
    assert file is not None
    constants = (node.value for node in ast.walk(_tree(name)) if isinstance(node, ast.Constant))
    words = {value for value in constants if isinstance(value, str)}
    texts = (file.parent / word for word in sorted(words) if re.fullmatch(r"[\w-]+\.txt", word))
    yield from filter(Path.is_file, texts)
    for folders in MODELS:
        if words.issuperset(folders):
            yield from sorted(ROOT.joinpath(*folders).rglob("*.safetensors"))


@functools.cache
def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


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
    """Yield the nodes of the tree without code for type checkers."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _run(child)


def _home(package: str, name: str) -> str:
    """Return the module that defines a name of `package`. Lazy packages import it from there for type checkers only."""
    for statement in _tree(package).body if _file(package) else ():
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for line in statement.body:
                if isinstance(line, ast.ImportFrom) and line.module != package and name in {a.name for a in line.names}:
                    return str(line.module)
    return f"{package}.{name}"
