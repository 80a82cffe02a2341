"""Other tensors under a quantised weight's name, since they may change the weight's meaning.

Biases and tensors about inputs and outputs do not change the weight. NVIDIA's ModelOpt may store the factors of its
input columns separately (AWQ, SmoothQuant); for a plain input, the weight is the stored one with each column times its
factor. All other tensors are unknown, and a weight with an unknown piece is not read: LoRA parts, corrections of low
rank, factors of an unknown scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import torch

from irwm.checkpoint.quantised.parts import FLOATS, Parts, require
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of
from irwm.errors import UnsupportedCheckpointError, printable
from irwm.families.family import embedding_names

COLUMN_FACTORS = "pre_quant_scale"
HARMLESS = frozenset(
    {
        *("bias", "input_scale", "input_scale_ub", "input_zero_point", "input_global_scale"),
        *("output_scale", "output_zero_point", "q_scale", "k_scale", "v_scale"),
    }
)
# Of the quantisers that ModelOpt keeps as separate modules: the largest value found in calibration.
_CALIBRATION = frozenset({"_amax"})
_WITHIN = "codes/"


def with_factors(weight: PackedTensor, parts: Parts, settings: Settings) -> PackedTensor:
    """The weight multiplied by ModelOpt's factors of its columns, if it has some.

    Raises:
        CorruptCheckpointError: they are not one number for each column.
    """
    factors = parts.get(COLUMN_FACTORS)
    if factors is None or settings.method != "modelopt" or len(weight.shape) != 2 or _is_embedding(weight.name):
        return weight
    role = "column factors"
    require(factors, role, FLOATS, weight.shape[1:])
    stored = {_WITHIN + name: entry for name, entry in weight.stored.items()} | {COLUMN_FACTORS: factors}
    return replace(
        weight,
        stored=stored,
        by_rows=frozenset(_WITHIN + name for name in weight.by_rows),
        decode=partial(_decoded, weight),
        parameters=parameters_of(columns=True) + weight.parameters,
    )


def unknown_piece(weight: PackedTensor, parts: Parts, deeper: Iterable[TensorEntry]) -> TensorEntry | None:
    """A piece under the weight's name with an unknown meaning; None without one.

    Args:
        parts: the other pieces under the name, by the last word of their names.
        deeper: tensors one name level below.
    """
    used = {weight.name, *(part.name for part in weight.parts)}  # a plain weight next to the codes is another weight
    others = (entry for part, entry in parts.items() if part not in HARMLESS)
    below = (entry for entry in deeper if entry.name.rpartition(".")[2] not in _CALIBRATION)
    return next((entry for entry in (*others, *below) if entry.name not in used), None)


def unread(weight: PackedTensor, piece: TensorEntry) -> PackedTensor:
    """The weight as one that raises an error when it is read, because of a piece with an unknown meaning.

    An embedding stays readable: its rows are looked up, so no tool can have transformed their input, and otherwise an
    extra tensor could prevent its examination.
    """
    return weight if _is_embedding(weight.name) else replace(weight, decode=partial(_refused, weight.name, piece))


def _refused(name: str, piece: TensorEntry, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    raise UnsupportedCheckpointError(
        "The meaning of one part of the quantised weight is unknown, and the weight cannot be read without that part",
        file=piece.file,
        tensor=name,
        found=printable(piece.name, 120),
        advice="Dequantise the model and save it as float32, float16 or bfloat16",
    )


def _is_embedding(name: str) -> bool:
    return name.endswith(embedding_names())


def _decoded(weight: PackedTensor, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(n, in) float32."""
    inner = {name.removeprefix(_WITHIN): value for name, value in values.items() if name != COLUMN_FACTORS}
    return weight.decode(inner) * values[COLUMN_FACTORS].float()
