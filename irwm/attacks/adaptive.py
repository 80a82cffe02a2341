"""Attacks by someone who has read the manual: on the embedding and the output head, without key or original.

Each tensor is changed using its own content alone. `drop_components` removes the components that alignment is scored
in. `flatten_seldom` removes most of the content of rarely used rows. `redraw_small` and `redraw_outliers` look for the
entries that a mark has written and redraw them. `rebuild_rows` makes every row of other rows. `store_otherwise` stores
the rows as other numbers, which the attacker's own loader converts back. `confuse` adds what should make a comparison
fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from irwm.attacks.rewrite import open_safetensors, rewrite
from irwm.checkpoint.layout import INDEX_NAME
from irwm.errors import ParameterError

# An entry below this many of its row's deviations may be one that a mark at scale 1000 has written.
SMALL = 0.08
# Share of the components that a flattened row keeps.
FLAT = 0.1
# Ridge of the covariance that predicts an entry from its row's others, in units of the mean variance.
RIDGE = 1e-3
# Directions with less than this share of the largest variance are as good as empty.
_EMPTY = 1e-6
_ROWS_AT_ONCE = 8192
# Rows that `rebuild_rows` chooses from, rows rebuilt at once, and the number of least-squares fits between choices.
_CHOICES, _REBUILT_AT_ONCE, _FITS = 8192, 512, 8
# Ways of `confuse`.
NAN_ROW, HUGE_ROW, EQUAL_ROWS, MORE_TENSORS = CONFUSIONS = ("nan-row", "huge-row", "equal-rows", "more-tensors")
# The row that becomes NaN or huge, if there are as many; how much longer it becomes; and the number of tensors added.
_ROW, _LONGER, _TENSORS = 300, 1e6, 9


def drop_components(model_dir: str | Path, out_dir: str | Path, kept: float) -> Path:
    """Leave the leading share `kept` of the rows' own principal components.

    Raises:
        ParameterError: a share outside (0, 1].
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _share("kept", kept)

    def leading(rows: torch.Tensor) -> torch.Tensor:
        mean, _, directions = _components(rows)
        first = directions[:, : max(1, int(kept * rows.shape[1]))]
        return (rows - mean) @ first @ first.T + mean

    return _on_rows(model_dir, out_dir, leading)


def flatten_seldom(model_dir: str | Path, out_dir: str | Path, rows: float) -> Path:
    """Keep a tenth of the principal components in the last share `rows` of the rows, those of the least used tokens.

    Marks avoid the most frequent rows, and damage to the other rows costs the model little.

    Raises:
        ParameterError: a share outside (0, 1].
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _share("rows", rows)

    def flattened(values: torch.Tensor) -> torch.Tensor:
        mean, _, directions = _components(values)
        leading = directions[:, : max(1, int(FLAT * values.shape[1]))]
        first = int((1 - rows) * len(values))
        seldom = (values[first:] - mean) @ leading @ leading.T + mean
        return torch.cat((values[:first], seldom))

    return _on_rows(model_dir, out_dir, flattened)


def redraw_small(model_dir: str | Path, out_dir: str | Path, rows: float, seed: int = 0) -> Path:
    """Redraw the small entries, from the row's deviation, in the share `rows` of the rows that have most of them.

    Raises:
        ParameterError: a share outside (0, 1].
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _share("rows", rows)

    def redrawn(values: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)  # a head that is stored as its equal stays equal
        deviation = values.std(dim=1, keepdim=True)
        small = values.abs() < SMALL * deviation
        suspicious = _most(small.sum(dim=1).double(), rows)[:, None]
        drawn = deviation * torch.randn(values.shape, generator=generator, dtype=values.dtype)
        return torch.where(small & suspicious, drawn, values)

    return _on_rows(model_dir, out_dir, redrawn)


def redraw_outliers(model_dir: str | Path, out_dir: str | Path, share: float) -> Path:
    """Replace the share of all entries farthest from their prediction by the other entries of the row.

    The prediction is that of a normal law with the embedding's own covariance.

    Raises:
        ParameterError: a share outside (0, 1].
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _share("share", share)

    def predicted(values: torch.Tensor) -> torch.Tensor:
        centred = values - values.mean(dim=0)
        covariance = centred.T @ centred / len(values)
        covariance.diagonal().add_(RIDGE * float(covariance.diagonal().mean()))
        precision = torch.linalg.inv(covariance)
        found = values.clone()
        own = precision.diagonal()
        surprise = torch.cat([(part @ precision).abs() / own.sqrt() for part in centred.split(_ROWS_AT_ONCE)])
        bound = _quantile(surprise, 1 - share)
        residual = torch.cat([(part @ precision) / own for part in centred.split(_ROWS_AT_ONCE)])
        return torch.where(surprise > bound, found - residual, found)

    return _on_rows(model_dir, out_dir, predicted)


def rebuild_rows(model_dir: str | Path, out_dir: str | Path, others: int, seed: int = 0) -> Path:
    """Replace every row by a combination of `others` other rows, found by orthogonal matching pursuit, as a tokenizer
    transplant does with the tokens that are new (arXiv:2506.06607). A large vocabulary chooses from a sample of it.

    Raises:
        ParameterError: fewer than 1 row, or as many as there are to choose from.
        OutputExistsError, CheckpointError: as `rewrite`.
    """

    def rebuilt(values: torch.Tensor) -> torch.Tensor:
        if not 1 <= others < min(len(values), _CHOICES):
            expected = f"1 to {min(len(values), _CHOICES) - 1}"
            raise ParameterError("the number of rows is out of range", expected=expected, found=str(others))
        chosen = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))[:_CHOICES]
        ids = torch.arange(len(values))
        parts = zip(values.split(_REBUILT_AT_ONCE), ids.split(_REBUILT_AT_ONCE), strict=True)
        return torch.cat([_matched(rows, values[chosen], here[:, None] == chosen, others) for rows, here in parts])

    return _on_rows(model_dir, out_dir, rebuilt)


def store_otherwise(model_dir: str | Path, out_dir: str | Path, power: float, seed: int = 0) -> Path:
    """Store the embedding E, and an output head, as E C^-power Q, with its own covariance C and a random rotation Q.

    The folder's model does not run: the attacker's loader undoes both, exactly.

    Raises:
        ParameterError: a power outside (0, 1].
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    _share("power", power)

    def stored(rows: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        _, variances, directions = _components(rows)
        scale = variances.clamp_min(_EMPTY * float(variances.max())) ** -power
        d = rows.shape[1]
        turned, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=rows.dtype))
        made: torch.Tensor = rows @ (directions * scale) @ turned
        return made.mul_(float(rows.norm() / made.norm()))

    return _on_rows(model_dir, out_dir, stored)


