"""Prompts are chosen by the information in what the original generates, and never by a key."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import irwm
from irwm.answers import prompts as choosing
from irwm.answers.random_prompts import Prompts
from irwm.answers.reading import readings_of
from irwm.errors import AnswersError, ParameterError, UnsupportedCheckpointError
from irwm.inference.continuations import continuations
from irwm.inference.likelihood import Window, information, matrix_of
from irwm.inference.loading import open_weights
from irwm.inference.text import default_text
from irwm.scheme.probabilities import rademacher_tail_log10
from tests.answers.test_tracing import TINY, VOCABULARY
from tools.copies import keys_for
from tools.small_models import write_llama

POOL = [Prompts(3, default_text()).prompt(number) for number in range(16)]
TOKENS = 4


@pytest.fixture(scope="module")
def tied_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("model") / "tied", tie_word_embeddings=True)


def chosen(path: Path, budget: int = 4, **given: Any) -> irwm.ChosenPrompts:
    return irwm.choose_prompts(irwm.open_checkpoint(path), budget, **({"pool": POOL, "tokens": TOKENS} | given))


def test_the_most_informative_prompts_are_chosen_each_time(gemma_path: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    first = chosen(gemma_path, progress=lambda *step: steps.append(step))
    assert first == chosen(gemma_path)
    assert len(first.prompts) == len(set(map(str, first.prompts))) == 4
    assert set(first.prompts) <= set(POOL)
    assert list(first.information) == sorted(first.information, reverse=True)
    everything = chosen(gemma_path, len(POOL), pool=[*POOL, *POOL])
    assert len(everything.prompts) == len(POOL), "equal prompts count once"
    assert first.prompts == everything.prompts[:4]
    assert first.usual == pytest.approx(np.mean(everything.information))
    assert min(first.information) > first.usual
    assert [done for done, *_ in steps] == list(range(1, steps[0][1] + 1))
    assert {total for _, total, _ in steps} == {len(steps)}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_information_equals_its_definition(tied: bool, tmp_path: Path) -> None:
    """sum_i sigma_i^2 ||d log p(v) / d W_i||^2, in the mean over the next token v."""
    few = 120
    model = open_weights(write_llama(tmp_path / "few", vocab_size=few, tie_word_embeddings=tied)).model
    tokens = np.random.default_rng(0).integers(0, few, 9)
    matrices = [matrix_of(model, head=head, shape=(few, 64)) for head in ([False] if tied else [False, True])]
    before = [matrix.detach().clone() for matrix in matrices]
    (found,) = information(model, matrices, [tokens], [[Window(0, 0, 9, 6)]], 200, 0, lambda: None)
    assert all(torch.equal(matrix, old) for matrix, old in zip(matrices, before, strict=True))
    assert np.isnan(found[:6]).all()
    for at in (6, 8):
        values = model(torch.tensor(tokens[None])).logits[0, at - 1].log_softmax(-1)
        expected = 0.0
        for token in range(few):
            own = torch.autograd.grad(values[token], matrices, retain_graph=True)
            squares = sum(
                float((g.square().sum(1) * matrix.detach().square().mean(1)).sum())
                for g, matrix in zip(own, matrices, strict=True)
            )
            expected += float(values[token].detach().exp()) * squares
        assert found[at] == pytest.approx(expected, rel=0.15)


def test_chosen_prompts_have_more_information_on_new_continuations(phi3_path: Path) -> None:
    """Measured with other continuations and other noise than the choice."""
    ranked = chosen(phi3_path, len(POOL))
    again = chosen(phi3_path, len(POOL), seed=1)
    new = dict(zip(again.prompts, again.information, strict=True))
    assert np.mean([new[each] for each in ranked.prompts[: len(POOL) // 4]]) > 1.05 * again.usual


def test_no_key_has_a_part_in_the_choice(gemma_path: Path) -> None:
    """Neither as an argument, nor through anything that the module imports."""
    assert set(inspect.signature(irwm.choose_prompts).parameters) == {
        "original", "budget", "pool", "tokens", "seed", "device", "progress",
    }  # fmt: skip
    assert not [name for name, value in vars(choosing).items() if "irwm.keys" in str(getattr(value, "__module__", ""))]


def test_tokens_chosen_by_a_recipients_signs_break_the_bound(tied_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's copy generated these tokens. The quarter of them that suits one recipient would name that recipient, and
    no other; any quarter that was chosen without the key does not."""
    opened = open_weights(tied_path)
    monkeypatch.setattr("irwm.answers.reading.open_weights", lambda *_, **__: opened)
    monkeypatch.setattr("irwm.answers.reading.TEMPERATURES", (1.0,))
    monkeypatch.setattr("irwm.answers.weights.TEMPERATURES", (1.0,))
    model, drawn = irwm.open_checkpoint(tied_path), np.random.default_rng(0).integers(0, VOCABULARY, (160, 16))
    victim, other = keys_for(model, ["victim", "other"], TINY)

    def z(sequences: np.ndarray) -> list[float]:
        (found,) = readings_of(irwm.Answers(list(sequences), [2] * len(sequences)), model, [victim, other], "cpu", None)
        return [each.z for each in found]

    by_signs = np.argsort([-z(each[None])[0] for each in drawn])[:40]
    accused, not_accused = z(drawn[by_signs])
    assert rademacher_tail_log10(np.array([accused]))[0] < -7
    assert abs(not_accused) < 3.5
    for part in np.split(drawn, 4):
        assert max(map(abs, z(part))) < 3.5


def test_a_continuation_ends_with_the_models_last_token(tied_path: Path) -> None:
    """And depends on its own numbers alone."""
    model = open_weights(tied_path).model
    prompts = [np.arange(5), np.arange(5, 10)]
    whole = continuations(model, prompts, 6, [(0, 0), (0, 1)])
    assert [len(each) for each in whole] == [11, 11]
    (alone,) = continuations(model, prompts[1:], 6, [(0, 1)])
    np.testing.assert_array_equal(alone, whole[1])
    assert model.generation_config is not None
    model.generation_config.eos_token_id = int(alone[7])
    (ended,) = continuations(model, prompts[1:], 6, [(0, 1)])
    assert ended[-1] == alone[7]
    assert len(ended) <= 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pool": []}, "pool of prompts is empty"),
        ({"budget": 0}, "number of prompts is out of range"),
        ({"budget": 17}, "number of prompts is out of range"),
        ({"tokens": 0}, "number of tokens is out of range"),
        ({"tokens": 10_000}, "number of tokens is out of range"),
        ({"seed": -1}, "seed is out of range"),
        ({"pool": ["word " * 600], "budget": 1}, "prompt 0 of the pool is too long"),
    ],
)
def test_unusable_arguments_are_refused(gemma_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said) as caught:
        chosen(gemma_path, **given)
    assert caught.value.expected
    assert caught.value.found


def test_originals_that_cannot_generate_from_texts_are_refused(
    tied_path: Path, minilm_path: Path, gemma_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tied_path, minilm_path):  # without a tokenizer, and an encoder
        with pytest.raises(UnsupportedCheckpointError):
            chosen(path)
    with pytest.raises(AnswersError):  # no chat template
        chosen(gemma_path, 1, pool=[[{"role": "user", "content": "a"}]])
    monkeypatch.setattr(choosing, "prompt_tokens", lambda *_: [])
    with pytest.raises(ParameterError, match="prompt 0 of the pool has no tokens"):
        chosen(gemma_path)


def test_an_exception_of_the_callers_progress_is_propagated(gemma_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chosen(gemma_path, progress=stop)
