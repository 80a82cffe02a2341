"""The neurons of one suspect in the original's coordinates, so that a fingerprint is read from them as from a matrix.

The MLPs in which a release has its fingerprint are secret, so a reading is made for each choice of them. They are
compared and turned as `irwm.alignment.neurons` describes; no step of this depends on a recipient's signs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.alignment.neurons import NeuronMap
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.files import announce
from irwm.checkpoint.mlps import MLPs, NeuronRows
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError
from irwm.evidence.finding import ALIGNED, MAPS
from irwm.evidence.neurons import Compared
from irwm.families import TensorRef
from irwm.keys.neurons import FingerprintKey, rows_of

# Of a suspect that stores neurons in a way that is not understood.
UNREADABLE = (UnsupportedCheckpointError, CorruptCheckpointError)
NOT_PAIRED = "has no neurons that could be paired with the original's"
PAIRED = "has neurons that could be paired with the original's"


@dataclass(frozen=True, slots=True, eq=False)
class NeuronAlignment(Alignment):
    """How a suspect's rows g relate to the original's."""

    def restore(self, rows: NDArray[np.float64], originals: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """The rows in the original's coordinates, each as long as its original along that: an MLP whose activation is
        homogeneous ignores the length of a row."""
        turned = rows if self.rotation is None else rows @ self.rotation
        if originals is None:
            return turned
        along = np.einsum("ij,ij->i", turned, originals)
        own = np.einsum("ij,ij->i", originals, originals)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(along > 0, own / along, 1.0)
        return turned * factor[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class NeuronReading:
    """The rows of one choice of MLPs.

    Attributes:
        suspect, model: the rows of both.
        alignment: the suspect's row for each of the original's, and the rotation.
    """

    suspect: NeuronRows
    model: NeuronRows
    alignment: Alignment

    def least_squares(self, secret: bytes) -> None:
        """No map is fitted by least squares: a rotation is all that the stream allows."""


class AlignedNeurons:
    """The MLPs of a suspect, read as `irwm.evidence.examination.Aligned` reads its embedding.

    Args:
        suspect, model: the two checkpoints.
        compare: compares their neurons; called if the suspect's are not in the original's places. None if they are not
            read at all.
    """

    def __init__(self, suspect: Checkpoint, model: Checkpoint, compare: Callable[[], Compared | None] | None) -> None:
        self._suspect, self._model, self._compare = suspect, model, compare
        # By the secret that samples follow from.
        self._readings: dict[tuple[bytes, tuple[int, ...]], NeuronReading] = {}
        self._maps: dict[bytes, NeuronMap | None] = {}
        self._mapping, self._reading = Lock(), Lock()  # several keys are read at the same time
        self._failed = False

    def _map(self, secret: bytes) -> NeuronMap | None:
        with self._mapping:
            if secret not in self._maps:
                self._maps[secret] = self._found(secret)
            return self._maps[secret]

    def _found(self, secret: bytes) -> NeuronMap | None:
        if self._compare is None:
            self._failed = True
            return None
        try:
            found = NeuronMap.in_place(self._suspect, self._model, secret)
        except UNREADABLE:
            self._failed = True
            return None
        if found is not None:
            return found
        compared = self._compare()
        if compared is None:
            self._failed = True
        elif compared.known is not None:
            found = NeuronMap(compared.known.theirs, MLPs(self._model), secret, compared.known)
        return found

    def failed(self, secret: bytes) -> bool:
        """Whether the neurons could not be compared, so that nothing is known about a fingerprint in them."""
        self._map(secret)
        return self._failed

    @property
    def alignment(self) -> Alignment:
        """Whether neurons could be paired, with any secret so far."""
        aligned = any(found is not None for found in self._maps.values())
        return Alignment.unmoved(TensorRef(""), PAIRED if aligned else NOT_PAIRED, aligned=aligned, scale=1.0)

    @property
    def holds_embedding(self) -> bool:
        """Whether MLPs are in the suspect's own files."""
        return bool(MLPs(self._suspect).every)

    @property
    def checked_by_content(self) -> AlignedNeurons:
        """The same: neurons have no names."""
        return self

    def maps(self, _secret: bytes) -> tuple[str, ...]:
        """The maps of `MAPS` that are needed."""
        return MAPS[:1]

    def readable(self, by: str, secret: bytes) -> bool:
        """Whether rows can be read under this map, one of `MAPS`."""
        return by == ALIGNED and self._map(secret) is not None

    def of(self, part: FingerprintKey) -> NeuronReading:
        """The rows in which this fingerprint may be; the suspect must be `readable`. All are gone if a tensor of the
        suspect is unreadable.

        Raises:
            KeyMismatchError: the key was made for another original.
            CheckpointError: a file cannot be read.
        """
        secret = part.derivation.sample_key()
        found = self._map(secret)
        assert found is not None
        with self._reading:
            if (secret, part.mlps) not in self._readings:
                self._readings[secret, part.mlps] = self._read(found, rows_of(self._model, part))
            return self._readings[secret, part.mlps]

    def _read(self, found: NeuronMap, ours: NeuronRows) -> NeuronReading:
        # All, so that a server does not learn which of them carry the fingerprint.
        for mlp in found.theirs.every:
            for ref in (mlp.gate, *([] if mlp.gain is None else [mlp.gain])):
                for part in found.theirs.checkpoint.tensors[ref.name].parts:
                    announce(part.file, [(part.start, part.stop)])
        try:
            places = [found.counterpart(number) for number in ours.numbers]
        except UNREADABLE:
            self._failed = True
            places = [(-1, np.full(mlp.count, -1)) for mlp in ours.chosen]
        theirs = NeuronRows(found.theirs, [max(0, number) for number, _ in places])
        rows = np.concatenate(
            [np.where(rows < 0, -1, rows + start) for (_, rows), start in zip(places, theirs.starts, strict=False)]
        )
        tensor = TensorRef(ours.chosen[0].gate.name)
        plain = NeuronAlignment.unmoved(tensor, PAIRED, rows, ours.hidden_size, aligned=True, scale=1.0)
        turn = None if found.turn is None else found.turn.double().numpy()
        return NeuronReading(theirs, ours, replace(plain, rotation=turn))
