"""The demo model's text: English text of the running interpreter's standard library.

It downloads nothing. It returns three kinds of documents, always in the same order for the same Python:
one prose document per module (its docstrings), one per `help()` topic, and one source document per module.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

STDLIB = Path(sysconfig.get_paths()["stdlib"])
# Share of the names; about 4% of the prose by size, because the longest topics are in the training half.
HELD_OUT_PERCENT = 10

# Tests are not documentation, site-packages is not the standard library, encodings is almost all tables,
# and config-* holds build settings of one machine.
SKIPPED_FOLDERS = re.compile(r"^(__pycache__|tests?|idlelib|site-packages|turtledemo|encodings|pydoc_data|config-.*)$")
SKIPPED_FILES = re.compile(r"^(_sysconfigdata.*|this)\.py$")

# A few modules have their authors' licence instead of the PSF's. Without them the text is PSF-2.0.
OTHER_LICENCE = re.compile(
    r"permission\s+(\W\s+)?(to\s+use,?\s+copy|is\s+hereby\s+granted)|redistribut(e|ion)\b[^.]{0,40}\b(source|software)"
    r"|provided\s+'as-is'|apache\s+licen[cs]e|\bMIT\s+licen[cs]e|free\s+software",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Corpus:
    """Whole documents; no module or topic has a part in both halves."""

    train_prose: list[str]
    train_source: list[str]
    held_out_prose: list[str]
    modules: int


def is_held_out(name: str) -> bool:
    """Decide by a hash of the document's name, so that an added document never moves another one."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def module_files() -> Iterator[tuple[str, str]]:
    """Yield (dotted module name, source) for every module used, sorted by name."""
    found: dict[str, str] = {}
    for path in STDLIB.rglob("*.py"):
        parts = path.relative_to(STDLIB).parts
        if any(SKIPPED_FOLDERS.match(part) for part in parts[:-1]) or SKIPPED_FILES.match(parts[-1]):
            continue
        source = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
        if not OTHER_LICENCE.search(source):
            found[".".join(parts).removesuffix(".py").removesuffix(".__init__")] = source
    yield from sorted(found.items())


def _documented(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (heading, docstring) for the documented classes and functions under `node`, in source order."""
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{prefix}{child.name}."
            if isinstance(child, ast.ClassDef):
                heading = f"class {prefix}{child.name}({', '.join(ast.unparse(base) for base in child.bases)})"
            else:
                heading = f"{prefix}{child.name}({ast.unparse(child.args)})"
            docstring = ast.get_docstring(child)
            if docstring:
                yield heading, docstring
        yield from _documented(child, name)


def module_prose(name: str, source: str) -> list[str]:
    """Return the module's docstrings as blocks: the module's own first, then each with its signature above it."""
    tree = ast.parse(source)
    own = ast.get_docstring(tree)
    blocks = [own] if own else []
    blocks += [f"{heading}\n\n{docstring}" for heading, docstring in _documented(tree, "")]
    return [f"Module {name}", *blocks] if blocks else []


def _paragraphs(text: str) -> list[str]:
    return [part.strip("\n") for part in re.split(r"\n\s*\n", text) if part.strip()]


def _without_repeats(text: str, seen: set[str]) -> str:
    """Drop each paragraph already in `seen`, adding the others to it: help topics quote each other at length."""
    kept = []
    for paragraph in _paragraphs(text):
        key = " ".join(paragraph.split())
        if key not in seen:
            seen.add(key)
            kept.append(paragraph)
    return "\n\n".join(kept)


def build_corpus() -> Corpus:
    """Collect, deduplicate by paragraph and split the text of the running interpreter's library."""
    prose: list[tuple[str, str]] = []
    train_source = []
    modules = 0
    for name, source in module_files():
        modules += 1
        blocks = module_prose(name, source)
        if blocks:
            prose.append((name, "\n\n".join(blocks)))
        if not is_held_out(name) and source.strip():
            train_source.append(source.strip() + "\n")
    for name, text in sorted(topics.items()):
        prose.append((f"topic {name}", inspect.cleandoc(text)))

    # The training half is first, so a paragraph that occurs in both is removed from the held-out half.
    seen: set[str] = set()
    halves: dict[bool, list[str]] = {False: [], True: []}
    for held_out in (False, True):
        for name, text in prose:
            if is_held_out(name) == held_out:
                document = _without_repeats(text, seen)
                # The rest of a topic that others quote in full is a stray line, not a document.
                if len(document) >= 200:
                    halves[held_out].append(document + "\n")
    return Corpus(halves[False], list(dict.fromkeys(train_source)), halves[True], modules)
