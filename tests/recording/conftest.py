"""A tiny model to be served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kept import kept
from tests.recording.servers import write_served


@pytest.fixture(scope="session")
def small(request: pytest.FixtureRequest, gemma_path: Path) -> Path:
    """A tiny tied model with a real tokenizer, which answers in a millisecond."""
    return kept(request.config, "served", lambda folder: write_served(folder, gemma_path))
