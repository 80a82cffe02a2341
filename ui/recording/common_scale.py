"""Puts chosen tokens from several answers of a server on one scale.

A server that returns only the k likeliest tokens of each answer is asked once for every part of the chosen tokens. A
number b (the logit bias) is added to the logits of the part's tokens, so that they are the likeliest ones. With z the
logits of the prompt, T the temperature and S the tokens with a bias, the server returns

    l_i = (z_i + b) / T - log Z_S        for i in S,    Z_S = sum over all j of exp((z_j + b [j in S]) / T)

Z_S differs from part to part, and it is unknown: the tokens outside S are not returned. Therefore one token r, the
reference, is in every part. Within a part

    l_i - l_r = (z_i - z_r) / T

which contains neither Z_S nor b: the bias is the same for i and r and cancels, even if the server limits it, or
adds it before or after the temperature. So the differences to r of all parts are on one scale, that of the prompt's
own logits, for any bias of each part.

Log-probabilities would also need log p_r, one number per answer, but detection does not use it, because it centres
every answer. To make the table contain log-probabilities nevertheless, a row is normalised over the chosen
tokens: x_i - log sum_j exp(x_j) with x_i = l_i - l_r, the logarithm of i's probability given that one of the chosen
tokens comes next.

The reference costs one place in each part. An error in l_r, for example from rounding, shifts all tokens of its part.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def parts_of(count: int, told: int) -> list[range]:
    """Which of `count` chosen tokens are requested together, if an answer gives `told`: all but the first, which is
    the reference and in every part."""
    size = max(1, told - 1)
    return [range(start, min(start + size, count)) for start in range(1, count, size)] or [range(1, 1)]


def on_one_scale(count: int, parts: Iterable[tuple[range, NDArray[np.float32]]]) -> NDArray[np.float32]:
    """One answer's row of log-probabilities, from the values of its parts.

    Args:
        count: v, how many tokens are chosen.
        parts: the places of a part's tokens among the chosen ones, and its values: the reference's, then those
            of its tokens, (1 + tokens,); NaN for a missing one.

    Returns:
        (v,) float32 in the order of the chosen tokens, place 0 the reference; NaN for missing values, or if a
        part lacks the reference. The probabilities of the others sum to 1.
    """
    row = np.full(count, np.nan)
    row[0] = 0.0
    for places, values in parts:
        row[places.start : places.stop] = values[1:].astype(np.float64) - np.float64(values[0])
    told = np.isfinite(row)
    row[~told] = np.nan
    row -= float(np.logaddexp.reduce(row[told]))
    return row.astype(np.float32)
