"""Which of several originals a suspect descends from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks import equivalence, finetune
from irwm.errors import CancelledError
from irwm.inference import default_text
from tests.conftest import Marked
from tools.small_models import write_llama


@pytest.fixture
def originals(demo_path: Path, gemma_path: Path, phi3_path: Path, gpt2_path: Path) -> list[irwm.Checkpoint]:
    return [irwm.open_checkpoint(path) for path in (demo_path, gemma_path, phi3_path, gpt2_path)]


@pytest.mark.parametrize("name", ["demo", "phi3"])
def test_disguised_and_trained_copy_descends_from_its_original_alone(
    originals: list[irwm.Checkpoint], release_of: Callable[[str], Marked], tmp_path: Path, name: str
) -> None:
    own, _, release = release_of(name)
    tuned = finetune(release, tmp_path / "tuned", default_text(), 5, 1e-4)
    suspect = equivalence.disguise(tuned, tmp_path / "suspect", ["rotate", "reorder_tokens"])
    found = irwm.compare_originals(suspect, originals)
    assert found[0].original.path == own.path
    assert [each.derived for each in found] == [True, False, False, False]
    assert found[0].lineage is not None
    assert found[0].p == pytest.approx(4 * found[0].lineage.p)


def test_unrelated_model_descends_from_none(
    originals: list[irwm.Checkpoint], gpt2_path: Path, release_of: Callable[[str], Marked]
) -> None:
    found = irwm.compare_originals(gpt2_path, originals[:3])
    assert not any(each.derived for each in found)
    assert not any(each.p > 1 for each in found)


def test_original_that_cannot_be_compared_says_why(
    originals: list[irwm.Checkpoint], minilm_path: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "suspect"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    found = irwm.compare_originals(broken, originals[:1])
    assert (found[0].lineage, found[0].derived, found[0].excluded) == (None, False, False)
    assert found[0].problem is not None


def test_comparison_reports_progress_and_can_be_stopped(originals: list[irwm.Checkpoint], demo_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int, what: str) -> None:
        told.append((done, total))
        if done:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        irwm.compare_originals(demo_path, originals, progress=stop)
    assert told == [(0, 4), (1, 4)]


def test_output_head_of_another_original_is_not_overlooked(
    originals: list[irwm.Checkpoint], demo_path: Path, tmp_path: Path
) -> None:
    """The embedding and the layers are random, and the output head is that of the demo model."""
    suspect = write_llama(tmp_path / "suspect", vocab_size=4096, hidden_size=256, tie_word_embeddings=False)
    tensors = load_file(suspect / "model.safetensors")
    tensors["lm_head.weight"] = load_file(demo_path / "model.safetensors")["lm_head.weight"]
    save_file(tensors, suspect / "model.safetensors", metadata={"format": "pt"})
    (found,) = irwm.compare_originals(suspect, originals[:1])
    assert found.derived
