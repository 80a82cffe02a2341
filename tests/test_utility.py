"""The cost of a mark to the model: the demo release's perplexity on held-out text."""

from __future__ import annotations

from pathlib import Path

import pytest

import irwm
from irwm.inference import default_text
from tools.perplexity import measure


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1000.0, "auto"])
def test_the_demo_releases_perplexity_changes_by_less_than_half_a_percent(
    demo_path: Path, tmp_path: Path, scale
) -> None:
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, irwm.Parameters(scale=scale), secret=bytes(32))
    release = irwm.insert(model, key, tmp_path / "release")
    text = default_text()
    before = measure(demo_path, text, 256)["perplexity"]
    after = measure(release.path, text, 256)["perplexity"]
    assert abs(after / before - 1) < 0.005
