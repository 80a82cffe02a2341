"""One suspect and one key have one answer, however they are examined."""

from __future__ import annotations

import functools
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.__main__ import main
from irwm.checkpoint.weight_sets import ADAPTER_CONFIG
from irwm.evidence.detection import ENOUGH_LOG10_RISK
from irwm.evidence.verdict import DISMISSED_LOG10_RISK
from irwm.ownership.dispute import Claim, resolve
from storage import Vault
from storage.encryption import Cost
from tests.jobs.recipients import averaged, jobs_of, make_keys, put_in_vault, request, run_here
from tools.small_models import write_llama
from ui.services.stored_results import overview_of

NAMES = ("Ada", "Ben", "Cleo")
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FOUND, NOT_FOUND, INCONCLUSIVE = "found", "not found", "inconclusive"
# The verdict on each suspect for each of the three keys.
EXPECTED = {
    "fingerprint only": (FOUND, NOT_FOUND, NOT_FOUND),
    "mark only": (FOUND, NOT_FOUND, NOT_FOUND),
    "copy": (FOUND, NOT_FOUND, NOT_FOUND),
    "mean of two": (FOUND, FOUND, NOT_FOUND),
    "rotated": (FOUND, NOT_FOUND, NOT_FOUND),
    "noisy": (FOUND, NOT_FOUND, NOT_FOUND),
    "faint": (FOUND, NOT_FOUND, NOT_FOUND),
    "copy of a key that is not tried": (NOT_FOUND,) * 3,
    "original": (NOT_FOUND,) * 3,
    "adapter": (INCONCLUSIVE,) * 3,
    "unrelated": (INCONCLUSIVE,) * 3,
}


@dataclass(frozen=True)
class Answer:
    """What one entry point says of one key on one suspect; odds that are clear enough are equal, whatever they are."""

    verdict: str
    log10_risk: float | None

    @classmethod
    def of(cls, verdict: str, log10_risk: float) -> Answer:
        weighs = log10_risk <= DISMISSED_LOG10_RISK
        return cls(verdict, round(max(log10_risk, ENOUGH_LOG10_RISK), 6) if weighs else None)


@dataclass(frozen=True)
class World:
    original: Path
    keys: list[irwm.Key]
    suspects: Path

    @property
    def model(self) -> irwm.Checkpoint:
        return irwm.open_checkpoint(self.original)

    def opened(self, name: str) -> irwm.Checkpoint:
        return irwm.open_suspect(self.suspects / name, self.model)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("one-answer")
    original, suspects = write_llama(root / "original", vocab_size=3000), root / "suspects"
    suspects.mkdir()
    model = irwm.open_checkpoint(original)
    *keys, other = make_keys(model, [*NAMES, "Dora"])
    copies = {key.recipient: Path(irwm.insert(model, key, root / key.recipient).path) for key in (*keys[:2], other)}
    plain = load_file(original / "model.safetensors")

    def changed(name: str, change: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        """Ada's copy with other rows in both matrices; `change` gets the copy's, the original's and the marked rows."""
        tensors = load_file(copies["Ada"] / "model.safetensors")
        for place, matrix in (("embedding", EMBEDDING), ("head", HEAD)):
            part = keys[0].at(place)
            assert part is not None
            tensors[matrix] = change(tensors[matrix], plain[matrix], torch.from_numpy(part.marked_rows)).contiguous()
        (suspects / name).mkdir()
        shutil.copy(original / "config.json", suspects / name)
        save_file(tensors, suspects / name / "model.safetensors", metadata={"format": "pt"})

    def noisy(copy: torch.Tensor, _: torch.Tensor, __: torch.Tensor, level: float = 0.5) -> torch.Tensor:
        return copy + level * copy.std() * torch.randn(copy.shape, generator=torch.Generator().manual_seed(0))

    changed("copy", lambda copy, _, __: copy)
    changed("mark only", lambda copy, plain, rows: plain.index_copy(0, rows, copy[rows]))
    changed("fingerprint only", lambda copy, plain, rows: copy.index_copy(0, rows, plain[rows]))
    changed("noisy", noisy)
    changed("faint", functools.partial(noisy, level=3.0))
    averaged([copies["Ada"], copies["Ben"]], suspects / "mean of two")
    shutil.copytree(copies["Dora"], suspects / "copy of a key that is not tried")
    shutil.copytree(original, suspects / "original")
    irwm.attacks.equivalence.rotate(copies["Ada"], suspects / "rotated")
    write_llama(suspects / "unrelated", vocab_size=3000, seed=5)
    lora(suspects / "adapter")
    return World(original, keys, suspects)


def lora(folder: Path) -> None:
    """An adapter that changes one matrix of layer 0 and has no embedding."""
    folder.mkdir()
    where, made = "base_model.model.model.layers.0.self_attn.q_proj", torch.Generator().manual_seed(1)
    tensors = {
        f"{where}.lora_A.weight": torch.randn(4, 64, generator=made),
        f"{where}.lora_B.weight": torch.randn(64, 4, generator=made),
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config))


