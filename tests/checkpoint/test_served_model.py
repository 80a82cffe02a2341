"""A mark that is read only from answers, from a real model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import irwm
from irwm.checkpoint.served_model import _raise_absurd, _told_alike, recovered_head, soft_cap_of, width_of, without_cap
from irwm.errors import AnswersError
from irwm.inference import default_text
from irwm.inference.serving import Serving
from tests.conftest import Marked

WIDTH = 128  # of the small Gemma


@dataclass(frozen=True)
class Served:
    """A tied original, its key, and (n, v) log-probabilities of its marked copy and of itself."""

    original: irwm.Checkpoint
    key: irwm.Key
    marked: torch.Tensor
    unmarked: torch.Tensor


def answers_of(folder: Path, count: int, seed: int = 0) -> torch.Tensor:
    """(count, v) log-probabilities of the next token after passages of the bundled text."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = AutoTokenizer.from_pretrained(folder)(default_text()[:40_000], return_tensors="pt").input_ids[0]
    starts = torch.randint(0, len(tokens) - 16, (count,), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        prompts = torch.stack([tokens[start : start + 16] for start in starts.tolist()])
        return torch.cat([model(part).logits[:, -1].float().log_softmax(-1) for part in prompts.split(64)])


@pytest.fixture(scope="module")
def served(release_of: Callable[[str], Marked], gemma_path: Path) -> Served:
    original, key, release = release_of("gemma")
    return Served(original, key, answers_of(release, 3 * WIDTH), answers_of(gemma_path, 3 * WIDTH))


def notes_of(told: torch.Tensor, served: Served) -> tuple[str, ...]:
    return irwm.suspect_from_answers(told, served.original).notes


def detected(told: object, served: Served, *tokens: object) -> irwm.Finding:
    suspect = irwm.suspect_from_answers(told, served.original, *tokens)  # type: ignore[arg-type]
    return irwm.detect(suspect, served.original, served.key)


@pytest.mark.parametrize("answers", [WIDTH + 8, 3 * WIDTH // 2, 3 * WIDTH])
def test_a_mark_is_found_in_answers(served: Served, answers: int) -> None:
    suspect = irwm.suspect_from_answers(served.marked[:answers], served.original)
    found = irwm.detect(suspect, served.original, served.key)
    assert found.verdict == "found"
    assert found.log10_p < -60
    wrong = irwm.generate_key(served.original, secret=bytes(32), owner="them")
    assert irwm.detect(suspect, served.original, wrong).verdict != "found"


def test_answers_of_the_unmarked_original_show_no_mark(served: Served) -> None:
    found = detected(served.unmarked, served)
    assert found.verdict != "found"
    assert found.log10_p > -4


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_chosen_tokens_are_enough(served: Served, order: str) -> None:
    """The marked rows' tokens and four times the width of others, in any order."""
    rng = np.random.default_rng(0)
    marked = served.key.choices().marked_rows
    others = rng.choice(np.setdiff1d(np.arange(served.original.vocab_size), marked), 4 * WIDTH, replace=False)
    tokens = np.sort(np.concatenate([marked, others]))
    tokens = tokens if order == "ascending" else rng.permutation(tokens)
    found = detected(served.marked[:, tokens], served, tokens)
    assert found.verdict == "found"
    assert found.log10_p < -20
    assert found.present == 50


def test_missing_answer_values_are_omitted(served: Served) -> None:
    table = served.marked.numpy().copy()
    table[3], table[7, 100:] = np.nan, -np.inf  # two answers with few values
    table[:, 200:300] = -np.inf  # tokens without values
    suspect = irwm.suspect_from_answers(table, served.original)
    assert suspect.vocab_size == served.original.vocab_size - 100
    assert any("too few values: 2." in note for note in suspect.notes)
    assert irwm.detect(suspect, served.original, served.key).verdict == "found"


def test_answers_of_another_width_are_noted(served: Served) -> None:
    few = notes_of(served.marked[:40].repeat(10, 1), served)
    assert any("39 directions" in note or "40 directions" in note for note in few)
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(400, 200, generator=generator) @ torch.randn(200, 4096, generator=generator)
    assert any("200 directions" in note for note in notes_of(wide.log_softmax(-1), served))
    assert not any("directions" in note for note in notes_of(served.marked, served))
    assert width_of(np.array([3.0, 2.9, 2.8, 2.7])) is None
    strong_first = np.concatenate([[1e4], np.linspace(30, 3, 127), np.full(64, 0.01)])
    assert width_of(strong_first, WIDTH) == 128, "the first direction is stronger in every model"
    assert width_of(np.concatenate([[1e4, 9e3], np.zeros(60)]), WIDTH) == 2


def test_more_answers_than_tokens_are_read_by_the_tokens(served: Served) -> None:
    """The same subspace from the smaller of the two products, so only that one has to be in memory."""
    tokens = np.arange(0, 4096, 13)  # 316 of them, and 384 answers
    by_answers = recovered_head(served.marked.numpy()[:300, tokens], WIDTH).rows.astype(np.float64)
    by_tokens = recovered_head(np.tile(served.marked.numpy()[:300, tokens], (2, 1)), WIDTH).rows.astype(np.float64)
    both = np.linalg.svd(np.linalg.qr(by_answers)[0].T @ np.linalg.qr(by_tokens)[0], compute_uv=False)
    assert both.min() > 0.999


def test_answers_that_exceed_memory_are_refused() -> None:
    with pytest.raises(AnswersError):
        recovered_head(np.zeros((16_400, 16_400), np.float16), WIDTH)
    many = recovered_head(np.zeros((30_000, 300), np.float16), WIDTH)
    assert many.rows.shape == (300, WIDTH)


def test_one_value_beyond_the_cap_loses_one_token(served: Served) -> None:
    capped = 30 * torch.tanh(torch.from_numpy(served.marked.numpy().copy()) / 30 + 0.3)
    table = capped.log_softmax(-1).numpy()
    table[0, 7] = -90.0
    found = recovered_head(table, WIDTH, soft_cap=30.0)
    assert 7 not in found.columns
    assert len(found.columns) == 4095


def test_a_few_tokens_reported_as_impossible_do_not_hide_the_mark(served: Served) -> None:
    """1% of the rarest: they cost a customer no quality, and would be the strongest directions of all."""
    for table, marked in ((served.marked, True), (served.unmarked, False)):
        told = table.numpy().copy()
        rare = (told < np.log(1e-5)) & (np.random.default_rng(0).random(told.shape) < 0.01)
        assert rare.sum() > 1000
        told[rare] = -900.0
        found = detected(told, served)
        assert (found.verdict == "found") == marked
        assert not marked or found.log10_risk < -20


@pytest.mark.fault(94)
def test_answer_with_extreme_numbers_is_left_out_and_counted(served: Served) -> None:
    """An answer with few of them is kept."""
    told = served.marked.double()
    told[5, ::2], told[6] = -1e200, torch.arange(1, told.shape[1] + 1) * -1e200
    told[7, 7], told[8, 9] = -1e200, -1.7e308
    suspect = irwm.suspect_from_answers(told, served.original)
    assert "Answers left out because they contain too few values: 2." in suspect.notes
    found = irwm.detect(suspect, served.original, served.key)
    assert found.verdict == "found"
    assert found.log10_p < -60


def test_equal_values_of_unlikely_tokens_are_noted(served: Served) -> None:
    flat, rounded = (each.told(served.marked, torch.Generator()) for each in (Serving(flat=0.8), Serving(decimals=1)))
    for told, noted in ((flat, True), (rounded, False), (served.marked, False)):
        assert any("have the same value" in note for note in notes_of(told, served)) is noted


def test_answers_with_mostly_equal_values_are_not_changed(served: Served) -> None:
    told = served.marked.numpy()[:200].astype(np.float64)
    told[:, : 3 * told.shape[1] // 4] = -4.0
    before = told.copy()
    _raise_absurd(told)
    assert (told == before).all()
    assert _told_alike(before) == 0.75
    assert _told_alike(np.full((3, 4), np.nan)) == 0


def test_bfloat16_is_read(served: Served) -> None:
    assert detected(served.marked.bfloat16(), served).verdict == "found"


def refused(told: object, original: irwm.Checkpoint, *tokens: object) -> None:
    with pytest.raises(AnswersError):
        irwm.suspect_from_answers(told, original, *tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda x: x[:WIDTH],
        lambda x: x[:, : 2 * WIDTH - 1],
        lambda x: torch.full_like(x, -torch.inf),
        lambda x: torch.where(x < x.topk(20).values[:, -1:], -torch.inf, x),
        lambda x: x.exp(),
        lambda x: x[0],
        lambda x: x.long(),
        lambda x: torch.cat([x, x], dim=1),
    ],
)
def test_invalid_answers_are_refused(served: Served, corrupt) -> None:
    refused(corrupt(served.marked), served.original)


@pytest.mark.fault(94)
@pytest.mark.parametrize(
    "tokens",
    [
        *([1, 2, 3], [0] * 4096, [*range(4095), None], [[1], [2, 3]], [float(n) for n in range(4096)]),
        *([2**70] * 4096, list(range(1, 4097))),
    ],
    ids=lambda tokens: str(tokens)[:15],
)
def test_wrong_tokens_and_answers_of_different_lengths_are_refused(served: Served, tokens: list) -> None:
    refused(served.marked, served.original, tokens)
    refused([[-1.0], [-1.0, -2.0]], served.original)


def test_an_original_without_an_output_head_is_refused(demo_path: Path) -> None:
    model = irwm.open_checkpoint(demo_path)
    refused(torch.zeros(400, 4096), replace(model, layout=replace(model.layout, head=None)))


def test_a_soft_cap_is_undone() -> None:
    """Without the sum that was subtracted from each answer: it is found from the directions of the answers."""
    d, v, n, cap = 32, 800, 60, 30.0
    rng = np.random.default_rng(0)
    logits = 6 * rng.normal(size=(n, d)) @ rng.normal(size=(v, d)).T / np.sqrt(d) + 0.5
    told = torch.from_numpy(cap * np.tanh(logits / cap)).log_softmax(-1).numpy()
    undone = without_cap(told, cap, d)
    centred = [x - x.mean(axis=1, keepdims=True) for x in (undone, told, logits)]
    wrong = [np.abs(x - centred[2]).max() for x in centred[:2]]
    assert wrong[1] > 1  # the distortion by the cap
    assert wrong[0] < 0.02 * wrong[1]


def test_answers_beyond_the_cap_are_refused() -> None:
    with pytest.raises(AnswersError):
        without_cap(np.array([[-0.1, -100.0, -3.0], [-0.1, -2.0, -3.0]]), 30.0, 1)


def test_cap_is_read_from_the_config(gemma_path: Path) -> None:
    model = irwm.open_checkpoint(gemma_path)
    assert soft_cap_of(model) is None
    for config in ({"final_logit_softcapping": 30.0}, {"text_config": {"final_logit_softcapping": 30}}):
        assert soft_cap_of(replace(model, config=config)) == 30.0
