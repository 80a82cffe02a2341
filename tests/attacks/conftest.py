"""Tiny models shared by the tests of attacks, each written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.models import TINY, write_tiny


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each name in TINY."""
    root = tmp_path_factory.mktemp("tiny")
    return {name: write_tiny(root / name, name) for name in TINY}
