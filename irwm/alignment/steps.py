"""The steps of an alignment in words: a sentence for each undone disguise, and its confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irwm.alignment.result import Alignment, Step

# Noise and rounding change the embedding's scale by up to this share.
SCALE_TOLERANCE = 0.1
BY_ID, BY_TOKENIZER, BY_CONTENT, BY_EMBEDDING = "id", "tokenizer", "content", "embedding"
EMBEDDING, EXTREME_ROWS = "embedding", "extreme rows"


def steps_of(
    alignment: Alignment,
    way: str,
    share: float,
    suspect_size: int,
    extreme: int,
    changed: int,
    constants: NDArray[np.float64],
) -> tuple[Step, ...]:
    """The steps behind an alignment.

    Args:
        way: how the rows were paired, `BY_ID`, `BY_TOKENIZER`, `BY_CONTENT` or, of an output head, `BY_EMBEDDING`.
        share: the confidence of that pairing, in [0, 1].
        suspect_size: rows of the suspect's embedding.
        extreme: sampled rows left out because of their length.
        changed: rows that are at their id or name and resemble no row of the original.
        constants: (n,) constant added to each sampled row, in units of the rows' own deviation.
    """
    said = _rows(alignment, way, share, suspect_size)
    if changed:
        text = (
            "rows left in place although they no longer resemble any of the original's: "
            f"{changed} of {alignment.rows.size}"
        )
        said.append(_step("changed rows", text, 1.0))
    said += _coordinates(alignment, constants)
    if np.isfinite(alignment.scale) and abs(alignment.scale - 1.0) > SCALE_TOLERANCE:
        text = f"the embedding was scaled by {alignment.scale:.3g}"
        said.append(_step("scale", text, alignment.similarity, "median similarity of its rows"))
    if extreme:
        said.append(
            _step(EXTREME_ROWS, f"rows excluded from the comparison because of their extreme length: {extreme}", 1.0)
        )
    return tuple(said)


def _rows(alignment: Alignment, way: str, share: float, suspect_size: int) -> list[Step]:
    s, rows, said = alignment.rows.size, alignment.rows, []
    present = rows >= 0
    moved = int((rows[present] != np.flatnonzero(present)).sum())
    measures = {
        BY_TOKENIZER: "share of the sampled rows that resemble the row of the token with the same name",
        BY_CONTENT: "share of the rows for which a counterpart was found",
        BY_ID: "share of the sampled rows that are at the position given by their ID",
        BY_EMBEDDING: "share of the sampled rows that resemble the row of the same token",
    }
    known = {BY_TOKENIZER: "the tokenizers' token strings", BY_EMBEDDING: "the positions of the embedding's rows"}
    if moved:
        by = known.get(way, "their own content")
        said.append(
            _step(
                f"rows by {way}",
                f"{moved} of {s} token IDs were changed; the rows were matched by {by}",
                share,
                measures[way],
            )
        )
    if alignment.lost:
        said.append(_step("rows", f"{alignment.lost} of the original's {s} rows are gone", share, measures[way]))
    added = suspect_size - int(present.sum())
    if added > 0 and suspect_size > s and not moved:
        said.append(_step("rows", f"{added} rows beyond the original's {s} were ignored", share, measures[way]))
    elif added > 0:
        said.append(_step("rows", f"{added} rows that are not in the original were ignored", share, measures[way]))
    return said


def _coordinates(alignment: Alignment, constants: NDArray[np.float64]) -> list[Step]:
    said, d = [], alignment.columns.size
    similar = alignment.similarity
    if alignment.rotation is not None:
        text = "the residual stream was rotated; the rotation was undone by orthogonal Procrustes analysis"
        return [_step("rotation", text, similar, "median similarity of the rows not used for the fit")]
    moved, flipped = int((alignment.columns != np.arange(d)).sum()), int((alignment.signs < 0).sum())
    unique = "share of columns with a unique counterpart"
    if moved:
        text = f"{moved} of {d} columns were reordered; their order was restored by cosine similarity"
        said.append(_step("columns", text, alignment.uniqueness, unique))
    if flipped:
        said.append(_step("signs", f"{flipped} of {d} columns had their signs flipped", alignment.uniqueness, unique))
    if alignment.offsets.any():
        text = "a constant that had been added to the columns was removed"
        said.append(_step("offsets", text, similar, "median similarity of the rows after it was removed"))
    if alignment.row_constants and constants.size and float(np.median(np.abs(constants))) > SCALE_TOLERANCE:
        text = "a constant that had been added to each row was removed"
        said.append(_step("row constants", text, similar, "median similarity of the rows after it was removed"))
    return said


def _step(name: str, said: str, confidence: float, measure: str = "counted") -> Step:
    return Step(name, said, float(min(1.0, max(0.0, confidence))), measure)
