"""Gives torchao's tensors the names that other tools use, so that those tools' readers assemble them.

    model.q_proj.weight:_data                                    a plain tensor
    model.q_proj.weight:qdata, :scale, :zero_point               codes of 8 bits, with scales and zeros
    model.q_proj._weight_qdata, _weight_scale, ...               the same, as later versions write it

Codes of fewer bits are packed for specific kernels and are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from irwm.checkpoint.tensors import Tensor, TensorEntry

_BYTES = ("I8", "F8_E4M3", "F8_E5M2")
_PIECE = re.compile(r"(?P<weight>.+):(?P<piece>_data|qdata|scale|zero_point)", re.DOTALL)
_LATER = re.compile(r"(?P<module>.+\.)_(?P<weight>weight)_(?P<piece>qdata|scale|zero_point)", re.DOTALL)
SECOND = "torchao."
_NAMES = {"_data": "", "qdata": "", "scale": "_scale", "zero_point": "_zero_point"}


def plainly_named(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, with each of torchao's pieces named as in other tools. If a plain tensor has that name already,
    the piece gets the prefix `SECOND`, so that both are read."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        place = _place(name)
        if place is None or not isinstance(tensor, TensorEntry):
            continue
        weight, piece = place
        codes = tensors.get(_codes(name, piece))
        readable = piece == "_data" or (codes is not None and codes.dtype in _BYTES)
        plain = (SECOND if weight in tensors else "") + weight + _NAMES[piece]
        if readable and plain not in found:
            del found[name]
            found[plain] = replace(tensor, name=plain)
    return found


def _place(name: str) -> tuple[str, str] | None:
    """The weight that a tensor is a piece of, and the piece; None for other tensors."""
    early = _PIECE.fullmatch(name)
    if early is not None:
        return early["weight"], early["piece"]
    later = _LATER.fullmatch(name)
    return None if later is None else (later["module"] + later["weight"], later["piece"])


def _codes(name: str, piece: str) -> str:
    return name.removesuffix(piece) + "qdata"
