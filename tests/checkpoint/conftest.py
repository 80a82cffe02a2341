"""Fixtures of the checkpoint tests."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import irwm
from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.checkpoint.formats import read_budget
from tests.checkpoint.builders import split
from tests.checkpoint.parsing import without_child
from tests.conftest import Marked
from tests.kept import kept


@pytest.fixture
def folder(tiny_path: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Llama that the test may corrupt, with some companion files."""
    out = tmp_path / "model"
    shutil.copytree(tiny_path, out)
    (out / "README.md").write_text("# A model\n")
    (out / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": 2, "content": "</s>", "special": True}]}))
    return out


@pytest.fixture
def public_folder(folder: Path) -> Iterator[Path]:
    """A copy of the tiny Llama in folders that any user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        shutil.copytree(folder, Path(root, "model"))
        for file in Path(root, "model").iterdir():
            os.chmod(file, 0o644)  # safetensors makes its files readable for their owner only
        yield Path(root, "model").resolve()


@pytest.fixture
def sharded(tiny_path: Path, tmp_path: Path) -> Path:
    return split(tiny_path, tmp_path / "sharded")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsers run in the process of the test."""
    monkeypatch.setattr(read_budget, "run_parser", without_child)


@pytest.fixture
def model(folder: Path) -> Checkpoint:
    return open_checkpoint(folder)


@pytest.fixture(scope="session")
def tiny_marked(request: pytest.FixtureRequest, tiny_path: Path) -> Marked:
    """The tiny Llama, a key of the default parameters, and the folder of the marked copy."""
    original = open_checkpoint(tiny_path)
    key = irwm.generate_key(original, secret=bytes(range(32)), owner="us")
    return Marked(original, key, kept(request.config, "release-tiny", partial(irwm.insert, original, key)))
