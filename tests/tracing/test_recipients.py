"""Tracing by noise: recipients who are named or not, independent of how the work is split."""

from __future__ import annotations

import math
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import norm

import irwm
from irwm.attacks import equivalence
from irwm.errors import KeyMismatchError, ParameterError
from irwm.evidence import fingerprint, sign_sums
from irwm.evidence.finding import ALIGNED
from irwm.evidence.sign_sums import Sums
from irwm.scheme.noise import places
from irwm.scheme.parameters import PLACES
from irwm.scheme.probabilities import rademacher_tail_log10
from irwm.tracing import recipients, trace_each
from irwm.tracing.recipients import RISK
from tests.recording.answers import write_recording
from tests.scheme.test_basis import dense
from tools.copies import copy_of, keys_for, other_names, with_noise, write_embedding, z_of
from tools.small_models import write_llama

NAMES = ["ann", "bob", "cid"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    folder = tmp_path_factory.mktemp("traced") / "model"
    return irwm.open_checkpoint(write_llama(folder, vocab_size=2500, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def keys(model: irwm.Checkpoint) -> list[irwm.Key]:
    """With noise that overwrites entries; tests/test_collusion.py has noise that is added."""
    return keys_for(model, NAMES, irwm.many_recipients(model.hidden_size, hides_rows=True))


@pytest.fixture(scope="module")
def copies(model: irwm.Checkpoint, keys: list[irwm.Key]) -> list[torch.Tensor]:
    return [copy_of(model, key).float() for key in keys]


@pytest.fixture(scope="module")
def anns(model: irwm.Checkpoint, copies: list[torch.Tensor], tmp_path_factory) -> irwm.Checkpoint:
    """Ann's copy with a little noise."""
    return write_embedding(model, with_noise(copies[0], 0.2), tmp_path_factory.mktemp("suspects") / "ann")


def names(traces) -> list[str]:
    return [trace.recipient for trace in traces if trace.named]


# The place that is read.


@pytest.fixture(scope="module")
def in_both(tmp_path_factory: pytest.TempPathFactory) -> tuple[irwm.Examination, list[irwm.Key]]:
    """Ann's copy of a model whose embedding and output head are both marked, with less noise in the head."""
    folder = tmp_path_factory.mktemp("both")
    model = irwm.open_checkpoint(write_llama(folder / "model", vocab_size=3000))
    params = irwm.Parameters(constraints=5, scale="auto", noise_coordinates=5)
    keys = [irwm.generate_key(model, params, bytes(32), recipient=name) for name in NAMES]
    copy = irwm.insert(model, keys[0], folder / "ann").path
    tensors = load_file(Path(copy) / "model.safetensors")
    for name, noise in (("model.embed_tokens.weight", 2.0), ("lm_head.weight", 0.3)):
        tensors[name] = with_noise(tensors[name], noise).contiguous()
    shutil.copytree(copy, folder / "noisy")
    save_file(tensors, folder / "noisy" / "model.safetensors", metadata={"format": "pt"})
    return irwm.Examination(irwm.open_checkpoint(folder / "noisy"), model), keys


def test_only_the_chosen_place_is_read(in_both) -> None:
    examination, keys = in_both
    for place in PLACES:
        found = trace_each(examination, keys, decoys=0, place=place)
        assert (found.place, found.places) == (place, 3), "corrected for all places all the same"
        assert names(found.traces) == ["ann"]
    with pytest.raises(ParameterError):
        trace_each(examination, keys, decoys=0, place="elsewhere")
    of_embedding = [replace(key, head=None) for key in keys]
    assert all(math.isnan(trace.z) for trace in trace_each(examination, of_embedding, decoys=0, place="head").traces)


def test_both_places_are_read_if_one_is_not_enough_for_the_accepted_risk(in_both) -> None:
    """A fingerprint that is clear by the usual limit names nobody at a far smaller accepted risk."""
    examination, keys = in_both
    embedding, head = (trace_each(examination, keys, decoys=0, place=place).traces[0].z for place in PLACES)
    assert head > embedding
    found = [trace_each(examination, keys, risk, decoys=0).traces[0].z for risk in (RISK, 1e-300)]
    assert found == [embedding, head]


# The bound on a sum of random signs, on which every name depends.


def all_sums(a: np.ndarray) -> np.ndarray:
    """The sums of +-a over all signs."""
    return (1.0 - 2.0 * (np.arange(2**a.size)[:, None] >> np.arange(a.size) & 1)) @ a


@pytest.mark.parametrize(
    "a",
    [
        np.ones(12),
        np.array([1.0, 1.0]),
        np.array([1e6, *np.ones(11)]),
        np.array([1e6, 1e6, *np.ones(10)]),
        2.0 ** np.arange(12),
        np.array([*np.ones(4), *np.full(8, 1e-9)]),
        1 / np.arange(1, 13),
        np.random.default_rng(0).standard_cauchy(12),
    ],
    ids=str,
)
def test_the_bound_is_never_below_the_true_tail(a: np.ndarray) -> None:
    sums = all_sums(np.abs(a)) / np.linalg.norm(a)
    for z in np.concatenate((np.unique(np.abs(sums)), np.linspace(0.01, 4, 60))):
        true = (sums >= z - 1e-12).mean()  # rounding must not hide a sum that only just reaches z
        assert 10.0 ** rademacher_tail_log10(z) >= true * (1 - 1e-9)


def test_the_bound_falls_and_stays_finite() -> None:
    z = np.concatenate((np.linspace(-5, 40, 4001), np.geomspace(40, 1e4, 200)))
    bound = rademacher_tail_log10(z)
    assert np.isfinite(bound).all()
    assert (np.diff(bound) <= 0).all()
    assert (bound[z <= 0] == 0).all()
    assert bound[-1] == pytest.approx(-1e8 / 2 / math.log(10), rel=1e-6)


def test_the_bound_is_near_the_normal_tail_where_names_are_given_and_1_without_a_comparison() -> None:
    for z in (5.0, 6.0, 8.0):
        true = norm.logsf(z) / math.log(10)
        assert true <= rademacher_tail_log10(z) < true + 0.51
    assert rademacher_tail_log10([np.nan, -3.0, 0.0]).tolist() == [0.0, 0.0, 0.0]
    assert np.isnan(Sums(np.zeros(1), np.zeros(1), np.zeros(1), 0.0, 0).z).all()


# Names.


def test_only_the_leaker_is_named(model, keys, anns) -> None:
    tracing = trace_each(irwm.Examination(anns, model), keys)
    assert names(tracing.traces) == ["ann"]
    assert tracing.ranked[0] is tracing.named[0]
    assert tracing.colluders == pytest.approx(1.0, abs=0.1)
    assert tracing.decoys.shape == (200,)
    assert np.abs(tracing.decoys).max() < 4.5


def test_added_noise_has_a_sign_for_each_of_its_places(model, tmp_path: Path) -> None:
    """z reaches the root of the number of places; with one sign for each row it would be that of the rows."""
    params = irwm.Parameters(
        positions=20, required_positions=12, constraints=4, scale="auto", noise_coordinates=4, spread=0.25
    )
    keys = keys_for(model, NAMES, params)
    suspect = write_embedding(model, copy_of(model, keys[0]), tmp_path / "ann")
    (ann,) = trace_each(irwm.Examination(suspect, model), keys).named
    assert ann.recipient == "ann"
    assert 0.85 * math.sqrt(2500 * 4) < ann.z <= math.sqrt(2500 * 4)
    assert ann.share == pytest.approx(1.0, abs=0.1)


def test_z_matches_its_definition(model, keys, anns) -> None:
    """Against the definition: signs times the difference in the basis, each row by its weight, over the deviation."""
    basis = keys[0].noise(model, keys[0].choices()).basis
    theirs = anns.embedding().double().numpy() / irwm.align(anns, model).scale
    change = theirs - model.embedding().double().numpy()
    difference = np.stack([row @ dense(basis, 64, token) for token, row in enumerate(change)])
    for key, trace in zip(keys, irwm.trace(anns, model, keys), strict=True):
        positions, signs = places(key.derivation.noise_key(), np.arange(2500), 2, 64)
        centred = difference - difference.mean(axis=0)
        units = np.linalg.norm(model.embedding().double().numpy(), axis=1)
        terms = (np.take_along_axis(centred, positions, axis=1) * signs).sum(axis=1)
        terms *= units / np.square(centred).mean(axis=1)
        assert trace.z == pytest.approx(terms.sum() / np.linalg.norm(terms), abs=0.15)


def test_traces_are_in_key_order(model, keys, anns) -> None:
    forth, back = irwm.trace(anns, model, keys), irwm.trace(anns, model, keys[::-1])
    assert [trace.recipient for trace in forth] == NAMES
    assert forth == back[::-1]  # and equal in a second run


def test_key_without_noise_is_not_traced(model, keys, anns) -> None:
    (plain,) = keys_for(model, ["dan"], irwm.Parameters(scale="auto"))
    traces = irwm.trace(anns, model, [plain, *keys])
    assert math.isnan(traces[0].z)
    assert (traces[0].named, traces[0].log10_p, traces[0].rows) == (False, 0.0, 0)
    assert names(traces) == ["ann"]
    alone = trace_each(irwm.Examination(anns, model), [plain])
    assert math.isnan(alone.colluders)
    assert alone.decoys.size == 0


def test_keys_of_several_owners_and_settings_are_traced_together(model, keys, copies, anns, tmp_path: Path) -> None:
    uninvolved = keys_for(model, NAMES, secret=bytes([9]) * 32)
    others = keys_for(model, NAMES, irwm.Parameters(constraints=3, noise_coordinates=3, noise_level="global"))
    tracing = trace_each(irwm.Examination(anns, model), [*uninvolved, keys[0], *others], decoys=200)
    assert [trace.named for trace in tracing.traces] == [False] * 3 + [True] + [False] * 3
    assert tracing.decoys.size == 200
    theirs = write_embedding(model, copy_of(model, others[1]), tmp_path / "global")
    (named,) = trace_each(irwm.Examination(theirs, model), [*uninvolved, *keys, *others]).named
    assert named == irwm.trace(theirs, model, [*uninvolved, *keys, *others])[7]
    assert named.share == pytest.approx(1.0, abs=0.1)


def test_original_is_no_recipients_copy(model, keys) -> None:
    tracing = trace_each(irwm.Examination(model, model), keys)
    assert all(math.isnan(trace.z) and not trace.named and trace.log10_risk == 0.0 for trace in tracing.traces)


def test_unrelated_model_names_no_recipient_with_reason(tiny_path: Path, tmp_path: Path) -> None:
    model, other = (irwm.open_checkpoint(path) for path in (tiny_path, write_llama(tmp_path / "other", seed=5)))
    tracing = trace_each(irwm.Examination(other, model), keys_for(model, NAMES))
    assert names(tracing.traces) == []
    assert not tracing.alignment.aligned


def test_trace_refuses_keys_of_another_original_and_invalid_risks(model, keys, anns, tiny_path: Path) -> None:
    (foreign,) = keys_for(irwm.open_checkpoint(tiny_path), ["eve"])
    with pytest.raises(KeyMismatchError):
        irwm.trace(anns, model, [*keys, foreign])
    for risk in (0.0, 1.0, -1e-6, math.nan):
        with pytest.raises(ParameterError):
            irwm.trace(anns, model, keys, risk=risk)
    with pytest.raises(ParameterError):
        irwm.trace(anns, model, [])


DISGUISES = {
    "columns permuted": lambda folder, out: equivalence.permute_residual(folder, out, seed=3),
    "rotated": lambda folder, out: equivalence.rotate(folder, out, seed=3),
    "rescaled": lambda folder, out: equivalence.rescale(folder, out, factor=3.0),
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_copy_names_its_recipient(model, keys, anns, tmp_path: Path, disguise: str) -> None:
    suspect = irwm.open_checkpoint(DISGUISES[disguise](anns.path, tmp_path / "disguised"))
    traces = irwm.trace(suspect, model, keys)
    assert names(traces) == ["ann"]
    assert traces[0].share == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_copy_of_demo_with_a_third_of_tokens_trimmed_names_recipient(demo_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(demo_path)
    keys = keys_for(model, NAMES)
    release = irwm.insert(model, keys[1], tmp_path / "release")
    trimmed = equivalence.trim_tokens(release.path, tmp_path / "trimmed", fraction=0.3, seed=3)
    turned = irwm.open_checkpoint(equivalence.rotate(trimmed, tmp_path / "turned", seed=3))
    traces = irwm.trace(turned, model, keys)
    assert names(traces) == ["bob"]
    assert traces[1].rows < 0.75 * model.vocab_size


def test_broken_and_planted_rows_do_not_change_names(model, keys, copies, tmp_path: Path) -> None:
    damaged = copies[0].clone()
    damaged[5:9] = math.nan
    damaged[17] = math.inf
    damaged[1000] = 3e38  # finite, and its square is not
    damaged[1300] *= 1e6
    damaged[2499] = 0.0
    traces = irwm.trace(write_embedding(model, damaged, tmp_path / "damaged"), model, keys)
    assert names(traces) == ["ann"]
    assert traces[0].rows <= 2500 - 6
    clean = irwm.trace(write_embedding(model, copies[0], tmp_path / "clean"), model, keys)
    assert traces[0].z > 0.95 * clean[0].z


def test_risk_is_corrected_for_every_recipient(model, keys, anns) -> None:
    many = [*other_names(keys[0], [f"other {i}" for i in range(97)]), *keys]
    few, more = irwm.trace(anns, model, keys)[0], irwm.trace(anns, model, many)[97]
    assert (few.z, few.log10_p) == (more.z, more.log10_p)
    assert few.log10_risk == pytest.approx(few.log10_p + math.log10(3 * 2 * 2))
    assert more.log10_risk == pytest.approx(more.log10_p + math.log10(100 * 2 * 2))


def test_recipient_is_named_only_within_the_requested_risk(model, keys, copies, tmp_path: Path) -> None:
    faint = 0.004 * copies[0] + 0.996 * model.embedding()
    suspect = write_embedding(model, with_noise(faint, 0.05), tmp_path / "faint")
    (trace, *_) = irwm.trace(suspect, model, keys)
    assert -12 < trace.log10_risk < -0.5
    just = 10.0**trace.log10_risk
    assert irwm.trace(suspect, model, keys, risk=just * 1.01)[0].named
    assert not irwm.trace(suspect, model, keys, risk=just * 0.99)[0].named


def test_a_first_pass_names_the_same_recipients(model, keys, copies, tmp_path: Path, monkeypatch) -> None:
    suspect = write_embedding(model, with_noise(sum(copies) / 3, 0.3), tmp_path / "mean")
    many = [*other_names(keys[0], [f"other {i}" for i in range(300)]), *keys]
    full = trace_each(irwm.Examination(suspect, model), many, decoys=20)
    for name, value in (("MOST_PLACES", 10_000), ("FINALISTS", 25), ("_RECIPIENTS_PER_TASK", 70)):
        monkeypatch.setattr(recipients, name, value)
    monkeypatch.setattr(fingerprint, "FIRST_PASS_RUN", 60)
    fast = trace_each(irwm.Examination(suspect, model), many, decoys=20)
    assert names(fast.traces) == names(full.traces) == NAMES
    assert (fast.first_pass_rows, fast.rows) == (480, 2500)
    assert [trace.rows for trace in fast.traces].count(480) == 303 - 25
    # Equal up to the centre, which comes from other rows.
    assert z_of(fast.traces[300:]) == pytest.approx(z_of(full.traces[300:]), rel=0.01)
    assert fast.decoys == pytest.approx(full.decoys, abs=0.2)
    # Ruled-out recipients were scored once, the others twice; the odds are corrected for both looks, both
    # maps and both forms of evidence.
    last = fast.traces[-1]
    assert last.log10_risk == pytest.approx(last.log10_p + math.log10(2 * 2 * 2 * 303))


@pytest.mark.parametrize("first_pass", [False, True])
def test_corrupting_guessed_rows_does_not_prevent_tracing(
    model, keys, copies, tmp_path: Path, monkeypatch, first_pass: bool
) -> None:
    """The centre of the differences, and the first pass, use rows that only the release's secret determines."""
    monkeypatch.setattr(fingerprint, "FIRST_PASS_RUN", 60)
    if first_pass:
        monkeypatch.setattr(recipients, "MOST_PLACES", 10_000)
        monkeypatch.setattr(recipients, "FINALISTS", 10)
    corrupted = copies[0].clone()
    guessed = np.concatenate([np.arange(start, start + 60) for start in np.linspace(0, 2440, 8).astype(int)])
    size = 1e4 * float(corrupted.std())
    noise = torch.randn(len(guessed), corrupted.shape[1], generator=torch.Generator().manual_seed(3))
    corrupted[guessed] = size * noise
    suspect = write_embedding(model, corrupted, tmp_path / "corrupted")
    many = [*other_names(keys[0], [f"other {i}" for i in range(300)]), *keys]
    found = trace_each(irwm.Examination(suspect, model), many, decoys=0)
    assert names(found.traces) == ["ann"]
    assert found.traces[300].share == pytest.approx(1.0, abs=0.1)
    one, other = (fingerprint.first_pass_spans(2500, bytes([secret]) * 32) for secret in (1, 2))
    assert one != other


@pytest.mark.slow
def test_other_processes_give_identical_numbers(model, keys, copies, anns, monkeypatch) -> None:
    monkeypatch.setattr(sign_sums, "_ROWS_PER_TASK", 512)
    said: list[tuple[int, int]] = []
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        there = trace_each(
            irwm.Examination(anns, model),
            keys,
            executor=pool,
            decoys=5,
            progress=lambda done, total, _: said.append((done, total)),
        )
        monkeypatch.setattr(recipients, "MOST_PLACES", 10)
        monkeypatch.setattr(fingerprint, "FIRST_PASS_RUN", 60)
        fast_there = trace_each(irwm.Examination(anns, model), keys, executor=pool, decoys=5)
    fast_here = trace_each(irwm.Examination(anns, model), keys, decoys=5)
    monkeypatch.undo()
    monkeypatch.setattr(sign_sums, "_ROWS_PER_TASK", 512)
    here = trace_each(irwm.Examination(anns, model), keys, decoys=5)
    assert there.traces == here.traces
    assert fast_there.traces == fast_here.traces
    assert np.array_equal(there.decoys, here.decoys)
    assert said == [(i, 5) for i in range(6)]


def test_one_changed_row_is_no_evidence(model, keys, copies, tmp_path: Path) -> None:
    """Its only term is its own deviation, so z is 1 or -1 for any content of the row. A row of the sample that
    determines the centre would move all others a little."""
    embedding = model.embedding()
    spans = fingerprint.first_pass_spans(model.vocab_size, keys[0].derivation.basis_key())
    row = min(set(range(model.vocab_size)) - {i for span in spans for i in range(*span)})
    embedding[row] = copies[0][row]
    examination = irwm.Examination(write_embedding(model, embedding, tmp_path / "row"), model)
    traces = trace_each(examination, keys, maps=(ALIGNED,)).traces
    assert np.abs(z_of(traces)) == pytest.approx(np.ones(3))
    assert trace_each(examination, keys).named == ()


def test_share_of_copy_known_by_answers_is_one(demo_path: Path, tmp_path: Path) -> None:
    """Rows from answers are stretched: under a rotation alone one copy would count as a fraction of a copy."""
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, irwm.one_owner(model.hidden_size), bytes(32), "Example Labs", "Early access 7")
    copy = irwm.open_checkpoint(irwm.insert(model, key, tmp_path / "copy").path)
    suspect = irwm.open_suspect(write_recording(copy, model, tmp_path / "answers.safetensors"), model)
    tracing = trace_each(irwm.Examination(suspect, model), [key], decoys=20)
    assert (tracing.by, tracing.traces[0].named) == ("least squares", True)
    assert 0.9 < tracing.traces[0].share < 1.1
