"""The layer-0 scores computed from files equal those of the running model, for every family."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.families import Layout, TensorRef
from irwm.scheme.invariant import Layer0
from tests.families.cases import CASES, VOCABULARY
from tests.families.reference import load_as_float32, model_scores, running_model, save

QUERIES = [3, 17, 44, 101, 198]
REFERENCES = list(range(1, VOCABULARY, 3))
# The error that float32 adds to the running model's scores.
TOLERANCE = 1e-5
# DistilBERT's code contains an eps that no float32 score can show.
UNSEEN_EPS = 1e-9


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


class Relaid:
    """A checkpoint read with a layout that is not its own."""

    def __init__(self, model: irwm.Checkpoint, layout: Layout) -> None:
        self._model, self.layout = model, layout

    def embedding(self, rows: torch.Tensor | None = None, device: str = "cpu") -> torch.Tensor:
        return self._model.embedding(rows, device)

    def read(self, ref: TensorRef, rows: torch.Tensor | None = None, device: str = "cpu") -> torch.Tensor:
        return self._model.read(ref, rows, device)


# Cases with the conventions of only some families: a norm over all heads, a gain for each, limits, a widened embedding.
CONVENTIONS = ("olmo2", "cohere, a norm for each head", "dbrx", "electra, a narrow embedding", "gemma", "gpt_neox")
QUICK = pytest.mark.quick("one case of each convention")
EVERY = [pytest.param(case, marks=QUICK if case in CONVENTIONS else ()) for case in CASES]


def require_the_running_models_scores(case: str, folder: Path, dtype: torch.dtype) -> irwm.Checkpoint:
    model = irwm.open_checkpoint(save(case, folder, dtype))
    found = Layer0(model).scores(QUERIES, REFERENCES)
    expected = model_scores(running_model(case, folder, dtype), QUERIES, REFERENCES)
    assert found.dtype == torch.float64
    assert found.shape == (len(QUERIES), len(REFERENCES))
    assert relative_error(found, expected) < TOLERANCE
    return model


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_bfloat16_scores_equal_the_running_models(case: str, tmp_path: Path) -> None:
    require_the_running_models_scores(case, tmp_path / "model", torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY)
def test_scores_equal_the_running_models_and_need_every_part(case: str, tmp_path: Path) -> None:
    """Omitting any one part of the layout gives other scores, so the comparison detects it."""
    model = require_the_running_models_scores(case, tmp_path / "model", torch.float32)
    layout = model.layout
    right = Layer0(model).scores(QUERIES, REFERENCES)
    without: dict[str, Layout] = {}
    for part in ("position", "token_type", "embedding_norm", "input_norm", "q_norm", "k_norm", "q_bias", "k_bias"):
        if getattr(layout, part) is not None:
            without[part] = replace(layout, **{part: None})
    for part in ("embedding_norm", "input_norm", "q_norm", "k_norm"):
        if (norm := getattr(layout, part)) is not None:
            counts = {
                **{"weight": norm.weight is not None, "eps": norm.eps > UNSEEN_EPS, "offset": bool(norm.offset)},
                **{"bias": norm.bias is not None, "kind": norm.kind == "layer"},
            }
            for name in (name for name, does_count in counts.items() if does_count):
                changed = replace(norm, **{name: {"eps": 0.0, "offset": 0.0, "kind": "rms"}.get(name)})
                without[f"{part}.{name}"] = replace(layout, **{part: changed})
    if layout.embedding_scale != 1.0:
        without["embedding_scale"] = replace(layout, embedding_scale=1.0)
    if layout.clip is not None:
        without["clip"] = replace(layout, clip=None)
    if layout.position is not None and layout.position.rows is not None:
        without["position's first row"] = replace(layout, position=replace(layout.position, rows=None))
    if layout.q is not None and layout.k is not None and layout.q.every is not None:
        q_rows, k_rows = layout.heads * layout.head_dim, layout.kv_heads * layout.head_dim
        without["groups"] = replace(
            layout,
            q=replace(layout.q, rows=(0, q_rows), every=None),
            k=replace(layout.k, rows=(q_rows, q_rows + k_rows), every=None),
        )
    assert without or not (layout.input_norm or layout.q_norm or layout.embedding_norm)
    unnoticed = {
        part: error
        for part, changed in without.items()
        if (error := relative_error(Layer0(Relaid(model, changed)).scores(QUERIES, REFERENCES), right)) < 10 * TOLERANCE
    }
    assert not unnoticed


@pytest.mark.parametrize("case", ["gemma", "gemma2", "gemma3", "gemma4", "vaultgemma"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gemmas_embedding_factor_is_rounded_as_in_the_model(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    save(case, tmp_path / "model", dtype)
    embedding = load_as_float32(tmp_path / "model").get_input_embeddings()
    assert irwm.open_checkpoint(tmp_path / "model").layout.embedding_scale == float(embedding.embed_scale)


@pytest.mark.parametrize("case", ["gpt2", "bloom", "falcon, 40b", "mpt", "gptj", "opt", "gpt_neox", "roberta", "t5"])
@pytest.mark.parametrize("prefix", ["", "wrapped."])
def test_files_of_the_bare_model_are_read(case: str, prefix: str, tmp_path: Path) -> None:
    """Published files often leave out the prefix that transformers writes; a wrapper's own is found and noted."""
    folder = save(case, tmp_path / "model", torch.float32)
    right = Layer0(irwm.open_checkpoint(folder)).scores(QUERIES, REFERENCES)
    file = folder / "model.safetensors"
    bare = re.compile(r"^(transformer|model\.decoder|gpt_neox|roberta)\.")
    save_file({prefix + bare.sub("", name): tensor for name, tensor in load_file(file).items()}, file)
    model = irwm.open_checkpoint(folder)
    assert relative_error(Layer0(model).scores(QUERIES, REFERENCES), right) < 1e-12
    assert any("unusual prefix" in note for note in model.notes) == bool(prefix)


def test_scores_of_a_trained_model(minilm_path: Path) -> None:
    """all-MiniLM-L6-v2: real weights, no prefix, position_ids among the tensors."""
    queries = [2003, 2088, 2338, 3185, 4937]
    references = list(range(1996, 1996 + 384))
    model = irwm.open_checkpoint(minilm_path)
    assert (model.layout.family, model.layout.heads, model.layout.head_dim) == ("bert", 12, 32)
    found = Layer0(model).scores(queries, references)
    assert relative_error(found, model_scores(load_as_float32(minilm_path), queries, references)) < 1e-5
