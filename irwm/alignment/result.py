"""The result of an alignment, used by detection, lineage, pages and reports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from irwm.families import TensorRef

# Median row cosine from which columns that were at most reordered count as the same coordinates. Unrelated models are
# near 0 in place and below 0.1 after the best column matching; noise of one whole deviation leaves 0.7.
ALIGNED_COSINE = 0.3
# The same after a rotation, in the original's minor components. There, models trained separately reached 0.20 after 1
# 500 steps, although in all components they reached 0.58; noise of one deviation leaves 0.28. It is sufficient for
# reading a mark, whose own evidence does not depend on it; lineage requires more.
MINOR_COSINE = 0.25
# A row is in the wrong place if it has less than this share of the median similarity, and if it is this many deviations
# of wrong rows' cosines below it. In few coordinates, or with much noise, chance alone makes rows in place that unlike.
IN_PLACE_SHARE, CHANCE_DEVIATIONS = 0.4, 3.0
NOWHERE: NDArray[np.int64] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Step:
    """One disguise that was undone.

    Attributes:
        name: "embedding", "rows by tokenizer", "rows by content", "rows", "columns", "signs", "offsets", "rotation",
            "scale" or "extreme rows".
        said: one sentence for the user.
        confidence: how sure it is, in [0, 1].
        measure: the meaning of the confidence, as a phrase: "share of ...".
    """

    name: str
    said: str
    confidence: float
    measure: str


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """How the suspect's coordinates relate to the original's.

    Attributes:
        aligned: whether the suspect could be put into the original's coordinates.
        embedding: the suspect's tensor that was used as its embedding.
        rows: (s,) int64, the suspect's row for every row of the original, -1 if it is gone.
        columns: (d,) int64; suspect[:, columns] has the original's order of columns.
        signs: (d,) float64, 1 or -1 for each column of the original.
        offsets: (d,) float64 in the suspect's units, which the suspect added to every row (a LayerNorm model ignores a
            constant).
        rotation: (d', d) float64 of orthonormal columns, or None; suspect @ rotation has the original's coordinates,
            and columns, signs and offsets are then those of an unchanged model.
        scale: length of the suspect's rows in units of the original's; NaN without compared rows.
        uniqueness: share of columns that are in place or match mutually, in [0, 1]; 1 after a rotation.
        cosines: (n,) cosine of each sampled row with the original's, on rows that were not used for the fit, means
            removed. After a rotation only in the original's minor components, because a rotation can make any two
            models of one language similar in the leading ones.
        decoy_cosines: (n,) the same against a wrong row, the null of `cosines`.
        broken_rows: sampled rows of the suspect that hold NaN or Inf.
        row_constants: whether constants per row are removed (a LayerNorm model ignores them).
        exhausted: whether a failure is evidence: the tokenizers identify the rows, the tensors' names are known, and
            there were enough usable rows. If only content could have paired the rows, a failure is not evidence.
        settled: whether every row was searched by its content.
        matched: if settled, the share of the smaller model's rows with a counterpart; else 1.
        nearly_equal: if not aligned, the largest share of compared rows that nearly equal the original's.
        whole: if not aligned, the largest median cosine in all components, after any rotation that was tried.
        steps: the undone changes, in order.
        reason: why it is or is not aligned, as one sentence.
    """

    aligned: bool
    embedding: TensorRef
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    signs: NDArray[np.float64]
    offsets: NDArray[np.float64]
    rotation: NDArray[np.float64] | None
    scale: float
    uniqueness: float
    cosines: NDArray[np.float64]
    decoy_cosines: NDArray[np.float64]
    broken_rows: NDArray[np.int64]
    row_constants: bool = False
    exhausted: bool = False
    settled: bool = False
    matched: float = 1.0
    nearly_equal: float = 0.0
    whole: float = 0.0
    steps: tuple[Step, ...] = field(default=())
    reason: str = ""

    @classmethod
    def unmoved(
        cls,
        embedding: TensorRef,
        reason: str,
        rows: NDArray[np.int64] = NOWHERE,
        width: int = 0,
        broken_rows: NDArray[np.int64] = NOWHERE,
        *,
        aligned: bool = False,
        scale: float = math.nan,
        uniqueness: float = 0.0,
    ) -> Alignment:
        """An alignment with the original's own d = `width` coordinates and without compared rows; the other arguments
        are attributes."""
        return cls(
            aligned=aligned,
            embedding=embedding,
            rows=rows,
            columns=np.arange(width),
            signs=np.ones(width),
            offsets=np.zeros(width),
            rotation=None,
            scale=scale,
            uniqueness=uniqueness,
            cosines=np.empty(0),
            decoy_cosines=np.empty(0),
            broken_rows=broken_rows,
            reason=reason,
        )

    @classmethod
    def recorded(cls, aligned: bool, tensor: str, scale: float, uniqueness: float, reason: str) -> Alignment:
        """The facts of an alignment for verdicts and sentences, without rows and columns.

        Args:
            tensor: the name of `embedding`; the others are the same as the attributes.
        """
        return cls.unmoved(TensorRef(tensor), reason, aligned=aligned, scale=scale, uniqueness=uniqueness)

    @property
    def undone(self) -> tuple[str, ...]:
        """A sentence for each undone disguise."""
        return tuple(step.said for step in self.steps)

    @property
    def similarity(self) -> float:
        """Median of `cosines`; NaN without compared rows."""
        return float(np.median(self.cosines)) if self.cosines.size else float("nan")

    @property
    def needed_similarity(self) -> float:
        """The `similarity` from which a suspect counts as aligned."""
        return ALIGNED_COSINE if self.rotation is None else MINOR_COSINE

    def least_in_place(self, typical: float) -> float:
        """The cosine below which a row is in the wrong place, if `typical` is the median of rows in place."""
        chance = float(self.decoy_cosines.std()) if self.decoy_cosines.size else 0.0
        return min(IN_PLACE_SHARE * typical, typical - CHANCE_DEVIATIONS * chance)

    @property
    def lost(self) -> int:
        """Rows of the original that the suspect lacks."""
        return int((self.rows < 0).sum())

    @property
    def in_place(self) -> bool:
        """Whether every column is at the original's position, without a changed sign or offset."""
        here = self.rotation is None and (self.signs == 1).all() and not self.offsets.any()
        return bool(here and (self.columns == np.arange(self.columns.size)).all())

    def restore(self, rows: NDArray[np.float64], originals: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """The suspect's rows (n, d) in the original's coordinates.

        Args:
            rows: (n, d) rows of the suspect.
            originals: (n, d) the original's rows of the same tokens; with them, and if `row_constants`, the constant
                by which a row differs from its original is removed too.
        """
        if self.rotation is not None:
            return rows @ self.rotation
        restored = rows if self.in_place else rows[:, self.columns] * self.signs - self.offsets
        if self.row_constants and originals is not None:
            with np.errstate(invalid="ignore"):
                # The median, because a mark changes a few entries a lot.
                restored = restored - np.median(restored - self.scale * originals, axis=1, keepdims=True)
        return restored
