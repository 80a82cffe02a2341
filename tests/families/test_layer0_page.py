"""docs/layer0.md and its table alone give A and the digest of layer 0, for every family."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

import irwm
from irwm.keys.digests import layer0_digest
from irwm.scheme.invariant import Layer0
from tests.families.cases import CASES, VOCABULARY
from tests.families.reference import save
from tools import layer0

Floats = NDArray[np.float64]
QUERIES = [3, 17, 44, 101, 198]
REFERENCES = list(range(1, VOCABULARY, 3))
FAMILIES: dict[str, Any] = json.loads(layer0.TABLE.read_text(encoding="utf-8"))


class Page:
    """A checkpoint of one float32 safetensors file, read as the page describes."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            name: values.astype(np.float64) for name, values in load_file(folder / "model.safetensors").items()
        }
        self.outer = self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kinds = {kind: family for family in FAMILIES.values() for kind in family["model_types"]}
        if self.config.get("model_type") not in kinds:
            sections = (self.outer.get(name) for name in ("text_config", "llm_config", "language_config"))
            self.config = next(each for each in sections if each and each.get("model_type") in kinds)
        family = self.family = dict(kinds[self.config["model_type"]])
        for variant in family["variants"]:
            if all(self.switched(name, wanted) for name, wanted in variant["when"].items()):
                family |= variant["changes"]
        self.at = family["projections"]
        self.body = self._body()
        self.embedding = self.files[self._embedding_name()]
        d = self.embedding.shape[1]
        self.width = self.value(family["hidden_size"]) or d
        self.heads = self.value(family["heads"])
        self.kv_heads = self.at["kv_heads"] or self.value(family["kv_heads"]) or self.heads
        self.head_dim = self.value(family["head_dim"]) or self.width // self.heads
        position = family["position"]
        if position:
            row = position["skipped"] + (self.value(position["skipped_key"]) or 0)
            self.position = self.files[self.body + position["name"]][row : row + 1]
        small = ("token_type", "embedding_projection", "embedding_projection_bias")
        named = {name: family[name] for name in small if family[name]}
        self.small = {name: self.files[self.body + where] for name, where in named.items() if self._has(where)}
        if self.width == d:
            self.small.pop("embedding_projection", None)
            self.small.pop("embedding_projection_bias", None)

    def value(self, key: str | None) -> Any:
        if not key:
            return None
        for spelling in self.family["spellings"].get(key, [key]):
            found: Any = self.config
            for part in spelling.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if found is not None:
                return found
        return self.family["model_types"][self.config["model_type"]].get(key)

    def switched(self, name: str, wanted: bool | str) -> bool:
        value = self.value(name)
        return value is not None if wanted == "stated" else bool(value) == wanted

    def _has(self, name: str) -> bool:
        return self.body + name in self.files

    def _body(self) -> str:
        prefixes = [prefix["body"] for prefix in self.family["prefixes"]]
        if self.config is not self.outer:
            prefixes.sort(key=lambda body: "language_model." not in body)
        return next(
            body for body in prefixes if body + self.at["q"] in self.files and body + self.at["k"] in self.files
        )

    def _embedding_name(self) -> str:
        first = self.family["layer"].split(".")[0] + "."
        names = sorted(self.family["embedding"], key=lambda name: not name.startswith(first))
        found = next((self.body + name for name in names if self._has(name)), None)
        heads = (
            p["head"] + name for p in self.family["prefixes"] if p["body"] == self.body for name in self.family["head"]
        )
        return found or next(name for name in heads if name in self.files)

    @property
    def scale(self) -> float:
        how = self.family["embedding_scale"]
        if how == "one":
            return 1.0
        if how != "sqrt(hidden_size)":
            return float(self.value(how) or 1.0)
        root = torch.tensor(math.sqrt(self.embedding.shape[1]), dtype=torch.float32)
        dtype = (self.config.get("dtype") or self.config.get("torch_dtype") or "").removeprefix("torch.")
        return float(root.to(getattr(torch, dtype)) if dtype in ("bfloat16", "float16") else root)

    @property
    def clip(self) -> float | None:
        found = self.value(self.family["clip"])
        return None if found is None else float(found)

    def part(self, name: str | None, role: str, *, matrix: bool) -> Floats | None:
        at = self.at
        if name is None or (not matrix and at["bias_key"] and not self.value(at["bias_key"])):
            return None
        values = self.files[self.body + name]
        values = values.T if at["transposed"] and matrix else values
        if not at["fused"]:
            return values
        groups = self.kv_heads if at["groups"] == "kv_heads" else at["groups"]
        sizes = {p: (self.heads if p == "q" else self.kv_heads) * self.head_dim // groups for p in "qkv"}
        start = sum(sizes[p] for p in at["fused"][: at["fused"].index(role)])
        blocks = values.reshape(groups, -1, *values.shape[1:])
        return blocks[:, start : start + sizes[role]].reshape(-1, *values.shape[1:])

    def norm(self, role: str, heads: int = 1) -> dict[str, Any] | None:
        spec = self.family[role]
        if spec is None:
            return None

        def first(names: list[str]) -> list[Floats]:
            return [next(self.files[self.body + name] for name in names if self._has(name))] if names else []

        weights = first(spec["weight"]) if spec["gain"] != "a tensor per head" else []
        if spec["gain"] == "a tensor per head":
            names = (spec["weight"][0].replace("{head}", str(head)) for head in range(heads))
            weights = [self.files[self.body + name] for name in names]
        eps = self.value(spec["eps"]) if isinstance(spec["eps"], str) else spec["eps"]
        stacked = np.stack(weights) if spec["gain"] == "a tensor per head" else weights[0] if weights else None
        bias = (first(spec["bias"]) or [None])[0]
        return {**spec, "eps": float(eps), "weights": weights, "gained": stacked, "bias": bias}

    def invariant(self) -> Floats:
        q, k = (
            self.projected(tokens, role, heads)
            for tokens, role, heads in ((QUERIES, "q", self.heads), (REFERENCES, "k", self.kv_heads))
        )
        scores = sum(q[:, h] @ k[:, h // (self.heads // self.kv_heads)].T for h in range(self.heads))
        return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)

    def projected(self, tokens: list[int], role: str, heads: int) -> Floats:
        x = self.embedding[tokens] * self.scale
        widened, bias = self.small.get("embedding_projection"), self.small.get("embedding_projection_bias")
        if widened is not None and bias is None:
            x = x @ widened.T
        if "token_type" in self.small:
            x = x + self.small["token_type"][0]
        if self.family["position"]:
            x = x + self.position[0]
        x = normed(x, self.norm("embedding_norm"))
        if widened is not None and bias is not None:
            x = x @ widened.T + bias
        x = normed(x, self.norm("input_norm"))
        y = x @ self.part(self.at[role], role, matrix=True).T
        bias = self.part(self.at[f"{role}_bias"], role, matrix=False)
        y = y if bias is None else y + bias
        norm = self.norm(f"{role}_norm", heads)
        if norm is None or norm["over"] == "head":
            y = y.reshape(len(tokens), heads, self.head_dim)
        y = normed(y, norm)
        if self.clip is not None:
            y = np.clip(y, -self.clip, self.clip)
        return y.reshape(len(tokens), heads, self.head_dim)

    def digest(self) -> str:
        facts: dict[str, Any] = {
            "scores": "attention",
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "embedding_scale": self.scale,
            "clip": self.clip,
            "position": of_tensor(self.position) if self.family["position"] else None,
            "token_type": of_tensor(self.small["token_type"][:1]) if "token_type" in self.small else None,
            "embedding_projection": of_tensor(self.small.get("embedding_projection")),
        }
        for role, heads in (("q", self.heads), ("k", self.kv_heads)):
            facts[role] = of_tensor(self.part(self.at[role], role, matrix=True))
            facts[f"{role}_bias"] = of_tensor(self.part(self.at[f"{role}_bias"], role, matrix=False))
            facts[f"{role}_norm"] = of_norm(self.norm(f"{role}_norm", heads))
        if "embedding_projection_bias" in self.small:
            facts["embedding_projection_bias"] = of_tensor(self.small["embedding_projection_bias"])
        facts |= {name: of_norm(self.norm(name)) for name in ("embedding_norm", "input_norm")}
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(b"irwm/v3/layer0\0" + text.encode()).hexdigest()


def normed(y: Floats, norm: dict[str, Any] | None) -> Floats:
    if norm is None:
        return y
    if norm["kind"] == "layer":
        y = y - y.mean(axis=-1, keepdims=True)
    y = y / np.sqrt((y**2).mean(axis=-1, keepdims=True) + norm["eps"])
    y = y if norm["gained"] is None else y * (norm["offset"] + norm["gained"])
    return y if norm["bias"] is None else y + norm["bias"]


def of_tensor(values: Floats | None) -> str | None:
    if values is None:
        return None
    shape = b"".join(struct.pack("<Q", size) for size in values.shape)
    return hashlib.sha256(shape + np.ascontiguousarray(values).astype("<f4").tobytes()).hexdigest()


def of_norm(norm: dict[str, Any] | None) -> dict[str, Any] | None:
    if norm is None:
        return None
    plain = {name: norm[name] for name in ("kind", "over", "eps", "offset")}
    return plain | {"weights": [of_tensor(each) for each in norm["weights"]], "bias": of_tensor(norm["bias"])}


def test_layer0_table_equals_the_data_files() -> None:
    assert layer0.table() == FAMILIES


@pytest.mark.sweep
@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_layer0_page_alone_gives_the_invariant_and_its_digest(case: str, tmp_path: Path) -> None:
    folder = save(case, tmp_path / "model", torch.float32)
    model, page = irwm.open_checkpoint(folder), Page(folder)
    expected = Layer0(model).invariant(QUERIES, REFERENCES).numpy()
    assert page.invariant() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert page.digest() == layer0_digest(model)
