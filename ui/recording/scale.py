"""Chosen tokens that a server tells a few at a time, on one scale.

A server that tells only the k likeliest tokens of each answer is asked once for every part of the chosen tokens. A
number b (the logit bias) is added to the logits of the part's tokens, so that they are the likeliest ones. With z the
logits of the prompt, T the temperature and S the tokens with a bias, the server tells

    l_i = (z_i + b) / T - log Z_S        for i in S,    Z_S = sum over all j of exp((z_j + b [j in S]) / T)

Z_S differs from part to part, and it is unknown: the tokens outside S are not told. Therefore one token r, the
reference, is in every part. Within a part

    l_i - l_r = (z_i - z_r) / T

in which neither Z_S nor b occurs: the bias is the same for i and r and cancels, also where the server bounds it, or
adds it before or after the temperature. So the differences to r of all parts are on one scale, that of the prompt's
own logits, whatever bias each part was asked with.

What is missing for log-probabilities is log p_r, one number per answer, and detection takes such numbers away anyway
(it centres every answer). So that the table holds log-probabilities all the same, a row is normalised over the chosen
tokens: x_i - log sum_j exp(x_j) with x_i = l_i - l_r, the logarithm of i's probability given that one of the chosen
tokens comes next.

The reference costs one place in each part. An error in l_r, such as by rounding, moves all tokens of its part together.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def parts_of(count: int, told: int) -> list[range]:
    """Which of `count` chosen tokens are asked for together, where an answer tells `told`: all but the first, which is
    the reference and in every part."""
    size = max(1, told - 1)
    return [range(start, min(start + size, count)) for start in range(1, count, size)] or [range(1, 1)]


def on_one_scale(count: int, parts: Iterable[tuple[range, NDArray[np.float32]]]) -> NDArray[np.float32]:
    """One answer's row of log-probabilities, from the values of its parts.

    Args:
        count: v, how many tokens are chosen.
        parts: the places of a part's tokens among the chosen ones, and its values as told: the reference's, then those
            of its tokens, (1 + tokens,); NaN where one was not told.

    Returns:
        (v,) float32 in the order of the chosen tokens, place 0 the reference; NaN where nothing was told, or where a
        part did not tell the reference. The probabilities of the others sum to 1.
    """
    row = np.full(count, np.nan)
    row[0] = 0.0
    for places, values in parts:
        row[places.start : places.stop] = values[1:].astype(np.float64) - np.float64(values[0])
    told = np.isfinite(row)
    row[~told] = np.nan
    row -= float(np.logaddexp.reduce(row[told]))
    return row.astype(np.float32)
