"""A thief who has read the manual: what he does to the embedding without knowing key or original, and what is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import irwm
from irwm.attacks.rewrite import rewrite
from irwm.tracing import trace_each


def without_minor_components(release: Path, out: Path, kept: float) -> Path:
    """A copy whose embedding has only the leading share `kept` of its own principal components."""
    name = irwm.open_checkpoint(release).layout.embedding.name

    def through(tensor: str, value: torch.Tensor) -> torch.Tensor:
        if tensor != name:
            return value
        rows = value.double()
        mean = rows.mean(dim=0)
        _, _, components = torch.linalg.svd(rows - mean, full_matrices=False)
        leading = components[: int(kept * rows.shape[1])]
        return ((rows - mean) @ leading.T @ leading + mean).to(value.dtype)

    return rewrite(release, out, through)


@pytest.mark.parametrize(
    ("kept", "scale"), [(0.75, "auto"), pytest.param(0.5, "auto", marks=pytest.mark.slow),
                        pytest.param(0.75, 1000.0, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_mark_is_found_though_the_components_that_alignment_is_scored_in_are_gone(
    gemma_path: Path, tmp_path: Path, kept: float, scale: float | str
) -> None:
    """Zero the minor components, then rotate: no rotation fits, and the least-squares map reads the mark."""
    model = irwm.open_checkpoint(gemma_path)
    key = irwm.generate_key(model, irwm.Parameters(scale=scale), secret=bytes(32))
    irwm.insert(model, key, tmp_path / "release")
    without_minor_components(tmp_path / "release", tmp_path / "bare", kept)
    irwm.attacks.equivalence.disguise(tmp_path / "bare", tmp_path / "x", ["rotate"], seed=1)
    examination = irwm.Examination(irwm.open_checkpoint(tmp_path / "x"), model)
    others = [irwm.generate_key(model, key.parameters, secret=bytes([n]) * 32) for n in range(1, 9)]
    found, *wrong = irwm.detect_each(examination, [key, *others])
    assert found.verdict == "found"
    assert not found.alignment.aligned
    assert found.log10_p < -25
    assert found.lineage.status == "cannot tell"
    assert not [finding for finding in wrong if finding.verdict == "found"]


def test_who_leaked_is_named_though_nothing_aligns(gemma_path: Path, tmp_path: Path) -> None:
    """The fingerprint is read under the same maps as the mark, whatever the alignment scored."""
    model = irwm.open_checkpoint(gemma_path)
    params = irwm.Parameters(scale="auto", noise_coordinates=8, spread=0.25)
    keys = [irwm.generate_key(model, params, secret=bytes(32), recipient=name) for name in ("ann", "bob", "cid")]
    irwm.insert(model, keys[1], tmp_path / "release")
    without_minor_components(tmp_path / "release", tmp_path / "bare", 0.75)
    irwm.attacks.equivalence.disguise(tmp_path / "bare", tmp_path / "x", ["rotate"], seed=1)
    tracing = trace_each(irwm.Examination(irwm.open_checkpoint(tmp_path / "x"), model), keys)
    assert not tracing.alignment.aligned
    assert [trace.recipient for trace in tracing.named] == ["bob"]
    assert max(abs(z) for z in tracing.decoys) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["keep", "drop"])
def test_rows_that_moved_as_well_are_found_first(gemma_path: Path, tmp_path: Path, tokenizer: str) -> None:
    """Where nothing aligns, rows stand where their names, or else their content, say."""
    model = irwm.open_checkpoint(gemma_path)
    key = irwm.generate_key(model, secret=bytes(32))
    irwm.insert(model, key, tmp_path / "release")
    without_minor_components(tmp_path / "release", tmp_path / "bare", 0.75)
    steps = ["rotate", ("reorder_tokens", {"tokenizer": tokenizer})]
    irwm.attacks.equivalence.disguise(tmp_path / "bare", tmp_path / "x", steps, seed=1)
    found = irwm.detect(irwm.open_checkpoint(tmp_path / "x"), model, key)
    assert not found.alignment.aligned
    assert found.verdict == "found"
    assert found.log10_p < -25
    wrong = irwm.generate_key(model, secret=bytes([1]) * 32)
    assert irwm.detect(irwm.open_checkpoint(tmp_path / "x"), model, wrong).verdict == "inconclusive"
