"""The original is fitted to the answers before they are scored, without any key."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest
import torch

import irwm
from irwm.answers import Fits
from irwm.answers.fits import FITTING
from irwm.answers.reading import tries_of
from irwm.answers.weights import LOG_PROBABILITIES
from irwm.errors import AnswersError, InsufficientMemoryError, ParameterError, UnsupportedCheckpointError
from irwm.inference import fitting
from irwm.inference.fitting import SOFT_PROMPT, WEIGHTS, Observed, fitted
from irwm.inference.likelihood import batches, gradients, log_probabilities, windows
from irwm.inference.loading import open_weights
from tests.answers.test_tracing import TINY, check_chance, invented, named_others
from tools.copies import keys_for
from tools.small_models import write_llama

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VOCABULARY, PROMPT, GENERATED, VECTORS = 600, 2, 30, 4
FAINT = replace(TINY, spread=0.1)
QUICK = Fits(steps=120, tokens=480, prompt=VECTORS, prompt_rate=0.3, weights_rate=3e-3)
# Enough where it does not matter what the fits achieve.
SHORT = replace(QUICK, steps=4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers depend on their context."""
    folder = tmp_path_factory.mktemp("model") / "original"
    return write_llama(folder, tie_word_embeddings=True, initializer_range=0.2)


@pytest.fixture(scope="module")
def copy(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "guilty"
    return irwm.insert(irwm.open_checkpoint(path), guilty_of(path), folder).path


def guilty_of(path: Path) -> irwm.Key:
    return keys_for(irwm.open_checkpoint(path), ["guilty"], FAINT)[0]


@torch.no_grad()
def served(copy: Path, count: int, *, context: bool = False, changed: bool = False) -> irwm.Answers:
    """What a copy adds to random prompts, after hidden vectors or with other weights of its norms."""
    model, generator = open_weights(copy).model, torch.Generator().manual_seed(0)
    layer = model.get_input_embeddings()
    for name, value in model.named_parameters() if changed else ():
        if "norm" in name:
            value.mul_(1 + 0.3 * torch.randn(value.shape, generator=generator))
    hidden = layer.weight.std() * torch.randn(count, VECTORS, layer.weight.shape[1], generator=generator)[:1]
    hidden = hidden.expand(count, -1, -1) if context else hidden[:, :0].expand(count, -1, -1)
    shown, told = torch.randint(VOCABULARY, (count, PROMPT), generator=generator), []
    for _ in range(GENERATED):
        logits = model(inputs_embeds=torch.cat([hidden, layer(shown)], 1)).logits
        values = logits[:, -1].log_softmax(-1)
        drawn = torch.multinomial(values.exp(), 1, generator=generator)
        told.append(values.gather(1, drawn))
        shown = torch.cat([shown, drawn], 1)
    logarithms = np.minimum(torch.cat(told, 1).double().numpy(), 0.0)
    return irwm.Answers(list(shown.numpy()), [PROMPT] * count, list(logarithms))


@pytest.mark.parametrize("kind", [SOFT_PROMPT, WEIGHTS])
def test_a_fit_raises_the_z_of_the_copy_that_a_difference_hides(path: Path, copy: Path, kind: str) -> None:
    answers = served(copy, 512, context=kind == SOFT_PROMPT, changed=kind == WEIGHTS)
    fits = replace(QUICK, kinds=(kind,))
    tries = tries_of(answers, irwm.open_checkpoint(path), [guilty_of(path)], "cpu", None, fits)
    (_, without), (_, after) = ([evidence for (evidence,) in readings] for readings in tries)
    assert (without.by, after.by) == (LOG_PROBABILITIES, f"{LOG_PROBABILITIES}, {kind}")
    assert after.z > without.z + 3


def test_recipients_without_a_copy_score_by_chance_after_fits(path: Path) -> None:
    model, z = irwm.open_checkpoint(path), []
    guilty = guilty_of(path)
    keys = [*named_others(guilty, 200), guilty]
    for seed in range(3):
        for readings in tries_of(invented(seed, 12), model, keys, "cpu", None, SHORT):
            z += [[each.z for each in reading] for reading in readings]
    assert len(z) == 3 * 3 * 2
    check_chance(np.array(z))


def test_every_fit_counts_whether_it_is_made_or_not(path: Path, copy: Path) -> None:
    model = irwm.open_checkpoint(path)
    innocent, guilty = keys = keys_for(model, ["innocent", "guilty"], FAINT)
    answers, calls = served(copy, 256), []
    found = irwm.detect_answers(answers, model, guilty, fits=SHORT, progress=lambda *each: calls.append(each))
    assert (found.verdict, found.tries, found.comparisons) == ("found", 3, 6)
    assert len(found.evidence) == 2
    assert not {what for _, _, what in calls} & set(FITTING.values()), "the first try found it"
    traces = irwm.trace_answers(answers, model, keys, fits=SHORT)
    assert traces[-1].log10_risk == pytest.approx(found.log10_p + math.log10(2 * 6))
    alone = irwm.detect_answers(answers, model, guilty)
    assert (alone.z, alone.comparisons) == (found.z, 2)
    hidden = irwm.detect_answers(answers, model, innocent, fits=SHORT)
    assert (hidden.verdict, len(hidden.evidence)) == ("inconclusive", 6)
    assert hidden.evidence == irwm.detect_answers(answers, model, innocent, fits=SHORT).evidence, "the seed decides all"


def test_progress_counts_the_steps_of_fits_and_can_stop_them(path: Path) -> None:
    model, keys, calls = irwm.open_checkpoint(path), [guilty_of(path)], []
    irwm.trace_answers(invented(0), model, keys, fits=SHORT, progress=lambda *each: calls.append(each))
    numbers, totals, said = zip(*calls, strict=True)
    assert (set(totals), list(numbers)) == ({numbers[-1]}, sorted(set(numbers)))
    assert set(FITTING.values()) < set(said)

    class Stop(Exception):
        pass

    def stop(_done: int, _total: int, what: str) -> None:
        if what == FITTING[WEIGHTS]:
            raise Stop

    with pytest.raises(Stop):
        irwm.trace_answers(invented(0), model, keys, fits=SHORT, progress=stop)


@pytest.mark.parametrize("most", [fitting.MOST_WEIGHTS, 0], ids=["whole", "low rank"])
def test_a_fit_of_the_weights_spares_embedding_and_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(fitting, "MOST_WEIGHTS", most)
    model = open_weights(write_llama(tmp_path / "untied", tie_word_embeddings=False)).model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    answers = invented(0)
    inputs = windows([len(each) for each in answers.sequences], answers.firsts, 24)
    observed = Observed(answers.sequences, inputs, None, 1.0)
    shown = torch.arange(8)[None]
    logits = model(shown).logits
    steps: list[int] = []
    with fitted(model, WEIGHTS, observed, replace(SHORT, steps=20), lambda: steps.append(1)) as prompt:
        assert prompt is None
        assert not torch.allclose(model(shown).logits, logits, atol=1e-3), "the fit changes what the model computes"
        changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert not changed & {"model.embed_tokens.weight", "lm_head.weight"}
    assert bool(changed) == bool(most)
    assert 1 <= len(steps) <= 20
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(shown).logits, logits)


