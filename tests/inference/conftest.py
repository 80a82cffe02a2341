"""References that many tests share: each trained model run once over the beginning of the bundled text."""

from __future__ import annotations

from pathlib import Path

import pytest

from irwm.inference import Reference, default_text, reference

TOKENS = 300


@pytest.fixture(scope="session")
def demo(demo_path: Path) -> Reference:
    return reference(demo_path, default_text(), TOKENS)


@pytest.fixture(scope="session")
def minilm(minilm_path: Path) -> Reference:
    return reference(minilm_path, default_text(), TOKENS)
