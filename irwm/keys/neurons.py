"""The part of a key for a fingerprint in the neurons: which MLPs carry it, and the digest of their rows.

The MLPs are secret: an attacker without another copy to compare has to damage all. Those in the files that a release
changes anyway are preferred, so that the other files can still be shared between copies.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from irwm.checkpoint import Checkpoint
from irwm.checkpoint.matrix import Matrix
from irwm.checkpoint.mlps import MLPs, NeuronRows
from irwm.checkpoint.model import EMBEDDING_DTYPES
from irwm.checkpoint.tensors import TensorEntry
from irwm.errors import KeyMismatchError
from irwm.families.neurons import Neurons
from irwm.scheme.derivation import Derivation
from irwm.scheme.noise import Noise, noise_of
from irwm.scheme.parameters import Parameters

# Rows that carry the fingerprint, unless a single MLP has more: half as many as a large vocabulary has.
MOST_ROWS = 1 << 16
NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class NeuronsKey:
    """The values of a key for the neurons that are not derived.

    Attributes:
        mlps: the numbers of the MLPs, ascending, as `irwm.checkpoint.mlps.MLPs` counts them.
        fingerprint: hex SHA-256 of their rows, `NeuronRows.fingerprint`.
        width: the number of coordinates of the residual stream.
    """

    mlps: tuple[int, ...]
    fingerprint: str
    width: int


@dataclass(frozen=True, slots=True)
class FingerprintKey:
    """What the fingerprint of a key in one place is derived from.

    Attributes:
        parameters: those of the place.
        derivation: derives the noise.
        mlps: the MLPs in whose neurons it is; () for a fingerprint in another place.
    """

    parameters: Parameters
    derivation: Derivation = field(repr=False)
    mlps: tuple[int, ...] = ()

    def noise(self, rows: Matrix) -> Noise:
        """The noise of neurons. They have no marks."""
        return noise_of(self.derivation, self.parameters, rows, NOTHING)


def choose(model: Checkpoint, derivation: Derivation) -> NeuronsKey | None:
    """The MLPs of an original that carry the fingerprint of a release; None if no rows can be marked.

    Args:
        derivation: of the key of the embedding.

    Raises:
        CheckpointError: a tensor cannot be read.
    """
    mlps = MLPs(model)
    numbers = [int(number) for number in model.kept("markable MLPs", lambda: " ".join(_markable(mlps))).split()]
    refs = [model.layout.embedding, *([] if model.layout.head is None else [model.layout.head])]
    changed = {file for ref in refs if ref.name in model.tensors for file in _files(model, ref.name)}
    shuffled = [numbers[place] for place in derivation.mlps(len(numbers))] if numbers else []
    shuffled.sort(key=lambda number: not _files(model, mlps.every[number].gate.name) <= changed)  # stable
    left, chosen = MOST_ROWS, list[int]()
    for number in shuffled:
        left -= mlps.every[number].count
        if left < 0 and chosen:
            break
        chosen.append(number)
    if not chosen:
        return None
    chosen.sort()
    return NeuronsKey(tuple(chosen), NeuronRows(mlps, chosen).fingerprint, mlps.width)


def rows_of(model: Checkpoint, part: FingerprintKey) -> NeuronRows:
    """The rows of an original that carry a fingerprint.

    Raises:
        KeyMismatchError: the key was made for other rows.
        CheckpointError: a tensor cannot be read.
    """
    mlps = MLPs(model)
    rows = NeuronRows(mlps, part.mlps) if max(part.mlps) < len(mlps.every) else None
    if rows is None or rows.fingerprint != part.derivation.fingerprint:
        raise KeyMismatchError(
            "this key was made for another original model: the neurons of its MLPs are different",
            file=model.path,
            expected=f"neurons with digest {part.derivation.fingerprint[:16]}",
            found="fewer MLPs" if rows is None else f"neurons with digest {rows.fingerprint[:16]}",
            advice="Choose the unmarked original that the key was generated from",
        )
    return rows


def _markable(mlps: MLPs) -> list[str]:
    """The numbers of the MLPs whose rows are plain numbers, in one tensor per MLP, and in no other MLP: rows that stay
    unmarked elsewhere would reveal the fingerprint."""
    digests: dict[bytes, list[int]] = {}
    for number, mlp in enumerate(mlps.every):
        if _is_plain(mlps, mlp):
            some = mlps.stored(mlp, mlp.gate, [0, mlp.count - 1]).contiguous().numpy()
            digests.setdefault(hashlib.sha256(some.tobytes()).digest(), []).append(number)
    return [str(number) for numbers in digests.values() if len(numbers) == 1 for number in numbers]


def _is_plain(mlps: MLPs, mlp: Neurons) -> bool:
    entry = mlps.checkpoint.tensors[mlp.gate.name]
    plain = isinstance(entry, TensorEntry) and entry.dtype in EMBEDDING_DTYPES
    return plain and mlp.expert is None and mlp.gate.every is None and len(entry.shape) == 2


def _files(model: Checkpoint, name: str) -> set[Path]:
    return {Path(part.file) for part in model.tensors[name].parts}
