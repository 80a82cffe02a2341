"""The mark and the lineage through function-preserving disguises, alone, together and on top of changed weights.

`benchmarks/disguises.py` prints the whole table. These are its hardest lines and random compositions, of which
`make test` takes a sample and `make every` all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import irwm
from benchmarks.disguises import RENAMED, TRIMMED, everything, models, rows
from benchmarks.peers.rows import Row, halved, quantised, random_model, tuned
from irwm.attacks import finetune
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.inference import default_text, reference
from tests.conftest import Marked


@pytest.fixture(scope="module")
def releases(release_of: Callable[[str], Marked]) -> dict[str, Marked]:
    """One mark per trained model."""
    return {name: release_of(name.lower()) for name in models()}


def check(marked: Marked, suspect: Path, lost: int | None = None) -> irwm.Finding:
    """Found, derived, at least nine of ten present rows below 0.2, and missing rows are counted and reported."""
    model, key, _ = marked
    found = irwm.detect(irwm.open_checkpoint(suspect), model, key)
    assert found.verdict == "found", found.reason
    assert found.lineage.status == "derived", found.lineage.reason
    assert (found.ranks < 0.2).sum() >= 0.9 * found.present
    gone = key.parameters.positions - found.present
    assert not gone or any(f"marked rows missing from the suspect: {gone} of 50" in text for text in found.warnings)
    if lost is not None:
        assert abs(found.alignment.lost - lost) <= 0.01 * model.vocab_size
        assert not lost or any("rows are gone" in text for text in found.alignment.undone)
    return found


# A family's labels follow from its config alone, so a release has the labels of its original.
SINGLE = [
    (name, row.label)
    for name in ("demo", "gemma", "phi3", "gpt2")
    for row in rows(models()[name])
    if len(row.steps) == 1 and row.change is None
]


@pytest.mark.sweep
@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "label"), SINGLE)
def test_each_disguise_alone(releases: dict[str, Marked], tmp_path: Path, name: str, label: str) -> None:
    row = next(row for row in rows(releases[name].release) if row.label == label)
    check(releases[name], row.build(releases[name].release, tmp_path / "x"))


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("change", [None, quantised], ids=["as it is", "int4"])
@pytest.mark.parametrize("trimmed", [False, True], ids=["all rows", "40 % trimmed"])
@pytest.mark.parametrize("name", ["demo", "gemma", "phi3", "gpt2"])
def test_all_disguises_together(releases: dict[str, Marked], tmp_path: Path, name: str, trimmed: bool, change) -> None:
    model, _, release = releases[name]
    steps = (*((TRIMMED,) if trimmed else ()), *everything(release), RENAMED)
    suspect = Row("all", steps, change).build(release, tmp_path / "x", seed=7)
    found = check(releases[name], suspect, round(0.4 * model.vocab_size) if trimmed else 0)
    assert {"rows by content", "rotation"} <= {step.name for step in found.alignment.steps}


@pytest.mark.slow
def test_all_disguises_of_a_bert_with_int4_and_trimming(releases: dict[str, Marked], tmp_path: Path) -> None:
    model, _, release = releases["MiniLM"]
    suspect = Row("all", (TRIMMED, *everything(release), RENAMED), quantised).build(release, tmp_path / "x", seed=7)
    check(releases["MiniLM"], suspect, round(0.4 * model.vocab_size))


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("before", [halved, tuned])
def test_all_disguises_on_top_of_a_changed_model(releases: dict[str, Marked], tmp_path: Path, before) -> None:
    marked = releases["demo"]
    changed = before(marked[2], tmp_path / "changed")
    check(marked, Row("all", (*everything(changed), RENAMED)).build(changed, tmp_path / "x"), 0)


# Each may come in any order and more than once; renaming hides the family from later ones, so it comes last.
STEPS = (
    *("permute_residual", "flip_signs", "rotate", "rescale", "fold_gains", "regain", "map_qk", "map_vo"),
    *("reorder_heads", "reorder_neurons"),
    *(("reorder_tokens", {"tokenizer": tokenizer}) for tokenizer in ("keep", "drop")),
    *(("trim_tokens", {"fraction": 0.2, "tokenizer": tokenizer}) for tokenizer in ("keep", "drop")),
    ("pad_tokens", {"count": 50}),
    ("cast", {"dtype": "float32"}),
)


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("name", ["gemma", "phi3", "gpt2"])
def test_random_compositions(releases: dict[str, Marked], tmp_path: Path, name: str, seed: int) -> None:
    marked, draw = releases[name], np.random.default_rng(seed)
    steps = [STEPS[i] for i in draw.integers(len(STEPS), size=draw.integers(1, 7))]
    # At most two trims: with more, too few marked rows remain as evidence.
    trims = [step for step in steps if step[0] == "trim_tokens"]
    steps = [step for step in steps if step[0] != "trim_tokens"] + trims[:2]
    state = apply(read_state(marked[2]), [*steps, *([RENAMED] if draw.random() < 0.5 else [])], seed=seed)
    write_state(state, tmp_path / "x")
    found = check(marked, tmp_path / "x")
    if state.token_ids is not None:
        where = np.asarray(state.token_ids)
        present = where >= 0
        assert (found.alignment.rows[present] == where[present]).mean() > 0.99
        assert (found.alignment.rows[~present] < 0).mean() > 0.9 if not present.all() else True


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["gemma", "phi3", "gpt2"])
def test_random_unrelated_models_are_never_derived(
    releases: dict[str, Marked], tmp_path: Path, name: str, seed: int
) -> None:
    model, key, _ = releases[name]
    found = irwm.detect(irwm.open_checkpoint(random_model(model.path, tmp_path / "x", seed)), model, key)
    assert found.verdict != "found"
    assert found.lineage.status == "not derived"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_independently_trained_models_are_never_derived(releases: dict[str, Marked], tmp_path: Path, seed: int) -> None:
    """Same config, tokenizer and text, another random start; trained long enough that tokens have a meaning."""
    model, key, _ = releases["gemma"]
    found = irwm.detect(irwm.open_checkpoint(unrelated(model.path, tmp_path, seed)), model, key)
    assert found.verdict != "found"
    assert found.lineage.status == "not derived"


def unrelated(original: Path, folder: Path, seed: int) -> Path:
    """A model of the original's config trained on the demo model's held-out text for a few seconds."""
    start, text = random_model(original, folder / "start", seed), default_text()
    trained = finetune(start, folder / "trained", text, 160, 3e-3, length=64, seed=seed)
    before, after = (float(reference(model, text, 1024).losses.mean()) for model in (start, trained))
    assert after < before - 1.0  # it has learned something
    return trained
