"""The fingerprint in the neurons of some MLPs (docs/key-format.md, The MLP layers)."""

from __future__ import annotations

import hashlib
import re
import struct

import numpy as np

from .keys import Key, PlaceKey
from .models import Checkpoint, Layer0, encode

FIRST = re.compile(r".*\.(\d+)\.(?:\w+\.)?(gate_proj|gate_up_proj|c_fc)\.weight")
NORMS = ("pre_feedforward_layernorm", "ln_2", "post_attention_layernorm")


class MLP:
    """The first matrix of an MLP, and the gain of the norm before it."""

    def __init__(self, model: Checkpoint, name: str, layer: int, role: str) -> None:
        self.name, self.transposed = name, role == "c_fc"
        whole = model.array(name)
        self.whole = whole.T if self.transposed else whole
        self.count = len(self.whole) // (2 if role == "gate_up_proj" else 1)
        self.stored = np.ascontiguousarray(self.whole[: self.count])
        body = name[: name.index(f".{layer}.")] + f".{layer}."
        gains = [body + norm + ".weight" for norm in NORMS if body + norm + ".weight" in model.tensors]
        norm = Layer0(model).norms["input_norm"]
        assert norm is not None
        self.gain = (model.array(gains[0]) + np.float32(norm.offset)).astype(np.float32)
        self.rows = (self.stored * self.gain).astype(np.float32)
        if norm.kind == "layer":
            self.rows = self.rows - self.rows.mean(1, keepdims=True)


class Neurons:
    """The neurons of a checkpoint that carry a key's fingerprint."""

    def __init__(self, model: Checkpoint, key: PlaceKey) -> None:
        found = [(int(m[1]), name, m[2]) for name in model.tensors if (m := FIRST.fullmatch(name))]
        every = [(name, layer, role) for layer, name, role in sorted(found)]
        self.model, self.key = model, key
        self.mlps = [MLP(model, *every[number]) for number in key.mlps]
        self.rows = np.concatenate([mlp.rows for mlp in self.mlps]).astype(np.float64)
        key.s = len(self.rows)

    def fingerprint(self) -> str:
        """The digest that the key is bound to."""
        digest = hashlib.sha256(struct.pack("<Q", 15) + b"irwm-neurons-v1")
        digest.update(struct.pack("<QQ", self.key.d, len(self.mlps)))
        for mlp in self.mlps:
            digest.update(struct.pack("<Q", mlp.count) + mlp.gain.astype("<f4").tobytes())
            digest.update(hashlib.sha256(mlp.stored.astype("<f4").tobytes()).digest())
        return digest.hexdigest()

    def differences(self, suspect: Checkpoint) -> np.ndarray:
        """The differences of a suspect whose neurons are in their places."""
        theirs = Neurons(suspect, self.key).rows
        moved = NotImplementedError("this verifier reads neurons only in place")
        if theirs.shape != self.rows.shape:
            raise moved
        along, own = (theirs * self.rows).sum(1), (self.rows**2).sum(1)
        if not np.median(along / np.sqrt(own * (theirs**2).sum(1))) >= 0.3:
            raise moved
        return theirs * np.where(along > 0, own / along, 1.0)[:, None] - self.rows

    def written(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The changed tensors of a release: unrounded values, and bits of the file's dtype, as stored."""
        key, at = self.key, np.arange(len(self.rows))
        places, signs = key.noise()
        lengths = np.linalg.norm(self.rows, axis=1)
        inside = np.zeros_like(self.rows)
        inside[at[:, None], places] = signs * (key.spread * lengths / np.sqrt(key.d))[:, None]
        added, start, made = key.out_of_basis(inside, at), 0, {}
        for mlp in self.mlps:
            gain = mlp.gain.astype(np.float64)
            least = 0.1 * np.sqrt((gain**2).mean())
            gain = np.where(np.abs(gain) < least, np.copysign(least, gain), gain)
            exact = mlp.whole.astype(np.float64)
            exact[: mlp.count] += added[start : start + mlp.count] / gain
            exact = np.ascontiguousarray(exact.T if mlp.transposed else exact)
            made[mlp.name] = exact, encode(exact, self.model.tensors[mlp.name][1])
            start += mlp.count
        return made


def neurons_of(key: Key, model: Checkpoint) -> Neurons | None:
    """The neurons of the original that carry the key's fingerprint."""
    return Neurons(model, key.place("neurons")) if "neurons" in key.fields else None
