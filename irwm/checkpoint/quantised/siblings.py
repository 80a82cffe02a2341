"""Other tensors under a quantised weight's name, since they may change what the weight is.

Biases and tensors about inputs and outputs leave the weight as it is. NVIDIA's ModelOpt may keep the factors of its
inputs' columns apart (AWQ, SmoothQuant); the weight that meets a plain input is the stored one with each column times
its factor. Anything else is unknown, and a weight with an unknown piece is not read: LoRA parts, corrections of low
rank, factors of a scheme not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import torch

from irwm.checkpoint.quantised.parts import FLOATS, Parts, require_dtype, require_shape
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
# Of the quantisers that ModelOpt keeps as modules of their own: the largest value met in calibration.
_CALIBRATION = frozenset({"_amax"})
_WITHIN = "codes/"


def with_factors(weight: PackedTensor, parts: Parts, settings: Settings) -> PackedTensor:
    """The weight multiplied by ModelOpt's factors of its columns, where it has some.

    Raises:
        CorruptCheckpointError: they are not one number for each column.
    """
    factors = parts.get(COLUMN_FACTORS)
    if factors is None or settings.method != "modelopt" or len(weight.shape) != 2 or _is_embedding(weight.name):
        return weight
    role = "factors of the columns"
    require_shape(require_dtype(factors, FLOATS, role), weight.shape[1:], role)
    stored = {_WITHIN + name: entry for name, entry in weight.stored.items()} | {COLUMN_FACTORS: factors}
    return replace(
        weight,
        stored=stored,
        by_rows=frozenset(_WITHIN + name for name in weight.by_rows),
        decode=partial(_decoded, weight),
        parameters=parameters_of(columns=True) + weight.parameters,
    )


def unknown_piece(weight: PackedTensor, parts: Parts, deeper: Iterable[TensorEntry]) -> TensorEntry | None:
    """A piece under the weight's name whose meaning is not known here; None without one.

    Args:
        parts: the pieces beside the weight's own, by the last word of their names.
        deeper: what stands one name further down.
    """
    used = {weight.name, *(part.name for part in weight.parts)}  # a plain weight beside the codes is another weight
    beside = (entry for part, entry in parts.items() if part not in HARMLESS)
    below = (entry for entry in deeper if entry.name.rpartition(".")[2] not in _CALIBRATION)
    return next((entry for entry in (*beside, *below) if entry.name not in used), None)


def unread(weight: PackedTensor, piece: TensorEntry) -> PackedTensor:
    """The weight as one that raises an error when it is read, because of a piece of unknown meaning.

    An embedding stays readable: its rows are looked up, so that no tool can have transformed their input, and otherwise
    any tensor beside it would hide it.
    """
    return weight if _is_embedding(weight.name) else replace(weight, decode=partial(_refused, weight.name, piece))


def _refused(name: str, piece: TensorEntry, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    raise UnsupportedCheckpointError(
        "A piece of the quantised weight is of unknown meaning, and the weight is not read without it",
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
