"""Marks in the output head, a separate place: they survive changes of the embedding, and vice versa."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import kstest
from transformers import AutoModelForCausalLM

import irwm
from irwm.attacks.equivalence import apply, read_state, write_state
from irwm.errors import KeyFormatError, KeyMismatchError, ParameterError
from irwm.evidence.decoys import decoys
from irwm.evidence.verdict import of_both_places
from irwm.report.consistency import contradictions
from irwm.report.html import render_html
from irwm.report.reproduction import reproduce
from irwm.scheme.parameters import many_recipients, one_owner
from tests.checkpoint.test_served_model import answers_of
from tests.conftest import Marked
from tests.report.conftest import document_of

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    """The small Phi-3, whose head is a separate matrix, with the mark of the default settings."""
    return release_of("phi3")


def changed(release: Path, out: Path, change: Callable[[str, torch.Tensor], torch.Tensor]) -> irwm.Checkpoint:
    """A copy of a release with every tensor as `change` returns it."""
    shutil.copytree(release, out)
    file = out / "model.safetensors"
    tensors = {name: change(name, tensor).contiguous() for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    return irwm.open_checkpoint(out)


def without(name: str) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """One tensor redrawn, as if it had been trained from scratch."""
    noise = torch.Generator().manual_seed(1)

    def change(this: str, tensor: torch.Tensor) -> torch.Tensor:
        if this != name:
            return tensor
        return (torch.randn(tensor.shape, generator=noise) * tensor.float().std()).to(tensor.dtype)

    return change


def places(found: irwm.Finding) -> list[tuple[str, str]]:
    return [(each.form, each.place) for each in found.evidence]


def test_a_release_is_marked_in_both_places_and_nowhere_else(marked: Marked) -> None:
    before, after = (load_file(path / "model.safetensors") for path in (marked.original.path, marked.release))
    differing = [name for name in before if not torch.equal(before[name], after[name])]
    assert sorted(differing) == sorted([EMBEDDING, HEAD])
    assert marked.key.head is not None
    for name, part in ((EMBEDDING, marked.key), (HEAD, marked.key.head)):
        rows = (before[name] != after[name]).any(dim=1).nonzero()[:, 0].tolist()
        assert rows == sorted(part.marked_rows.tolist())
    assert set(marked.key.marked_rows) != set(marked.key.head.marked_rows)


def test_intact_release_is_found_by_embedding_corrected_for_both_places(marked: Marked) -> None:
    found = irwm.detect(irwm.open_checkpoint(marked.release), marked.original, marked.key)
    assert (found.verdict, places(found), found.places) == ("found", [("mark", "embedding")], 2)
    assert found.comparisons == found.maps * 2


@pytest.mark.slow
@pytest.mark.parametrize(("gone", "place"), [(EMBEDDING, "head"), (HEAD, "embedding")])
def test_mark_is_found_in_the_place_that_is_not_replaced(marked: Marked, gone: str, place: str, tmp_path: Path) -> None:
    suspect = changed(marked.release, tmp_path / "suspect", without(gone))
    found = irwm.detect(suspect, marked.original, marked.key)
    assert (found.verdict, found.place) == ("found", place)
    assert found.log10_p < -80
    assert found.lineage.status == "derived"
    assert found.commitment == marked.key.commitment
    wrong = irwm.generate_key(marked.original, marked.key.parameters, secret=bytes(32), owner="them")
    assert irwm.detect(suspect, marked.original, wrong).verdict != "found"


def test_several_tensors_in_either_place_are_stated(marked: Marked) -> None:
    found = irwm.detect(irwm.open_checkpoint(marked.release), marked.original, marked.key)
    one, other = replace(found, tensors_read=2), replace(found, place="head", tensors_read=3)
    for both in (of_both_places(one, other), of_both_places(replace(one, tensors_read=1), other)):
        assert [warning for warning in both.warnings if warning.startswith("3 tensors could be the output head")]


def test_unmarked_original_has_no_mark_in_either_place(marked: Marked) -> None:
    found = irwm.detect(marked.original, marked.original, marked.key)
    assert found.verdict == "not found"
    assert sorted(places(found)) == [("mark", "embedding"), ("mark", "head")]
    assert found.log10_risk > -2
    assert found.lineage.status == "derived"


def test_ranks_of_wrong_keys_in_the_head_are_uniform(marked: Marked) -> None:
    model = irwm.open_checkpoint(marked.original.path)
    head = model.output_head
    assert head is not None
    keys = [irwm.generate_key(model, secret=n.to_bytes(32, "little")).head for n in range(12)]
    examination = irwm.Examination(irwm.open_checkpoint(marked.release).likeliest_head, head)
    found = list(irwm.detect_each(examination, [key for key in keys if key is not None]))
    ranks = np.concatenate([each.ranks for each in found])
    assert kstest(ranks, "uniform").pvalue > 1e-3
    assert {each.verdict for each in found} == {"not found"}


def test_head_that_cannot_be_aligned_is_inconclusive_and_reported(marked: Marked, tmp_path: Path) -> None:
    """The embedding alone shows no mark; a warning states this, but it is not the verdict."""
    suspect = changed(marked.original.path, tmp_path / "suspect", without(HEAD))
    found = irwm.detect(suspect, marked.original, marked.key)
    assert (found.verdict, found.place, found.lineage.status) == ("inconclusive", "head", "derived")
    assert found.warnings  # that the embedding alone does not show the mark
    assert contradictions(document_of(marked.original, marked.key, suspect, found)) == []


@pytest.mark.slow
def test_disguised_head_rows_are_placed_by_the_embedding(marked: Marked, tmp_path: Path) -> None:
    """Rotated, with redrawn gains and reordered tokens, its rows cannot be identified by content alone."""
    steps = ["rotate", "regain", ("reorder_tokens", {"tokenizer": "drop"})]
    for name, folder in (("release", marked.release), ("original", marked.original.path)):
        write_state(apply(read_state(folder), steps, seed=3), tmp_path / name)
    suspect = irwm.open_checkpoint(tmp_path / "release")
    (head,) = irwm.Examination(suspect, marked.original).at("head").aligned
    assert head.alignment.aligned
    assert "rows by embedding" in [step.name for step in head.alignment.steps]
    unmarked = irwm.detect(irwm.open_checkpoint(tmp_path / "original"), marked.original, marked.key)
    assert (unmarked.verdict, unmarked.lineage.status) == ("not found", "derived")


@pytest.mark.slow
def test_a_report_of_the_head_follows_from_its_numbers_and_is_reproduced(marked: Marked, tmp_path: Path) -> None:
    suspect = changed(marked.release, tmp_path / "suspect", without(EMBEDDING))
    found = irwm.detect(suspect, marked.original, marked.key)
    document = document_of(marked.original, marked.key, suspect, found)
    assert list(contradictions(document)) == []
    assert reproduce(document, suspect, marked.original, marked.key) == []
    assert "output head" in render_html(document)
    ranked = decoys(irwm.Examination(suspect, marked.original), marked.key, found, number=400)
    assert ranked is not None
    assert ranked.log10_p.min() > -5
    corrupted = {**document, "evidence": [{**each, "place": "embedding"} for each in document["evidence"]]}
    assert [each.where for each in contradictions(corrupted)] == ["evidence[0].place"]


@pytest.mark.slow
def test_recipients_are_named_by_the_head_alone(phi3_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(phi3_path)
    names = ("ann", "bob", "cyd")
    keys = [irwm.generate_key(model, many_recipients(model.hidden_size), bytes(32), "us", name) for name in names]
    release = irwm.insert(model, keys[1], tmp_path / "bob").path
    suspect = changed(release, tmp_path / "suspect", without(EMBEDDING))
    assert [trace.recipient for trace in irwm.trace(suspect, model, keys) if trace.named] == ["bob"]


def test_a_tied_model_or_the_papers_mark_has_one_place(gemma_path: Path, phi3_path: Path) -> None:
    tied, untied = irwm.open_checkpoint(gemma_path), irwm.open_checkpoint(phi3_path)
    assert tied.output_head is None
    assert irwm.generate_key(tied, secret=bytes(32)).head is None
    assert irwm.generate_key(untied, irwm.Parameters.paper(), bytes(32)).head is None


@pytest.mark.parametrize("given", [(), ("head",), ("head", "embedding"), "embedding", ("embedding", "tail"), None])
def test_other_places_are_refused(given: object) -> None:
    with pytest.raises(ParameterError):
        irwm.Parameters(places=given)  # type: ignore[arg-type]


def test_key_round_trip_keeps_head(marked: Marked) -> None:
    again = irwm.Key.from_bytes(marked.key.to_bytes())
    assert (again, again.head, again.commitment) == (marked.key, marked.key.head, marked.key.commitment)
    assert again.head is not None
    assert again.head.embedding_fingerprint == marked.original.fingerprint
    assert again.head.derivation.bound != again.derivation.bound


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"attempt":', b'"attempt":-'),
        (b'"excluded_rows":[[', b'"excluded_rows":[[9,1],['),
        (b'"model_fingerprint":"', b'"model_fingerprint":"zz'),
    ],
)
def test_key_with_impossible_head_is_refused(marked: Marked, old: bytes, new: bytes) -> None:
    data = marked.key.to_bytes()
    where = data.index(b'"head":')
    with pytest.raises(KeyFormatError):
        irwm.Key.from_bytes(data[:where] + data[where:].replace(old, new, 1))


@pytest.mark.slow
def test_a_key_is_bound_to_the_head_of_its_original(marked: Marked, tmp_path: Path) -> None:
    """The embedding is correct, so the error shows only when the head is read."""
    other = changed(marked.original.path, tmp_path / "other", without(HEAD))
    suspect = changed(marked.release, tmp_path / "suspect", without(EMBEDDING))
    with pytest.raises(KeyMismatchError):
        irwm.detect(suspect, other, marked.key)


@pytest.mark.slow
def test_a_mark_in_the_head_is_read_from_answers(marked: Marked) -> None:
    d = marked.original.hidden_size
    answers = answers_of(marked.release, 3 * d // 2)
    suspect = irwm.suspect_from_answers(answers, marked.original)
    found = irwm.detect(suspect, marked.original, marked.key)
    assert (found.verdict, found.place, found.places) == ("found", "head", 1)
    assert found.log10_p < -60
    unmarked = irwm.suspect_from_answers(answers_of(marked.original.path, 3 * d // 2), marked.original)
    assert irwm.detect(unmarked, marked.original, marked.key).verdict != "found"


def test_answers_do_not_support_keys_without_head(phi3_path: Path) -> None:
    model = irwm.open_checkpoint(phi3_path)
    key = irwm.generate_key(model, irwm.Parameters.paper(), bytes(32))
    answers = torch.randn(200, model.vocab_size, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    suspect = irwm.suspect_from_answers(answers, model)
    with pytest.raises(KeyMismatchError):
        irwm.detect(suspect, model, key)


@pytest.mark.slow
def test_both_presets_run_in_transformers(phi3_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(phi3_path)
    key = irwm.generate_key(model, one_owner(model.hidden_size), bytes(32))
    release = irwm.insert(model, key, tmp_path / "release")
    assert len(release.head_rows) > 0.99 * model.vocab_size
    ids = torch.arange(16)[None]
    with torch.no_grad():
        one, two = (AutoModelForCausalLM.from_pretrained(p).eval()(ids).logits for p in (phi3_path, release.path))
    assert torch.nn.functional.cosine_similarity(one.flatten(), two.flatten(), dim=0) > 0.99