def confuse(model_dir: str | Path, out_dir: str | Path, how: str) -> Path:
    """Change or add what should make a comparison of embeddings fail; the attacker's own loader undoes it.

    Args:
        how: one of `CONFUSIONS`: one row of NaN, one row a million times as long, a quarter of the rows alike, or
            nine more tensors of the embedding's shape and with similar names.

    Raises:
        ParameterError: there is no such way.
        OutputExistsError, CheckpointError: as `rewrite`.
    """
    if how not in CONFUSIONS:
        raise ParameterError("unknown method of defeating comparisons", expected=", ".join(CONFUSIONS), found=how)

    def confused(rows: torch.Tensor) -> torch.Tensor:
        row = min(_ROW, len(rows) - 1)
        if how == NAN_ROW:
            rows[row] = torch.nan
        elif how == HUGE_ROW:
            rows[row] *= _LONGER
        elif how == EQUAL_ROWS:
            rows[1::4] = rows[1]
        return rows

    out = _on_rows(model_dir, out_dir, confused)
    if how == MORE_TENSORS:
        model = open_safetensors(out)
        embedding = model.layout.embedding
        file = model.tensors[embedding.name].file
        tensors = load_file(file)
        like, generator = tensors[embedding.name], torch.Generator().manual_seed(0)
        stem = embedding.name.removesuffix(".weight")
        added = [f"{stem}_{number}.weight" for number in range(_TENSORS)]
        tensors |= {name: torch.randn(like.shape, generator=generator).to(like.dtype) for name in added}
        save_file(tensors, file, metadata={"format": "pt"})
        index = out / INDEX_NAME
        if index.exists():  # otherwise readers ignore what the index does not list
            listed = json.loads(index.read_bytes())
            listed["weight_map"] |= dict.fromkeys(added, file.name)
            index.write_text(json.dumps(listed, indent=2), encoding="utf-8")
    return out


def _on_rows(model_dir: str | Path, out_dir: str | Path, change: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    """The folder with its embedding, the copies of it and its output head passed through `change` in float64."""
    layout = open_safetensors(model_dir).layout
    head = () if layout.head is None else (layout.head,)
    names = {ref.name for ref in (layout.embedding, *layout.copies, *head)}

    def through(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return change(tensor.double()) if name in names else tensor

    return rewrite(model_dir, out_dir, through)


def _matched(rows: torch.Tensor, atoms: torch.Tensor, own: torch.Tensor, count: int) -> torch.Tensor:
    """Rows (n, d) approximated by `count` of the atoms (a, d) each, without those that `own` (n, a) marks."""
    units = torch.nn.functional.normalize(atoms, dim=1)
    taken, best = own.clone(), torch.zeros_like(rows)
    chosen = torch.empty(len(rows), 0, dtype=torch.int64)
    while chosen.shape[1] < count:
        fits = ((rows - best) @ units.T).abs_().masked_fill_(taken, -1.0)
        more = fits.topk(min(-(-count // _FITS), count - chosen.shape[1]), dim=1).indices
        taken.scatter_(1, more, value=True)
        chosen = torch.cat((chosen, more), dim=1)
        used = units[chosen]  # (n, k, d)
        gram = used @ used.mT
        gram.diagonal(dim1=1, dim2=2).add_(_EMPTY)
        weights = torch.linalg.solve(gram, used @ rows[:, :, None])
        best = (used.mT @ weights)[:, :, 0]
    return best


def _components(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean (d,), variances (d,) descending, and directions (d, d) as columns."""
    mean = rows.mean(dim=0)
    centred = rows - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(rows))
    return mean, variances.flip(0).clamp_min(0), directions.flip(1)


def _most(values: torch.Tensor, share: float) -> torch.Tensor:
    """(n,) bool, the share of the values that are largest."""
    chosen = torch.zeros(len(values), dtype=torch.bool)
    chosen[values.argsort(descending=True, stable=True)[: int(share * len(values))]] = True
    return chosen


def _quantile(values: torch.Tensor, level: float) -> float:
    """`torch.quantile` without its limit on the number of values."""
    flat = values.flatten()
    return float(flat.kthvalue(max(1, min(flat.numel(), round(level * flat.numel())))).values)


def _share(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise ParameterError(f"{name} is out of range", expected="above 0 and at most 1", found=str(value))
