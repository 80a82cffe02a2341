"""Whether rows stand where an alignment says. A sample does not show that a few were exchanged."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.result import Alignment
from irwm.alignment.rows import Rows, has_direction

# A row that keeps less than this share of the median similarity stands in the wrong place.
IN_PLACE_SHARE = 0.4
# Few enough that what is made of them stays in the cache.
_ROWS_AT_ONCE = 256


class Places:
    """The rows of one aligned suspect; each row's cosine is computed once, however many keys read it."""

    def __init__(self, suspect: Rows, model: Rows, alignment: Alignment, by_id: NDArray[np.int64]) -> None:
        self._suspect, self._model, self._alignment, self._by_id = suspect, model, alignment, by_id
        self._mean = model.centre.double().cpu().numpy() * model.length
        self._known = np.zeros(model.count, dtype=bool)
        self._cosines = np.full(model.count, np.nan)  # NaN where the suspect's row cannot be compared

    def misplaced(self, tokens: NDArray[np.int64]) -> int:
        """How many of the given tokens' rows do not resemble the original's where the alignment puts them; all of them
        where a name alone puts one anywhere but at its own id.

        Names are hearsay: no key is bound to a tokenizer, and whoever shows the original could write into it, after
        the key was made, which rows it reads and which are "gone".
        """
        rows = self._alignment.rows
        if (rows[tokens] != self._by_id[tokens]).any():
            return int(tokens.size)
        cosines = self._of(tokens[rows[tokens] >= 0])
        cosines = cosines[~np.isnan(cosines)]
        if not cosines.size:
            return 0
        return int((cosines < IN_PLACE_SHARE * min(self._alignment.similarity, float(np.median(cosines)))).sum())

    def _of(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) cosine of each token's row with the original's, both about the original's median row."""
        new = np.unique(tokens[~self._known[tokens]])
        if new.size:
            for start in range(0, new.size, _ROWS_AT_ONCE):
                some = new[start : start + _ROWS_AT_ONCE]
                theirs = self._suspect.source.embedding(self._alignment.rows[some])
                self._cosines[some] = self._between(theirs, self._model.source.embedding(some))
            self._known[new] = True
        return self._cosines[tokens]

    def _between(self, theirs: torch.Tensor, ours: torch.Tensor) -> NDArray[np.float64]:
        """(n,) the cosine of each of their rows, put into our coordinates, with ours; NaN where it has none."""
        usable = has_direction(theirs).numpy()
        originals = ours[usable].double().numpy()
        a = self._alignment.restore(theirs[usable].double().numpy(), originals) / self._alignment.scale - self._mean
        b = originals - self._mean
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines = np.full(len(theirs), np.nan)
        cosines[usable] = np.einsum("ij,ij->i", a, b) / np.maximum(lengths, 1e-300)
        return cosines
