"""A mark that is read from answers alone, of a real model that really answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import irwm
from irwm.checkpoint.answers import width_of
from irwm.errors import AnswersError
from irwm.running import default_text

WIDTH = 128  # of the small Gemma


@dataclass(frozen=True)
class Served:
    """A tied original, its key, and (n, v) log-probabilities of its marked copy and of itself."""

    original: irwm.Checkpoint
    key: irwm.Key
    marked: torch.Tensor
    unmarked: torch.Tensor


def answers_of(folder: Path, count: int, seed: int = 0) -> torch.Tensor:
    """(count, v) log-probabilities of the next token behind passages of the bundled text."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = AutoTokenizer.from_pretrained(folder)(default_text()[:40_000], return_tensors="pt").input_ids[0]
    starts = torch.randint(0, len(tokens) - 16, (count,), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        prompts = torch.stack([tokens[start : start + 16] for start in starts.tolist()])
        return torch.cat([model(part).logits[:, -1].float().log_softmax(-1) for part in prompts.split(64)])


@pytest.fixture(scope="module")
def served(gemma_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    original = irwm.open_checkpoint(gemma_path)
    key = irwm.generate_key(original, secret=bytes(range(32)), owner="us")
    release = irwm.insert(original, key, tmp_path_factory.mktemp("served") / "release").path
    return Served(original, key, answers_of(release, 3 * WIDTH), answers_of(gemma_path, 3 * WIDTH))


@pytest.mark.parametrize("answers", [WIDTH + 8, 3 * WIDTH // 2, 3 * WIDTH])
def test_a_mark_is_found_in_answers(served: Served, answers: int) -> None:
    suspect = irwm.suspect_from_answers(served.marked[:answers], served.original)
    found = irwm.detect(suspect, served.original, served.key)
    assert found.verdict == "found"
    assert found.log10_p < -60
    wrong = irwm.generate_key(served.original, secret=bytes(32), owner="them")
    assert irwm.detect(suspect, served.original, wrong).verdict != "found"


def test_answers_of_the_unmarked_original_show_no_mark(served: Served) -> None:
    suspect = irwm.suspect_from_answers(served.unmarked, served.original)
    found = irwm.detect(suspect, served.original, served.key)
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
    suspect = irwm.suspect_from_answers(served.marked[:, tokens], served.original, tokens)
    found = irwm.detect(suspect, served.original, served.key)
    assert found.verdict == "found"
    assert found.log10_p < -20
    assert found.present == 50


def test_what_was_not_told_is_left_out(served: Served) -> None:
    table = served.marked.numpy().copy()
    table[3], table[7, 100:] = np.nan, -np.inf  # two answers that tell little
    table[:, 200:300] = -np.inf  # tokens that are never told
    suspect = irwm.suspect_from_answers(table, served.original)
    assert suspect.vocab_size == served.original.vocab_size - 100
    assert any("2 answers tell too little" in note for note in suspect.notes)
    assert irwm.detect(suspect, served.original, served.key).verdict == "found"


def test_it_is_said_where_answers_are_of_another_width(served: Served) -> None:
    few = served.marked[:40].repeat(10, 1)
    assert any("vary in 39 directions only" in note or "vary in 40" in note
               for note in irwm.suspect_from_answers(few, served.original).notes)  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(400, 200, generator=generator) @ torch.randn(200, 4096, generator=generator)
    said = irwm.suspect_from_answers(wide.log_softmax(-1), served.original).notes
    assert any("200 directions, where the original has 128" in note for note in said)
    assert not any("directions" in note for note in irwm.suspect_from_answers(served.marked, served.original).notes)
    assert width_of(np.array([3.0, 2.9, 2.8, 2.7])) is None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda x: x[:WIDTH], "too few answers"),
        (lambda x: x[:, : 2 * WIDTH - 1], "too few tokens"),
        (lambda x: torch.full_like(x, -torch.inf), "too few answers"),
        (lambda x: torch.where(x < x.topk(20).values[:, -1:], -torch.inf, x), "too few"),
        (lambda x: x.exp(), "not log-probabilities"),
        (lambda x: x[0], "not answers"),
        (lambda x: x.long(), "not answers"),
        (lambda x: torch.cat([x, x], dim=1), "more tokens than the original"),
    ],
)
def test_what_are_no_answers_is_refused(served: Served, spoil, said: str) -> None:
    with pytest.raises(AnswersError, match=said):
        irwm.suspect_from_answers(spoil(served.marked), served.original)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [([1, 2, 3], "do not name the columns"), ([0] * 4096, "do not name the columns"),
     (list(range(1, 4097)), "not one of the original's")],
)  # fmt: skip
def test_wrong_tokens_are_refused(served: Served, tokens: list[int], said: str) -> None:
    with pytest.raises(AnswersError, match=said):
        irwm.suspect_from_answers(served.marked, served.original, tokens)


def test_an_original_whose_head_is_not_its_embedding_is_refused(demo_path: Path) -> None:
    with pytest.raises(AnswersError, match="a tensor of its own"):
        irwm.suspect_from_answers(torch.zeros(400, 4096), irwm.open_checkpoint(demo_path))
