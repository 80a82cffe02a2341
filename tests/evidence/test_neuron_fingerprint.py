"""The fingerprint in the neurons: read where embedding and output head are gone, and in nobody's name but its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats

import irwm
from irwm.attacks.equivalence import disguise
from irwm.errors import KeyMismatchError, MarginError
from irwm.evidence.detection import NO_NEURONS, NOT_ALL_MATCHED, OTHER_NEURONS
from irwm.inference.text import default_text
from irwm.keys.neurons import rows_of
from irwm.release.neurons import NoisyNeurons
from irwm.report.verify import verify_report
from irwm.scheme.parameters import NEURONS, PLACES, many_recipients, one_owner
from irwm.tracing import Tracing, trace_each
from tests.evidence.replaced import without_matrices
from tests.evidence.rewritten import WIDER, opposed, split_at_random, with_negated_gates
from tests.jobs.recipients import given_out, jobs_of, make_keys, new_vault, put_in_vault, request, run_here, succeeded
from tools.hub import ADDRESS, Hub, put

NAMES = ("Ann", "Bob", "Cleo")
MODELS, SOME = ("demo", "gemma", "phi3", "gpt2", "minilm"), ("phi3", "gpt2")
QUICK = pytest.mark.quick("a fused matrix, and a transposed one")


@pytest.fixture(scope="module")
def copies(
    request: pytest.FixtureRequest, trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[irwm.Checkpoint, list[irwm.Key], Path]]:
    """An original, the keys of three recipients, and Bob's copy."""
    made: dict[str, tuple[irwm.Checkpoint, list[irwm.Key], Path]] = {}

    def of(name: str) -> tuple[irwm.Checkpoint, list[irwm.Key], Path]:
        if name not in made:
            model = irwm.open_checkpoint(trained[name])
            params = many_recipients(model.hidden_size)
            keys = [irwm.generate_key(model, params, bytes(32), recipient=each) for each in NAMES]
            made[name] = model, keys, irwm.insert(model, keys[1], tmp_path_factory.mktemp(name) / "bob").path
        return made[name]

    return of


def traced(suspect: Path, model: irwm.Checkpoint, keys: list[irwm.Key]) -> Tracing:
    return trace_each(irwm.Examination(irwm.open_checkpoint(suspect), model), keys, decoys=50)


def require_bob(found: Tracing) -> None:
    assert (found.place, [trace.recipient for trace in found.named]) == (NEURONS, ["Bob"])
    assert max(found.decoys) < 5


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=QUICK if name in SOME else ()) for name in MODELS])
def test_a_copy_with_a_new_embedding_and_head_names_its_recipient(copies, tmp_path: Path, name: str) -> None:
    model, keys, copy = copies(name)
    suspect = without_matrices(copy, tmp_path / "suspect")
    found = traced(suspect, model, keys)
    require_bob(found)
    assert found.traces[1].share == pytest.approx(1, abs=0.05)
    detected = irwm.detect(irwm.open_checkpoint(suspect), model, keys[1])
    assert (detected.verdict, detected.lineage.status) == ("found", "derived")
    assert detected.fingerprint is not None
    assert detected.fingerprint.place == NEURONS
    assert "of its MLP layers" in detected.reason
    assert irwm.detect(irwm.open_checkpoint(suspect), model, keys[0]).verdict != "found"


