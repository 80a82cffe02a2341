"""How alike two embeddings are: to screen thousands of suspects and dozens of originals.

A sketch is a sample of an embedding's rows, whitened: centred, and divided by their own covariance. The inner products
of whitened rows do not change under any invertible map of the columns, such as a rotation, a scale or other gains. Two
numbers are computed from them:

- The likeness is the correlation of the cosines of a suspect's rows with those of the original's rows of the same
  tokens (a centred kernel alignment of whitened rows; compare Raghu et al., arXiv:1706.05806, and Kornblith et al.,
  arXiv:1905.00414). Whitening also removes what models of the same language have in common, which is in the leading
  components.
- The difference of their lengths, sorted, does not depend on the order of the rows either. It shows a model whose
  tokens were renumbered without telling how.

Neither is evidence. They say which original to compare a suspect with; they clear nobody.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from irwm.checkpoint import Checkpoint, token_ids

# Rows are sampled in blocks of neighbours, so that few ranges are read of a model on a server.
_BLOCK = 256
# Rows of a sketch of an original, and of a suspect on a server. More than this many coordinates are reduced to as many
# principal components, so that there are eight rows for each.
MOST_ROWS, FEW_ROWS, _WIDEST = 32_768, 4096, 512
# Most tokens whose rows are compared. Fewer common ones than `FEWEST_COMMON` show nothing.
_COMPARED, FEWEST_COMMON = 512, 64
# Components with less than this share of the largest variance are as good as empty.
_EMPTY = 1e-4
# Longer rows, in lengths of the median row, are shortened: a single one could hide all others.
_LONGEST = 8.0
# Quantiles of the lengths that are compared; the shortest and the longest rows say little.
_QUANTILES = torch.linspace(0.01, 0.99, 512, dtype=torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """A sample of an embedding.

    Attributes:
        tokens: number of rows of the embedding.
        named: place of each sampled token by its text; empty without a tokenizer.
        numbered: place of each sampled token by its id.
        rows: (n, m) float32, whitened rows of length 1.
        lengths: (512,) float64, quantiles of the logarithms of their lengths; None if not all rows were sampled.
    """

    tokens: int
    named: Mapping[str, int]
    numbered: Mapping[int, int]
    rows: torch.Tensor
    lengths: torch.Tensor | None


def sketch(model: Checkpoint, device: str = "cpu", most: int = MOST_ROWS, draw: bytes = b"") -> Sketch:
    """The sketch of a model's embedding.

    Args:
        most: rows to read; of a model on a server, `FEW_ROWS` are enough.
        draw: chooses the rows, at most 64 bytes. An attacker who knows it can replace just these rows.

    Raises:
        CheckpointError: a file cannot be read.
    """
    return _sketch(model, device, most, draw)[0]


def _sketch(model: Checkpoint, device: str, most: int, draw: bytes) -> tuple[Sketch, _Whitening]:
    ids = _sampled(model.vocab_size, most, draw)
    place = {id: number for number, id in enumerate(ids)}
    named = {token: place[id] for token, id in token_ids(model).items() if id in place}
    rows = model.sample(torch.tensor(ids), device)
    whitening = _Whitening.of(rows)
    white = whitening.applied(rows)
    lengths = white.norm(dim=1)
    whole = len(ids) == model.vocab_size
    curve = torch.quantile(lengths.clamp_min(1e-9).log(), _QUANTILES.to(lengths)).cpu() if whole else None
    directions = torch.nn.functional.normalize(white, dim=1).float().cpu()
    return Sketch(model.vocab_size, named, place, directions, curve), whitening


class Reference:
    """An original with which sketches of suspects are compared. It is read at the tokens of each sketch, so that any
    sample of a suspect has enough of them.

    Args:
        most: rows that the covariance is computed from.

    Raises:
        CheckpointError: a file cannot be read.
    """

    def __init__(self, model: Checkpoint, device: str = "cpu", most: int = MOST_ROWS) -> None:
        self.sketch, self._whitening = _sketch(model, device, most, b"")
        self._model, self._device = model, device
        self._named = token_ids(model)

    def likeness(self, suspect: Sketch) -> float:
        """The likeness of a suspect, as the function `likeness` gives it: the larger of those with tokens paired by
        their texts and by their ids, since a tokenizer can be exchanged for another one.

        Raises:
            CheckpointError: a file cannot be read.
        """
        known = self._named
        by_text = [(place, known[token]) for token, place in sorted(suspect.named.items()) if token in known]
        by_id = [(place, id) for id, place in suspect.numbered.items() if id < self._model.vocab_size]
        found = [self._paired(suspect, pairs) for pairs in (by_text, by_id) if len(pairs) >= FEWEST_COMMON]
        return max((each for each in found if not math.isnan(each)), default=math.nan)

    def _paired(self, suspect: Sketch, pairs: Sequence[tuple[int, int]]) -> float:
        chosen = torch.tensor(pairs[:: -(-len(pairs) // _COMPARED)])
        rows = self._whitening.applied(self._model.embedding(chosen[:, 1], self._device))
        own = torch.nn.functional.normalize(rows, dim=1).float().cpu()
        return _correlation(suspect.rows[chosen[:, 0]], own)


def likeness(one: Sketch, other: Sketch) -> float:
    """The likeness of two models, in [-1, 1]: 1 for the same rows under any invertible map, about 0 for rows that have
    nothing in common. NaN if fewer than `FEWEST_COMMON` tokens are in both sketches.

    Tokens are paired by their texts, or by their ids if one of the models has no tokenizer.
    """
    if one.named and other.named:
        pairs = [(place, other.named[token]) for token, place in sorted(one.named.items()) if token in other.named]
    else:
        pairs = [(place, other.numbered[id]) for id, place in one.numbered.items() if id in other.numbered]
    if len(pairs) < FEWEST_COMMON:
        return math.nan
    chosen = torch.tensor(pairs[:: -(-len(pairs) // _COMPARED)])
    return _correlation(one.rows[chosen[:, 0]], other.rows[chosen[:, 1]])


def difference(one: Sketch, other: Sketch) -> float:
    """How much the lengths of the rows of two models differ, in any order: 0 if they are equal, about 1 for two
    samples of the same distribution. Infinite if the numbers of rows differ or not all rows were sampled.
    """
    if one.lengths is None or other.lengths is None or one.tokens != other.tokens:
        return math.inf
    # The variance of a quantile q of n draws is q (1 - q) / n, divided by the squared density there.
    slope = torch.gradient((one.lengths + other.lengths) / 2, spacing=(_QUANTILES,))[0]
    of_draws = (_QUANTILES * (1 - _QUANTILES) * slope**2).mean() * 2 / one.tokens
    found = float(((one.lengths - other.lengths) ** 2).mean() / of_draws) ** 0.5 if of_draws > 0 else math.inf
    return found if math.isfinite(found) else math.inf


def _sampled(tokens: int, most: int, draw: bytes) -> list[int]:
    """Ids of the sampled tokens, in order: blocks in an order that depends on `draw` and their numbers alone, so that a
    small sample of a vocabulary is part of a large one."""

    def order(block: int) -> bytes:
        return hashlib.blake2b(block.to_bytes(8, "big"), key=draw).digest()

    blocks = sorted(range(-(-tokens // _BLOCK)), key=order)
    chosen = sorted(blocks[: max(1, most // _BLOCK)])
    return [id for block in chosen for id in range(block * _BLOCK, min(tokens, (block + 1) * _BLOCK))]


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack((_cosines(one), _cosines(other))))[0, 1])


def _cosines(rows: torch.Tensor) -> torch.Tensor:
    """Cosines of all pairs of rows (n, m), (n (n - 1) / 2,)."""
    above = torch.triu_indices(len(rows), len(rows), 1)
    return (rows @ rows.T)[above[0], above[1]]


@dataclass(frozen=True, slots=True, eq=False)
class _Whitening:
    """The map of rows to their own principal components, each divided by its deviation.

    Attributes:
        median: length of the median row.
        mean: (1, d) float64.
        map: (d, m) float64.
    """

    median: torch.Tensor
    mean: torch.Tensor
    map: torch.Tensor

    @classmethod
    def of(cls, rows: torch.Tensor) -> _Whitening:
        """That of a sample (n, d)."""
        rows = _finite(rows)
        median = rows.norm(dim=1).median()
        rows = _shortened(rows, median)
        mean = rows.mean(dim=0, keepdim=True)
        rows = rows - mean
        first = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
        if rows.shape[1] > _WIDEST:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                _, _, first = torch.svd_lowrank(rows, _WIDEST, niter=2)
            rows = rows @ first
        variances, directions = torch.linalg.eigh(rows.T @ rows / len(rows))
        scale = variances.clamp_min(_EMPTY * float(variances.max())).clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
        return cls(median, mean, first @ (directions * scale))

    def applied(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows (n, d), whitened, float64."""
        white: torch.Tensor = (_shortened(_finite(rows), self.median) - self.mean) @ self.map
        return white


def _finite(rows: torch.Tensor) -> torch.Tensor:
    return torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0).double()


def _shortened(rows: torch.Tensor, median: torch.Tensor) -> torch.Tensor:
    kept: torch.Tensor = rows * (_LONGEST * median / rows.norm(dim=1, keepdim=True)).clamp_max(1.0).nan_to_num(1.0)
    return kept