@pytest.fixture(scope="module")
def one_by_one(world: World) -> Callable[[str], list[Answer]]:
    """The answers of `irwm.detect` on a suspect, which the other entry points must give as well."""

    @functools.cache
    def detected(name: str) -> list[Answer]:
        found = [irwm.detect(world.opened(name), world.model, key, keys_tried=len(NAMES)) for key in world.keys]
        return [Answer.of(each.verdict, each.log10_risk) for each in found]

    return detected


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXPECTED)
def test_detect_gives_the_expected_verdicts(world: World, one_by_one: Callable[[str], list[Answer]], name: str) -> None:
    """`detect` of each key, and `detect_each` of all."""
    assert tuple(answer.verdict for answer in one_by_one(name)) == EXPECTED[name]
    found = irwm.detect_each(irwm.Examination(world.opened(name), world.model), world.keys)
    assert [Answer.of(each.verdict, each.log10_risk) for each in found] == one_by_one(name)
    if name == "faint":  # its odds are compared and not cut off
        (found, *_) = one_by_one(name)
        assert found.log10_risk is not None
        assert ENOUGH_LOG10_RISK < found.log10_risk < DISMISSED_LOG10_RISK


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXPECTED)
def test_trace_names_recipients_whose_fingerprint_is_found(world: World, name: str) -> None:
    named = [trace.recipient for trace in irwm.trace(world.opened(name), world.model, world.keys) if trace.named]
    whose = [key for key, verdict in zip(NAMES, EXPECTED[name], strict=True) if verdict == FOUND]
    assert named == ([] if name == "mark only" else whose)


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXPECTED)
def test_the_command_gives_the_same_answers(
    world: World, one_by_one: Callable[[str], list[Answer]], name: str, tmp_path: Path, capsys
) -> None:
    given = ["detect", str(world.suspects / name), "--original", str(world.original), "--json"]
    for key in world.keys:
        (tmp_path / key.recipient).write_bytes(key.to_bytes())
        given += ["--key", str(tmp_path / key.recipient)]
    status = main(given)
    answer = json.loads(capsys.readouterr().out)
    assert [Answer.of(row["verdict"], row["log10_risk"]) for row in answer["keys"]] == one_by_one(name)
    words = {each.verdict for each in one_by_one(name)}
    assert status == answer["exit_code"] == (0 if FOUND in words else 3 if INCONCLUSIVE in words else 1)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EXPECTED)
def test_investigation_gives_the_same_answers_and_names(
    world: World, one_by_one: Callable[[str], list[Answer]], name: str, tmp_path: Path
) -> None:
    vault = vault_with(world, tmp_path)
    asked = request(world.original, None, suspect=str(world.suspects / name), decoys=20)
    job = run_here("investigate", asked, vault, jobs_of(vault))
    assert job.state == "done", job.error
    rows = {row["recipient"]: row for row in job.result["rows"]}
    answers = [of_row(rows[recipient]) for recipient in NAMES]
    assert answers == one_by_one(name)
    assert job.result["verdict"] == whole(one_by_one(name))


@pytest.mark.slow
def test_sweep_gives_the_same_verdicts_odds_and_names(
    world: World, one_by_one: Callable[[str], list[Answer]], tmp_path: Path
) -> None:
    vault = vault_with(world, tmp_path)
    jobs = jobs_of(vault)
    asked = request(world.original, None, folder=str(world.suspects), resume="", decoys=20)
    job = run_here("sweep", asked, vault, jobs)
    assert job.state == "done", job.error
    rows = {row["path"]: row for row in overview_of(jobs.files(job.id))["rows"]}
    for name in EXPECTED:
        row, answers = rows[name], one_by_one(name)
        assert row["verdict"] == whole(answers), name
        if row["verdict"] == FOUND:
            assert Answer.of(FOUND, row["log10_risk"]).log10_risk == strongest(answers), name
        found = [key for key, answer in zip(NAMES, answers, strict=True) if answer.verdict == FOUND]
        assert sorted(row["whose"]) == found, name


@pytest.mark.slow
def test_dispute_gives_the_same_verdicts_and_odds(world: World, one_by_one: Callable[[str], list[Answer]]) -> None:
    ours = Claim("us", world.model, world.keys[0])
    unrelated = world.opened("unrelated")
    theirs = Claim("them", unrelated, irwm.generate_key(unrelated, secret=bytes(32)))
    names = [name for name in EXPECTED if name != "unrelated"]
    outcome = resolve([ours, theirs], [(name, world.opened(name)) for name in names])
    for name in names:
        test, expected = outcome.test("us", name), one_by_one(name)[0]
        assert (test.finding.verdict if test.finding else INCONCLUSIVE) == expected.verdict, name
        if test.finding and expected.log10_risk is not None:  # a dispute corrects for all keys on all of its models
            here = test.log10_risk + math.log10(len(NAMES) / test.finding.keys_tried)
            assert Answer.of(FOUND, here).log10_risk == pytest.approx(expected.log10_risk), name


def vault_with(world: World, folder: Path) -> Vault:
    vault = Vault.create(folder / "home", "four unrelated plain words", cost=Cost(memory_kib=8, passes=1, lanes=1))
    put_in_vault(vault, world.keys)
    return vault


def of_row(row: Mapping[str, Any]) -> Answer:
    """The answer of an investigation: of a key's mark and fingerprint the one that shows more."""
    return Answer.of(FOUND if row["named"] else row["verdict"], min(row["log10_risk"], row["trace_log10_risk"]))


def whole(answers: Sequence[Answer]) -> str:
    """The verdict on a suspect."""
    words = {answer.verdict for answer in answers}
    return next(word for word in (FOUND, INCONCLUSIVE, NOT_FOUND) if word in words)


def strongest(answers: Sequence[Answer]) -> float | None:
    """The smallest odds of several keys."""
    return min((each.log10_risk for each in answers if each.log10_risk is not None), default=None)
