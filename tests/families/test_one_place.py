"""A family's properties are only in its data file: no other module of `irwm` names a family."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from irwm.families.family import dissected, families

ROOT = Path(__file__).parents[2]
NAMES = {family.name for family in families()} | {t for family in families() for t in family.model_types}
# llama.cpp is a program, not a family.
NAMED = re.compile(rf"(?<![\w.-])({'|'.join(sorted(map(re.escape, NAMES), key=len, reverse=True))})(?![\w-]|\.cpp)")
# Literals with the same word but another meaning, or with a choice of this project that does not depend on a family.
ALLOWED = {
    # GGUF's kinds of tokenizers, each named after the first model that had it.
    ("irwm/attacks/quantisers/vocabulary.py", "bert"),
    ("irwm/attacks/quantisers/vocabulary.py", "gpt2"),
    ("irwm/attacks/quantisers/vocabulary.py", "llama"),
    ("irwm/checkpoint/tokens.py", "bert"),
    # The attacks `as_llama` and `as_mixtral` write these families for any input.
    ("irwm/attacks/equivalence/conversion.py", "llama"),
    ("irwm/attacks/equivalence/conversion.py", "mixtral"),
    # The neutral model has always been written as this family without attention; its bytes are part of reports.
    ("irwm/evidence/neutral_model.py", "mamba"),
}


def test_no_family_is_named_outside_the_data_files() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "irwm").rglob("*.py")
        if ROOT / "irwm" / "families" not in path.parents
        for text in literals(ast.parse(path.read_text(encoding="utf-8")))
        for name in named(text)
    }
    assert found == ALLOWED


def literals(tree: ast.Module) -> Iterator[str]:
    """The string literals of a module, including parts of f-strings, without docstrings."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def named(text: str) -> set[str]:
    """The families that a literal names: as a word in it, or, ignoring case, as all of it."""
    return set(NAMED.findall(text)) | ({text.lower().strip(".")} & NAMES)


def test_anatomy_model_types_belong_to_their_family() -> None:
    for family in families():
        if family.anatomy is not None:
            assert set(family.anatomy.model_types) <= family.model_types.keys()
            assert family.projections is not None
            assert family.input_norm is not None or family.embedding_norm is not None
    assert {"llama", "mistral", "bert"} <= set(dissected())
