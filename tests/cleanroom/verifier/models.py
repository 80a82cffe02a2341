"""A checkpoint in safetensors, its layer 0 with digest, and the invariant A (docs/layer0.md)."""

from __future__ import annotations

import hashlib
import json
import struct
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .keys import canonical

FAMILIES = Path(__file__).resolve().parents[3] / "docs" / "layer0-families.json"
NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 to the 16 bits of bfloat16, to the nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def encode(x: np.ndarray, dtype: str) -> np.ndarray:
    """float64 through float32 to a file's dtype; the array holds the file's bits."""
    single = np.asarray(x, np.float64).astype(np.float32)
    if dtype == "BF16":
        return to_bfloat16(single)
    return single.astype("<f2" if dtype == "F16" else "<f4")


def decode(data: bytes, dtype: str) -> np.ndarray:
    """A file's bytes as float32."""
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).astype(np.float32)


def tensor_digest(x: np.ndarray) -> str:
    """layer0.md, a tensor's digest."""
    sizes = b"".join(struct.pack("<Q", n) for n in x.shape)
    return hashlib.sha256(sizes + np.ascontiguousarray(x, "<f4").tobytes()).hexdigest()


class Norm:
    """A norm of layer 0."""

    def __init__(
        self, kind: str, over: str, eps: float, offset: float, weights: list[np.ndarray], bias: np.ndarray | None
    ) -> None:
        self.kind, self.over, self.eps, self.offset, self.weights, self.bias = kind, over, eps, offset, weights, bias

    def digest(self) -> dict[str, Any]:
        """The norm's part in layer 0's digest."""
        return {
            "kind": self.kind,
            "over": self.over,
            "eps": float(self.eps),
            "offset": float(self.offset),
            "weights": [tensor_digest(w) for w in self.weights],
            "bias": None if self.bias is None else tensor_digest(self.bias),
        }

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """The norm over the last axis."""
        if self.kind == "layer":
            y = y - y.mean(-1, keepdims=True)
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + self.eps)
        if self.weights:
            weight = self.weights[0] if len(self.weights) == 1 else np.stack(self.weights)
            y = y * (self.offset + weight.astype(np.float64))
        return y if self.bias is None else y + self.bias.astype(np.float64)


