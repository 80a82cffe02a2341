"""Permutation_Recover (Algorithm 3, line 12) and beyond: converts a suspect's embedding to the original's coordinates.

    pipeline         finds the suspect's embedding among its tensors; `align`
    search           the cheapest explanation that fits, tried in order
    rows_by_name     matches rows to tokens by the tokenizers
    rows_by_content  the same by the rows themselves
    columns          matches coordinates by cosine similarity, with signs and offsets
    rotation         the rotation of the coordinates, by orthogonal Procrustes
    least_squares    the affine map that does not depend on a score
    places           the position of every row once the coordinates are known
    rows             the rows of one embedding;  sample, pairs of rows of two;  neighbours, nearest rows
    neurons          pairs the MLP neurons of two models, in any coordinates
    result           the `Alignment`: the undone changes and their confidence;  steps, the same in words

A suspect that does not resemble the original "cannot be aligned", which differs from a bad match.
"""

from irwm.alignment.pipeline import align, with_embedding
from irwm.alignment.result import Alignment

__all__ = ["Alignment", "align", "with_embedding"]
