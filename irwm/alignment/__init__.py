"""Permutation_Recover (Algorithm 3, line 12) and beyond: put a suspect's embedding back into our coordinates.

    pipeline     which of the suspect's tensors is its embedding; `align`
    search       the cheapest explanation that holds, tried in order
    tokens       which row is which token, by the tokenizers
    content      the same by the rows themselves
    columns      which coordinate is which, by cosine similarity, with signs and offsets
    rotation     the rotation of the coordinates, by orthogonal Procrustes
    places       the place of every row once the coordinates are known
    rows         the rows of one embedding;  sample, pairs of rows of two;  neighbours, nearest rows
    result       the `Alignment`: what was undone and how sure that is;  wording, the same in words

A suspect that does not resemble the original "cannot be aligned", which is not the same as a bad match.
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