class Checkpoint:
    """A folder with config.json and safetensors files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.tensors: dict[str, tuple[Path, str, tuple[int, ...], int, int]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                size = struct.unpack("<Q", file.read(8))[0]
                header = json.loads(file.read(size))
            for name, entry in header.items():
                if name != "__metadata__":
                    start, stop = entry["data_offsets"]
                    begin = 8 + size
                    self.tensors[name] = path, entry["dtype"], tuple(entry["shape"]), begin + start, begin + stop

    def raw(self, name: str) -> bytes:
        """A tensor's bytes as stored in the file."""
        path, _, _, start, stop = self.tensors[name]
        with path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def array(self, name: str) -> np.ndarray:
        """A tensor as float32."""
        _, dtype, shape, _, _ = self.tensors[name]
        return decode(self.raw(name), dtype).reshape(shape)

    def fingerprint(self, name: str) -> str:
        """key-format.md, the model's fingerprint, of one matrix."""
        _, dtype, shape, _, _ = self.tensors[name]
        text = NAMES[dtype].encode()
        head = struct.pack("<Q", 17) + b"irwm-embedding-v1" + struct.pack("<Q", len(text)) + text
        return hashlib.sha256(head + struct.pack("<QQ", *shape) + self.raw(name)).hexdigest()

    @cached_property
    def family(self) -> tuple[dict[str, Any], str, dict[str, Any]]:
        """The family, the model type, and the part of the config that names it."""
        table = json.loads(FAMILIES.read_text())
        for section in [self.config] + [self.config.get(n) for n in ("text_config", "llm_config", "language_config")]:
            kind = section.get("model_type") if isinstance(section, dict) else None
            for family in table.values():
                if kind in family["model_types"]:
                    return family, kind, section
        raise ValueError("no family is known by this model_type")

    @staticmethod
    def _value(family: dict[str, Any], kind: str, section: dict[str, Any], key: str) -> Any:
        for spelling in family["spellings"].get(key, [key]):
            found: Any = section
            for part in spelling.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if found is not None:
                return found
        return family["model_types"][kind].get(key)

    def value(self, key: str | None) -> Any:
        """layer0.md, the value of a key of the config."""
        return None if key is None else self._value(*self.family, key)

    @cached_property
    def prefix(self) -> dict[str, str]:
        """Prefixes of the body's and the head's names."""
        family, _, section = self.family
        prefixes = list(family["prefixes"])
        if section is not self.config:
            prefixes.sort(key=lambda p: "language_model." not in p["body"])
        for prefix in prefixes:
            needed = [family["projections"][r] for r in "qk"] if family["projections"] else []
            any_of = needed or family["embedding"]
            hits = [prefix["body"] + n in self.tensors for n in any_of]
            if all(hits) if needed else any(hits):
                return prefix
        raise ValueError("the files hold no layer 0 of this family")

    def first(self, names: list[str], prefix: str) -> str | None:
        """The first name that the files hold."""
        return next((prefix + n for n in names if prefix + n in self.tensors), None)

    @property
    def embedding(self) -> str:
        """The embedding's name."""
        name = self.first(self.family[0]["embedding"], self.prefix["body"])
        if name is None:
            name = self.first(self.family[0]["head"], self.prefix["head"])
        assert name is not None
        return name

    @property
    def head(self) -> str:
        """The name of the stored output head, or of the embedding if the model has no separate head."""
        name = self.first(self.family[0]["head"], self.prefix["head"])
        tied = self.family[2].get("tie_word_embeddings", self.config.get("tie_word_embeddings"))
        if tied is None:
            tied = self.family[0]["model_types"][self.family[1]].get("tie_word_embeddings") if name else True
        return self.embedding if tied or name is None else name

    def matrix(self, place: str) -> str:
        """The name of the matrix in a place."""
        return self.embedding if place == "embedding" else self.head

    @property
    def embedding_scale(self) -> float:
        """The factor of the embedding's rows before layer 0."""
        said = self.family[0]["embedding_scale"]
        if said != "sqrt(hidden_size)":
            value = None if said == "one" else self.value(said)
            return 1.0 if value is None else float(value)
        stated = self.config.get("dtype") or self.config.get("torch_dtype")
        dtype = {"bfloat16": "BF16", "float16": "F16"}.get(stated, "F32")
        root = np.sqrt([self.tensors[self.embedding][2][1]])
        return float(decode(encode(root, dtype).tobytes(), dtype)[0])

    def drops_row_constants(self) -> bool:
        """Whether the first norm subtracts a constant from each row."""
        norm = self.family[0]["embedding_norm"] or self.family[0]["input_norm"]
        return bool(norm) and norm["kind"] == "layer"