def test_vectors_before_an_input_count_as_its_first_tokens(path: Path) -> None:
    model = open_weights(path).model
    weight = model.get_input_embeddings().weight
    first, rest = np.array([5, 6, 7]), np.arange(20, 30)
    longer = np.concatenate([first, rest])
    wanted = one_sequence(model, weight, longer, 4, None)
    found = one_sequence(model, weight, rest, 1, weight.detach()[torch.from_numpy(first)])
    np.testing.assert_allclose(found[0], wanted[0][3:], atol=1e-5)
    # As an output, each row has the same gradient; as an input, the vectors' tokens have none.
    others = np.setdiff1d(np.arange(VOCABULARY), first)
    np.testing.assert_allclose(found[1][others], wanted[1][others], atol=1e-5)


def one_sequence(
    model: PreTrainedModel, weight: torch.nn.Parameter, tokens: np.ndarray, first: int, prompt: torch.Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the tokens of a sequence, and the gradient of their sum from `first` on."""
    parts = batches(windows([len(tokens)], [first], 64), VOCABULARY)
    own = log_probabilities(model, [tokens], parts, lambda: None, prompt=prompt)
    y = np.where(np.arange(len(tokens)) < first, 0.0, 1.0)
    (((gradient,),),) = gradients(model, [weight], [tokens], [parts], [([y], 1.0)], lambda: None, prompt)
    return own[0][0], gradient


def test_unusable_settings_are_refused(path: Path) -> None:
    model, keys = irwm.open_checkpoint(path), [guilty_of(path)]
    for wrong in ({"kinds": ()}, {"kinds": ("magic",)}, {"kinds": (WEIGHTS, SOFT_PROMPT)}, {"steps": 0}, {"rank": -1}):
        with pytest.raises(ParameterError):
            Fits(**wrong)
    with pytest.raises(ParameterError, match="soft prompt"):
        irwm.trace_answers(invented(0), model, keys, fits=replace(SHORT, prompt=33))
    with pytest.raises(AnswersError) as found:
        irwm.trace_answers(invented(0, 3), model, keys, fits=SHORT)
    assert found.value.expected == "at least 4 sequences"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), InsufficientMemoryError),
        (RuntimeError("the sizes of tensors must match"), UnsupportedCheckpointError),
    ],
)
def test_too_little_memory_is_not_an_error_of_the_model(
    path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    """The caller may use the processor instead of a GPU, or end the tries."""

    def runs_out(*_: object, **__: object) -> NoReturn:
        raise raised

    model = open_weights(path).model
    monkeypatch.setattr(model, "forward", runs_out)
    parts = batches(windows([8], [1], 8), VOCABULARY)
    with pytest.raises(expected):
        log_probabilities(model, [np.arange(8)], parts, lambda: None)