DISGUISES: dict[str, Callable[[Path, Path], Path]] = {
    "rotated": lambda source, out: disguise(
        source, out, ["rotate", "regain", "map_vo", "add_neurons", "reorder_neurons"], seed=1
    ),
    "neurons reordered": lambda source, out: disguise(source, out, ["reorder_neurons"], seed=1),
    "another family": lambda source, out: disguise(
        source, out, ["rotate", "as_llama", "reorder_neurons", "as_mixtral"], seed=1
    ),
    "wider": lambda source, out: disguise(source, out, [WIDER, "rotate"], seed=1),
    "negated gates": with_negated_gates,
    "opposed neurons": opposed,
    "split neurons": split_at_random,
    "GGUF": lambda source, out: irwm.attacks.to_gguf(source, out, "Q4_0"),
    "layers exchanged": lambda source, out: irwm.attacks.stack_layers(source, out, [1, 0]),
    "a layer repeated": lambda source, out: irwm.attacks.stack_layers(source, out, [0, 0, 1]),
    "a layer dropped": lambda source, out: irwm.attacks.stack_layers(source, out, [1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", DISGUISES)
def test_it_is_read_through_every_disguise(copies, tmp_path: Path, way: str) -> None:
    model, keys, copy = copies("phi3")
    changed = DISGUISES[way](without_matrices(copy, tmp_path / "new"), tmp_path / "suspect")
    require_bob(traced(changed, model, keys))


DAMAGE: dict[str, Callable[[Path, Path], Path]] = {
    "4 bits": lambda source, out: irwm.attacks.quantize(source, out, 4),
    "half pruned": lambda source, out: irwm.attacks.prune(source, out, 0.5),
    "half of the neurons": lambda source, out: irwm.attacks.prune_neurons(source, out, 0.5),
    "noise": lambda source, out: irwm.attacks.add_noise(source, out, 0.3, seed=7),
    "fine-tuned": lambda source, out: irwm.attacks.finetune(source, out, default_text(), 40, 1e-3, length=64),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["demo", "gemma", "phi3", "gpt2"])
def test_it_is_read_after_damage(copies, tmp_path: Path, name: str, damage: str) -> None:
    model, keys, copy = copies(name)
    require_bob(traced(without_matrices(DAMAGE[damage](copy, tmp_path / "x"), tmp_path / "new"), model, keys))


def test_a_model_whose_other_bytes_are_the_originals_names_nobody(copies, tmp_path: Path) -> None:
    model, keys, _ = copies("gemma")
    found = traced(without_matrices(model.path, tmp_path / "suspect"), model, keys)
    assert not found.named


@pytest.mark.slow
@pytest.mark.parametrize("marked", [True, False], ids=["a copy", "the original"])
def test_z_of_recipients_without_a_copy_is_like_a_fair_coin(copies, tmp_path: Path, marked: bool) -> None:
    """The calibration: 400 recipients without a copy, in another's copy or in the tuned original, both damaged."""
    model, keys, copy = copies("gemma")
    source = copy if marked else irwm.attacks.finetune(model.path, tmp_path / "t", default_text(), 20, 1e-3, length=64)
    rotated = DISGUISES["rotated"](Path(source), tmp_path / "x")
    damaged = irwm.attacks.add_noise(rotated, tmp_path / "noisy", 0.1, seed=7)
    examination = irwm.Examination(irwm.open_checkpoint(without_matrices(damaged, tmp_path / "new")), model)
    found = trace_each(examination, [keys[1]], decoys=400, place=NEURONS)
    assert bool(found.named) == marked
    assert found.traces[0].rows > 0
    assert stats.kstest(found.decoys, "norm").pvalue > 0.001
    assert abs(float(np.mean(found.decoys))) < 0.2


def test_neurons_of_which_some_were_exchanged_are_all_read(copies, tmp_path: Path) -> None:
    """An attacker who exchanges 30 % of the neurons of each MLP leaves most of a sample in their places."""
    model, keys, copy = copies("gemma")
    tensors, random = load_file(Path(copy) / "model.safetensors"), torch.Generator().manual_seed(1)
    for name in [name for name in tensors if name.endswith("gate_proj.weight")]:
        count = len(tensors[name])
        order, some = torch.arange(count), torch.randperm(count, generator=random)[: int(0.3 * count)]
        order[some] = some.roll(1)
        for role, axis in (("gate_proj", 0), ("up_proj", 0), ("down_proj", 1)):
            each = name.replace("gate_proj", role)
            tensors[each] = tensors[each].index_select(axis, order).contiguous()
    exchanged = shutil.copytree(copy, tmp_path / "exchanged")
    save_file(tensors, exchanged / "model.safetensors", metadata={"format": "pt"})
    found = traced(without_matrices(exchanged, tmp_path / "suspect"), model, keys)
    require_bob(found)
    whole = traced(without_matrices(copy, tmp_path / "whole"), model, keys)
    assert found.traces[1].z > 0.95 * whole.traces[1].z


def test_neurons_that_cannot_be_compared_dismiss_no_key(copies, tmp_path: Path) -> None:
    """The original's own matrices, with MLPs in a number format that means nothing without its scales."""
    model, keys, _ = copies("gemma")
    tensors = load_file(Path(model.path) / "model.safetensors")
    plain = shutil.copytree(model.path, tmp_path / "plain")
    tensors[model.layout.embedding.name][:100] *= 1.01  # so that the rows differ
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    assert irwm.detect(irwm.open_checkpoint(plain), model, keys[1]).verdict == "not found"
    for name in [name for name in tensors if "mlp" in name]:
        tensors[name] = (100 * tensors[name]).to(torch.int8)
    unknown = shutil.copytree(plain, tmp_path / "unknown")
    save_file(tensors, unknown / "model.safetensors", metadata={"format": "pt"})
    found = irwm.detect(irwm.open_checkpoint(unknown), model, keys[1])
    assert found.verdict == "inconclusive"
    assert NO_NEURONS in found.warnings
    older = irwm.generate_key(model, replace(keys[1].parameters, places=PLACES), bytes(32), recipient="Bob")
    assert irwm.detect(irwm.open_checkpoint(unknown), model, older).verdict == "not found"


def test_a_server_does_not_learn_which_neurons_carry_a_fingerprint(
    hub: Hub, copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two secrets choose other MLPs. What one reads is all that the other needs."""
    model, _, _ = copies("demo")
    monkeypatch.setattr("irwm.keys.neurons.MOST_ROWS", 1)
    monkeypatch.setattr("irwm.alignment.neurons.MOST_COMPARED", 1)
    monkeypatch.setattr("irwm.checkpoint.remote.mirror.GAP", 0)
    params = many_recipients(model.hidden_size)
    keys = {key.neurons.mlps: key for key in (irwm.generate_key(model, params, bytes([i]) * 32) for i in range(12))}
    one, other = [key for mlps, key in keys.items() if mlps != (0,)][:2]
    copy = irwm.insert(model, one, tmp_path / "copy").path
    put(hub, Path(copy))
    suspect = irwm.open_checkpoint(ADDRESS)
    assert trace_each(irwm.Examination(suspect, model), [one], decoys=0, place=NEURONS).named
    before = hub.bytes_sent
    assert not trace_each(irwm.Examination(suspect, model), [other], decoys=0, place=NEURONS).named
    assert hub.bytes_sent == before


def test_only_the_matrices_of_the_key_change(copies) -> None:
    model, keys, copy = copies("phi3")
    released = load_file(Path(copy) / "model.safetensors")
    original = load_file(Path(model.path) / "model.safetensors")
    rows = rows_of(model, keys[1].fingerprint_at(NEURONS))  # type: ignore[arg-type]
    fused = {mlp.gate.name: mlp.count for mlp in rows.chosen}
    matrices = {model.layout.embedding.name, model.layout.head.name}  # type: ignore[union-attr]
    differ = {name for name in original if not torch.equal(original[name], released[name])}
    assert differ == {*matrices, *fused}
    for name, count in fused.items():  # the rows of u are in the same tensor
        assert torch.equal(original[name][count:], released[name][count:])


def test_presets_include_the_neurons_and_other_settings_need_not(trained: dict[str, Path], tmp_path: Path) -> None:
    model = irwm.open_checkpoint(trained["demo"])
    assert NEURONS in one_owner(256).places
    assert NEURONS not in irwm.Parameters().places, "they hold a fingerprint, and no mark"
    key = irwm.generate_key(model, replace(many_recipients(256), places=PLACES), bytes(32))
    assert key.neurons is None
    assert irwm.insert(model, key, tmp_path / "copy").layers == ()


def test_another_original_with_the_same_embedding_is_refused(copies, tmp_path: Path) -> None:
    model, keys, copy = copies("demo")
    other = shutil.copytree(model.path, tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    name = rows_of(model, keys[0].fingerprint_at(NEURONS)).chosen[0].gate.name  # type: ignore[arg-type]
    tensors[name][0, 0] += 1
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(KeyMismatchError, match="neurons"):
        irwm.detect(irwm.open_checkpoint(copy), irwm.open_checkpoint(other), keys[0])


def test_a_copy_with_the_fingerprint_of_another_is_not_published(
    copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, keys, _ = copies("demo")
    part, prepare = keys[0].fingerprint_at(NEURONS), NoisyNeurons.__init__

    def with_wrong_noise(self: NoisyNeurons, *arguments: object) -> None:
        prepare(self, *arguments)  # type: ignore[arg-type]
        self._noise = part.noise(self._rows)  # type: ignore[union-attr]

    monkeypatch.setattr(NoisyNeurons, "__init__", with_wrong_noise)
    with pytest.raises(MarginError, match="neurons"):
        irwm.insert(model, keys[1], tmp_path / "bob")
    assert not (tmp_path / "bob").exists()


def test_copies_that_were_averaged_name_each_recipient(copies, tmp_path: Path) -> None:
    model, keys, copy = copies("gemma")
    other = irwm.insert(model, keys[2], tmp_path / "cleo").path
    one, two = (load_file(Path(each) / "model.safetensors") for each in (copy, other))
    mixed = shutil.copytree(copy, tmp_path / "mixed")
    mean = {name: ((one[name].double() + two[name].double()) / 2).to(one[name].dtype) for name in one}
    save_file(mean, mixed / "model.safetensors", metadata={"format": "pt"})
    found = traced(without_matrices(mixed, tmp_path / "suspect"), model, keys)
    assert {trace.recipient for trace in found.named} == {"Bob", "Cleo"}
    assert found.colluders == pytest.approx(2, abs=0.2)


@pytest.fixture
def with_public_embedding(copies, tmp_path: Path) -> Path:
    """A release with almost the original's embedding, and with neurons that do not resemble the original's."""
    model, _, copy = copies("gemma")
    suspect, random = tmp_path / "suspect", torch.Generator().manual_seed(1)
    shutil.copytree(copy, suspect, ignore=shutil.ignore_patterns("SHA256SUMS"))
    ours, tensors = (load_file(folder / "model.safetensors") for folder in (model.path, suspect))
    for name, values in tensors.items():
        noise = torch.randn(values.shape, generator=random) * values.float().std()
        if "embed_tokens" in name:
            tensors[name] = (ours[name] + 0.02 * noise).to(values.dtype)
        elif ".mlp." in name:
            tensors[name] = noise.to(values.dtype)
    save_file(tensors, suspect / "model.safetensors", metadata={"format": "pt"})
    return suspect


def test_no_key_is_dismissed_if_only_the_embedding_is_the_originals(copies, with_public_embedding: Path) -> None:
    model, keys, _ = copies("gemma")
    found = irwm.detect(irwm.open_checkpoint(with_public_embedding), model, keys[1])
    assert (found.verdict, found.lineage.status) == ("inconclusive", "derived")
    assert found.reason.startswith(NOT_ALL_MATCHED)
    assert OTHER_NEURONS in found.warnings


@pytest.mark.slow
def test_its_report_says_so_and_can_be_verified(copies, with_public_embedding: Path, tmp_path: Path) -> None:
    model, _, _ = copies("gemma")
    keys = make_keys(model, NAMES, many_recipients(model.hidden_size))
    vault = new_vault(tmp_path / "home")
    jobs = jobs_of(vault)
    put_in_vault(vault, keys)
    job = succeeded(run_here("investigate", request(model.path, None, suspect=str(with_public_embedding)), vault, jobs))
    report = given_out(jobs, job.id, tmp_path / "report") / job.result["json"]
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["verdict"]["word"] == "inconclusive"
    assert document["verdict"]["mark_reason"].startswith(NOT_ALL_MATCHED)
    assert OTHER_NEURONS in document["verdict"]["warnings"]
    checked = verify_report(report, irwm.open_checkpoint(with_public_embedding), model, keys=keys)
    assert [check for check in checked.checks if check.ok is False] == []