class Layer0:
    """Everything of layer 0 that A is computed from: q and k, separate or fused, with norms, biases and positions.

    Families with other parts are refused, because no model at hand covers the code that would read them."""

    def __init__(self, model: Checkpoint) -> None:
        family, body = model.family[0], model.prefix["body"]
        p, absent = family["projections"], ("token_type", "embedding_projection", "clip", "variants")
        if p is None or p["kv_heads"] or any(family[n] for n in absent):
            raise NotImplementedError("this verifier does not read this family's layer 0")
        width = int(model.value(family["hidden_size"]) or model.tensors[model.embedding][2][1])
        self.heads = int(model.value(family["heads"]))
        self.kv_heads = int(model.value(family["kv_heads"]) or self.heads)
        self.head_dim = int(model.value(family["head_dim"]) or width // self.heads)
        self.scale = model.embedding_scale
        biased = not p["bias_key"] or bool(model.value(p["bias_key"]))
        self.tensors: dict[str, np.ndarray | None] = {"position": self._position(model, family["position"], body)}
        for role in ("q", "k"):
            self.tensors[role] = self._part(model.array(body + p[role]), p, role)
            name = body + (p[role + "_bias"] or "")
            has_bias = biased and name in model.tensors
            self.tensors[role + "_bias"] = self._part(model.array(name), p, role) if has_bias else None
        names = ("embedding_norm", "input_norm", "q_norm", "k_norm")
        self.norms = {n: self._norm(model, family[n], body) for n in names}

    @staticmethod
    def _position(model: Checkpoint, f: dict[str, Any] | None, body: str) -> np.ndarray | None:
        """The row of position 0, as a matrix."""
        if f is None:
            return None
        row = int(f["skipped"]) + int(model.value(f["skipped_key"]) or 0)
        return model.array(body + f["name"])[row : row + 1]

    def _part(self, whole: np.ndarray, p: dict[str, Any], role: str) -> np.ndarray:
        """A role's own part of a weight or a bias, a weight as (out, in)."""
        whole = whole.T if p["transposed"] and whole.ndim == 2 else whole
        if not p["fused"]:
            return whole
        groups = self.kv_heads if p["groups"] == "kv_heads" else int(p["groups"])
        sizes = [(self.heads if r == "q" else self.kv_heads) * self.head_dim // groups for r in p["fused"]]
        blocks = np.split(whole.reshape(groups, sum(sizes), -1), np.cumsum(sizes)[:-1], axis=1)
        return blocks[p["fused"].index(role)].reshape(-1, *whole.shape[1:])

    @staticmethod
    def _norm(model: Checkpoint, f: dict[str, Any] | None, body: str) -> Norm | None:
        if f is None:
            return None
        if f["gain"] == "a tensor per head":
            raise NotImplementedError("this verifier does not read norms with a tensor per head")
        eps = f["eps"] if not isinstance(f["eps"], str) else model.value(f["eps"])
        name, bias = model.first(f["weight"], body), model.first(f["bias"], body)
        weights = [] if name is None else [model.array(name)]
        return Norm(f["kind"], f["over"], float(eps), float(f["offset"]), weights, model.array(bias) if bias else None)

    def digest(self) -> str:
        """The digest of layer 0."""
        value: dict[str, Any] = {n: None if x is None else tensor_digest(x) for n, x in self.tensors.items()}
        value.update({n: None if x is None else x.digest() for n, x in self.norms.items()})
        value |= {"scores": "attention", "embedding_scale": self.scale}
        value |= {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim}
        value |= dict.fromkeys(("clip", "token_type", "embedding_projection"))
        return hashlib.sha256(b"irwm/v3/layer0\0" + canonical(value)).hexdigest()

    def _through(self, x: np.ndarray, role: str) -> np.ndarray:
        position = self.tensors["position"]
        x = x * self.scale if position is None else x * self.scale + position.astype(np.float64)
        for name in ("embedding_norm", "input_norm"):
            norm = self.norms[name]
            x = x if norm is None else norm(x)
        weight, bias = self.tensors[role], self.tensors[role + "_bias"]
        assert weight is not None
        x = x @ weight.astype(np.float64).T
        x = x if bias is None else x + bias.astype(np.float64)
        norm = self.norms[role + "_norm"]
        if norm is not None and norm.over == "projection":
            x = norm(x)
        x = x.reshape(len(x), -1, self.head_dim)
        return norm(x) if norm is not None and norm.over == "head" else x

    def invariant(self, query: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """A, of the embedding's rows of the query and reference tokens."""
        q, k = self._through(query, "q"), self._through(reference, "k")
        k = np.repeat(k, self.heads // self.kv_heads, axis=1)
        scores = q.reshape(len(q), -1) @ k.reshape(len(k), -1).T
        deviation = scores.std(1, keepdims=True)
        if not (np.isfinite(scores).all() and (deviation[:, 0] > 1e-6 * np.abs(scores).max(1)).all()):
            raise ValueError("a row of A is constant or not finite")
        return (scores - scores.mean(1, keepdims=True)) / deviation
