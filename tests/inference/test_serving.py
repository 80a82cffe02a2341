"""A copy that is served: the content of its answers, and the Lab's reading of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS
from irwm.attacks.trial import try_attack
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference import default_text, reference
from irwm.inference.serving import Serving, answers
from tests.conftest import Marked


def told(serving: Serving, logits: torch.Tensor) -> torch.Tensor:
    return serving.told(logits, torch.Generator().manual_seed(0))


def test_server_log_probabilities() -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
    plain = logits.log_softmax(-1)
    assert torch.equal(told(Serving(), logits), plain)
    assert torch.allclose(told(Serving(temperature=0.5), logits), (2 * logits).log_softmax(-1))
    rounded = told(Serving(decimals=1), logits)
    assert (rounded - plain).abs().max() <= 0.0501
    noisy = told(Serving(noise=0.2), logits) - plain
    assert 0.15 < float(noisy.std()) < 0.25
    flat = told(Serving(flat=0.5), logits)
    assert torch.allclose(flat.exp().sum(dim=1), torch.ones(5))
    assert [len(set(row.tolist())) for row in flat] == [21] * 5
    likeliest = told(Serving(top=7), logits)
    assert torch.isfinite(likeliest).sum(dim=1).tolist() == [7] * 5
    assert torch.allclose(likeliest.exp().sum(dim=1), torch.ones(5))
    for each in (rounded, noisy + plain, likeliest):
        assert (told(Serving(), each) <= 0).all()


def test_server_answers_equal_model_outputs(gemma_path: Path) -> None:
    """Compared with transformers, one prompt at a time."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = answers([gemma_path], default_text(), 70, seed=3)
    some = np.array([5, 900, 4095])
    assert (answers([gemma_path], default_text(), 70, tokens=some, seed=3) == found[:, some]).all()
    ids = AutoTokenizer.from_pretrained(gemma_path)(default_text(), return_tensors="pt").input_ids[0]
    starts = torch.randint(0, len(ids) - 16, (70,), generator=torch.Generator().manual_seed(3))
    model = AutoModelForCausalLM.from_pretrained(gemma_path, dtype=torch.float32).eval()
    with torch.no_grad():
        at = int(starts[69])
        expected = model(ids[None, at : at + 16]).logits[0, -1].log_softmax(-1)
    assert torch.allclose(torch.from_numpy(found[69]), expected, atol=1e-4)


def test_models_answer_alternately(gemma_path: Path, release_of: Callable[[str], Marked]) -> None:
    release = release_of("gemma").release
    both = answers([gemma_path, release], default_text(), 9)
    first, second = (answers([each], default_text(), 9) for each in (gemma_path, release))
    assert np.allclose(both[::2], first[::2], atol=1e-5)
    assert np.allclose(both[1::2], second[1::2], atol=1e-5)
    assert not np.allclose(first, second, atol=1e-5)


def test_invalid_requests_are_refused(gemma_path: Path, minilm_path: Path) -> None:
    with pytest.raises(ParameterError):
        answers([gemma_path], "A few words.", 3)
    with pytest.raises(UnsupportedCheckpointError):
        answers([minilm_path], default_text(), 3)


@pytest.fixture
def setup(release_of: Callable[[str], Marked], tmp_path: Path) -> Setup:
    marked = release_of("gemma")
    return Setup(Path(marked.original.path), Path(marked.release), marked.key, default_text(), tmp_path)


def test_lab_finds_mark_in_answers_and_measures_answers(setup: Setup) -> None:
    outputs = reference(setup.release, default_text(), 600)
    plain = try_attack(setup, ATTACKS["serve"], "float32", outputs)
    assert plain.finding.verdict == "found", plain.reason
    assert plain.finding.log10_risk < -20
    assert plain.utility is not None
    assert plain.utility.change == pytest.approx(0, abs=1e-4)
    noisy = try_attack(setup, ATTACKS["serve"], "noise", outputs)
    assert noisy.utility is not None
    assert noisy.utility.change is not None
    assert noisy.utility.change > 0.005, "noise on the answers has a cost for the customer"
    assert not list(setup.scratch.iterdir())


def test_copy_that_answers_cannot_identify_states_the_reason(
    setup: Setup, demo_path: Path, minilm_path: Path, release_of: Callable[[str], Marked]
) -> None:
    serve = ATTACKS["serve"]
    assert serve.why_not(setup) is None
    assert serve.why_not(setup, "turns")
    demo = irwm.open_checkpoint(demo_path)
    alone = irwm.generate_key(demo, irwm.Parameters.paper(), secret=bytes(32))
    assert serve.why_not(replace(setup, original=demo_path, release=demo_path, key=alone))
    minilm = release_of("minilm")
    encoder = replace(setup, original=minilm_path, release=Path(minilm.release), key=minilm.key)
    assert serve.why_not(encoder)


def test_large_vocabulary_uses_chosen_tokens(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irwm.attacks.catalogue._MOST_ANSWERED", 1)
    out = setup.scratch / "out"
    attacked = ATTACKS["serve"].carry_out(setup, "float32", out)
    with np.load(attacked.path) as held:
        assert set(setup.key.marked_rows) <= set(held["token_ids"].tolist())
        assert held["log_probabilities"].shape == (192, len(held["token_ids"]))
