"""Permutation_Recover (Algorithm 3, line 12) and beyond: put a suspect's embedding back into our coordinates.

`pipeline.align` tries the cheapest explanation first and stops at the first that holds: which of the suspect's rows
is which token (`tokens` by tokenizer, `content` by the rows themselves), then which coordinate is which (`columns` by
cosine similarity with signs and offsets, `rotation` by orthogonal Procrustes). What was undone, and how sure that is,
stands in the `Alignment`; a suspect that does not resemble the original "cannot be aligned", which is not a bad match.
"""

from irwm.alignment.pipeline import align, with_embedding
from irwm.alignment.result import ALIGNED_COSINE, MINOR_COSINE, Alignment, Step

__all__ = [
    "ALIGNED_COSINE",
    "MINOR_COSINE",
    "Alignment",
    "Step",
    "align",
    "with_embedding",
]
