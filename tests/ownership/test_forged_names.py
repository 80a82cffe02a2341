"""A false accuser rewrites the tokenizer next to the original, which keys do not cover.

The key is honest and may have been timestamped before the victim's model existed. The names then determine how the
victim's rows are paired with tokens, and which are "gone": both are choices made after the fact, and each alone makes
an untouched model read as marked beyond any doubt. So names are trusted only if the rows confirm them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import irwm
from benchmarks.forgery import renamed
from irwm.alignment import align
from irwm.evidence.neutral_model import write_neutral
from irwm.scheme import statistic as stat
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import invariant
from irwm.scheme.permutations import NullOrders
from irwm.scheme.probabilities import LN10, binomial_tail_log


@pytest.mark.slow
def test_removed_names_do_not_remove_positions(demo_path: Path, tmp_path: Path) -> None:
    victim = irwm.open_checkpoint(demo_path)
    params = irwm.Parameters.paper(positions=400, required_positions=200, permutations=299)
    key = irwm.generate_key(victim, params, secret=bytes(32), owner="False accuser")
    honest = irwm.detect(victim, victim, key)
    unfit = honest.marked_rows[honest.ranks >= 0.2]
    assert (400 - unfit.size) * np.log10(0.2) < -40  # the evidence if the names were trusted
    forged = irwm.detect(victim, renamed(victim, unfit, tmp_path / "model"), key)
    assert forged.present == 400
    assert forged.verdict != "found"
    assert forged.count == honest.count


def weights_of(model: irwm.Checkpoint, key: irwm.Key) -> NDArray[np.float64]:
    """The equations that a marked row fits."""
    choices = key.choices()
    a_m = invariant(model, choices.query_tokens, choices.reference_tokens).cpu().numpy()
    return stat.joint_map(permute_rows(a_m, choices.constraint_permutations), key.scale)


def misfits(model: irwm.Checkpoint, key: irwm.Key, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """How badly each of the rows fits each position of a key; a small value fits."""
    weights, shuffled = weights_of(model, key), stat.normalised(rows)
    return np.stack(
        [np.linalg.norm(weights @ shuffled[:, order].T, axis=0) for order in key.choices().row_permutations]
    )


def exchanged(model: irwm.Checkpoint, key: irwm.Key) -> dict[int, int]:
    """The marked row that each position should read to fit the key best, among sufficiently similar rows.

    Moved rows are recognised by their low resemblance, but the reference is the key's own rows: if most of the rows of
    a long key were moved, low resemblance is usual.
    """
    tokens = key.choices().marked_rows
    rows = model.embedding(tokens).double().numpy()
    cost = misfits(model, key, rows)
    centred = rows - np.median(model.embedding(range(0, model.vocab_size, 7)).double().numpy(), axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    cosines = centred @ centred.T
    cost[(cosines < 0.08) | (cosines > 0.184)] = 1e6
    ours, theirs = linear_sum_assignment(cost**2)
    return dict(zip(tokens[ours].tolist(), tokens[theirs].tolist(), strict=True))


def with_names(model: irwm.Checkpoint, moved: dict[int, int], folder: Path) -> irwm.Checkpoint:
    """The model whose tokenizer gives row i the string that the model's own has for row moved[i]."""
    shutil.copytree(model.path, folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    named = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    tokenizer["model"]["vocab"] = {named[moved.get(i, i)]: i for i in named}
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "vocab.txt").unlink(missing_ok=True)
    return irwm.open_checkpoint(folder)


def count_where(model: irwm.Checkpoint, key: irwm.Key, rows: NDArray[np.int64]) -> int:
    """Positions below .2 if the names are trusted: the plain arithmetic on the rows to which they lead."""
    choices, weights = key.choices(), weights_of(model, key)
    read = model.embedding(rows[choices.marked_rows]).double().numpy()
    shuffled = stat.normalised(np.take_along_axis(read, choices.row_permutations, axis=1))
    null = stat.null_lengths(weights, shuffled, NullOrders.of(0, 299, *shuffled.shape))
    return int((stat.ranks(stat.lengths(weights, shuffled), null) < 0.2).sum())


@pytest.mark.slow
def test_names_that_swap_rows_of_long_key_are_not_trusted(minilm_path: Path, tmp_path: Path) -> None:
    victim = irwm.open_checkpoint(minilm_path)
    params = irwm.Parameters.paper(positions=540, required_positions=300)
    key = irwm.generate_key(victim, params, secret=bytes(32), owner="False accuser")
    choices = key.choices()
    forged = with_names(victim, exchanged(victim, key), tmp_path / "model")
    alignment = align(victim, forged)
    assert alignment.aligned  # a sample does not show this few of 30 522 rows
    assert not alignment.settled
    believed = count_where(victim, key, alignment.rows)
    assert believed > 450
    assert binomial_tail_log(believed, 540, 0.2) / LN10 < -200
    (examined,) = irwm.Examination(victim, forged).aligned
    assert examined.placed(choices).alignment.settled  # detection looks for every row


def test_names_do_not_select_rows_of_unrelated_model(demo_path: Path, tmp_path: Path) -> None:
    """If alignment fails, no row contradicts a name, so names that differ from the ids are not trusted at all."""
    original = irwm.open_checkpoint(demo_path)
    # Of a few secrets the forger uses the one that benefits most from the names.
    secret = bytes([1]) * 32
    key = irwm.generate_key(original, irwm.Parameters.paper(scale="auto"), secret=secret, owner="False accuser")
    write_neutral(original, tmp_path / "victim")
    shutil.copyfile(demo_path / "tokenizer.json", tmp_path / "victim" / "tokenizer.json")
    victim = irwm.open_checkpoint(tmp_path / "victim")
    cost = misfits(original, key, victim.embedding().double().numpy())
    _, fitting = linear_sum_assignment(np.nan_to_num(cost, nan=1e6))
    # Each marked token and the row that fits it exchange their names, in the order of the positions.
    rows = np.arange(original.vocab_size)
    for token, row in zip(key.choices().marked_rows.tolist(), fitting.tolist(), strict=True):
        here = int(np.flatnonzero(rows == row)[0])
        rows[token], rows[here] = rows[here], rows[token]
    assert count_where(victim, key, rows) > 40  # the evidence if the names were trusted
    moved = {i: int(row) for i, row in enumerate(rows) if i != row}
    forged = with_names(original, moved, tmp_path / "original")
    found = irwm.detect(victim, forged, key)
    assert not found.alignment.aligned
    assert found.verdict == "inconclusive"
    assert found.log10_p > -3


@pytest.mark.slow
def test_names_cannot_frame_a_recipient(demo_path: Path, tmp_path: Path) -> None:
    """A dishonest owner drops the names of all rows that exonerate a recipient."""
    original = irwm.open_checkpoint(demo_path)
    params = irwm.many_recipients(original.hidden_size)
    keys = [irwm.generate_key(original, params, bytes(32), "Owner", name) for name in ("Leaker", "Innocent")]
    suspect = irwm.open_checkpoint(irwm.insert(original, keys[0], tmp_path / "leaked").path)
    tokens = np.arange(original.vocab_size)
    rows = original.embedding().double().numpy()
    innocent = keys[1].noise(original, keys[1].choices()).over(rows, tokens) - rows
    against = ((suspect.embedding().double().numpy() - rows) * innocent).sum(axis=1) < 0
    assert against.sum() > 1000
    forged = renamed(original, np.flatnonzero(against), tmp_path / "forged")
    honest = irwm.trace(suspect, original, keys)
    framed = irwm.trace(suspect, forged, keys)
    assert [each.named for each in honest] == [True, False]
    assert [each.named for each in framed] == [True, False]
    assert abs(framed[1].z - honest[1].z) < 0.5
