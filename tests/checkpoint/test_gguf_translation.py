"""GGUF files of every family that llama.cpp converts: the same weights under the same names, and the same scores."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.checkpoint.formats.gguf_translation import Settings, translated
from irwm.errors import CheckpointError, CorruptCheckpointError, UnsupportedCheckpointError
from irwm.families.family import families
from irwm.scheme.invariant import Layer0
from tests.checkpoint.builders import contradiction, refused
from tests.checkpoint.gguf_builders import ARCHITECTURES, F32, add_tensor, convert, finished
from tests.families.cases import CASES, VOCABULARY
from tests.families.reference import save, tiny_model
from tools.small_models import write_llama

QUERIES, REFERENCES = [3, 5, 50, 60], list(range(70, 150))
# Cases that llama.cpp does not convert: norms that its Phi-2 lacks, StarCoder with several key heads, Falcon's separate
# norms, and Llama 4 without its norm for sizes other than Maverick's.
_NOT_CONVERTED = {
    *("phi, norms on heads", "gpt_bigcode, every head its own key", "falcon, rw", "llama4, no norm on heads")
}
CONVERTED = [c for c, (model_type, _) in CASES.items() if model_type in ARCHITECTURES and c not in _NOT_CONVERTED]
# Architectures that transformers reads from GGUF and whose rearrangements it undoes; of Falcon only the 7B's, which
# has none.
_THEIRS = {
    *("bloom", "gemma2", "gemma3_text", "gpt2", "gpt_oss", "llama", "nemotron", "phi3", "qwen2", "qwen2_moe"),
    *("qwen3", "qwen3_moe", "stablelm", "starcoder2", "t5"),
}
CERTIFIED = [c for c in CONVERTED if CASES[c][0] in _THEIRS or c == "falcon, 7b"]
# RoBERTa's files become BERT's in GGUF.
_BECOMES = {"roberta": "bert"}
# One case of each kind of rearrangement.
VARIED = ("llama", "gpt_neox", "bloom", "falcon, 40b", "gpt2", "gemma", "internlm2", "stablelm, a norm for each head")
QUICK = pytest.mark.quick("each rearrangement")
ROLES = ("embedding", "position", "token_type", "head", "q", "k", "q_bias", "k_bias")
NORMS = ("embedding_norm", "input_norm", "q_norm", "k_norm")


def require_read_back(case: str, folder: Path, path: Path) -> None:
    """Checks with transformers' own reader that the file follows llama.cpp's conventions."""
    expected = load_file(folder / "model.safetensors")
    found = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=tiny_model(case))["tensors"]
    common = expected.keys() & found.keys()
    layout = open_checkpoint(folder).layout
    assert layout.q is not None
    assert {layout.embedding.name, layout.q.name} <= common
    for name in common:
        assert found[name].shape == expected[name].shape
        assert torch.allclose(found[name], expected[name], rtol=0, atol=1e-6), name


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", [pytest.param(case, marks=QUICK if case in VARIED else ()) for case in CONVERTED])
def test_the_suspect_has_the_originals_weights_and_scores(case: str, tmp_path: Path) -> None:
    folder = save(case, tmp_path / "model", torch.float32)
    path = convert(folder, tmp_path / "model.gguf")
    if case in CERTIFIED:
        require_read_back(case, folder, path)
    original, suspect = open_checkpoint(folder), open_checkpoint(path)
    ours, theirs = suspect.layout, original.layout
    assert ours.family == _BECOMES.get(theirs.family, theirs.family)
    assert (ours.heads, ours.kv_heads, ours.head_dim) == (theirs.heads, theirs.kv_heads, theirs.head_dim)
    for role in ROLES:
        left, right = getattr(ours, role), getattr(theirs, role)
        assert (left is None) == (right is None), role
        if left is not None:
            if theirs.family not in _BECOMES:
                assert left == right
            assert torch.equal(suspect.read(left), original.read(right)), role
    for role in NORMS:
        left, right = getattr(ours, role), getattr(theirs, role)
        assert (left is None) == (right is None), role
        if left is not None:
            assert left.eps == right.eps
            for gain, expected in zip(left.weights, right.weights, strict=True):
                # The added one was rounded.
                atol = 2**-23 if left.offset else 0
                assert torch.allclose(suspect.read(gain), original.read(expected), rtol=0, atol=atol)
    expected = Layer0(original).scores(QUERIES, REFERENCES)
    error = (Layer0(suspect).scores(QUERIES, REFERENCES) - expected).abs().max() / expected.abs().max()
    assert error < 1e-6


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_scores_of_other_number_formats_are_those_of_the_rounded_weights(kind: str, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "model")
    path = convert(folder, tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind])
    suspect = open_checkpoint(path)
    assert suspect.dtype == {"F16": "float16", "BF16": "bfloat16"}.get(kind, kind)
    # The same rounding by the package, on the weights in transformers' own arrangement: rows are rounded one by one.
    tensors = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        if value.ndim == 2:
            block = gguf.quants.quantize(value.numpy(), gguf.GGMLQuantizationType[kind])
            tensors[name] = torch.from_numpy(gguf.quants.dequantize(block, gguf.GGMLQuantizationType[kind]))
    save_file(tensors, folder / "model.safetensors")
    rounded = open_checkpoint(folder)
    assert torch.equal(suspect.embedding(), rounded.embedding())
    expected = Layer0(rounded).scores(QUERIES, REFERENCES)
    assert torch.allclose(Layer0(suspect).scores(QUERIES, REFERENCES), expected, rtol=1e-9, atol=1e-12)


def test_undone_rearrangements_are_noted(tmp_path: Path) -> None:
    said = {
        case: open_checkpoint(convert(save(case, tmp_path / case, torch.float32), tmp_path / f"{case}.gguf")).notes[0]
        for case in ("internlm2", "qwen2")
    }
    assert "rotary embedding; the reordering of q, k and v" in said["internlm2"]
    assert said["qwen2"] == "The file is in GGUF format with the architecture qwen2."


def test_every_architecture_identifies_a_family_and_its_switches() -> None:
    plain = set()
    for family in families():
        for architecture, row in family.gguf.architectures.items():
            assert architecture in gguf.MODEL_ARCH_NAMES.values()
            assert row.model_type in family.model_types, architecture
            if row.counts is None and row.lacks is None:
                assert architecture not in plain, "two indistinguishable families"
                plain.add(architecture)
        if family.gguf.architectures:
            asked = [item for variant in family.variants for item in variant.when.items()]
            assert {key for key, value in asked if isinstance(value, bool)} == family.gguf.switches.keys()
            settings = Settings("x", {}, {}, "blk.0.")
            assert all(type(settings._shows(sign)) is bool for sign in family.gguf.switches.values())


@pytest.mark.parametrize(("experts", "normed"), [(16, True), (128, False)])
def test_llama_4_normalises_q_and_k_in_scout_and_not_in_maverick(experts: int, *, normed: bool) -> None:
    settings = Settings("llama4", {"llama4.expert_count": experts}, {}, "blk.0.")
    family = next(f for f in families() if f.name == "llama4")
    assert settings.switches(family, "llama4_text") == {"use_qk_norm": normed}


# --- files that differ from what the converter writes today


Tensors = dict[str, np.ndarray]
Change = Callable[[Tensors], Tensors]


def rewritten(
    path: Path, out: Path, tensors: Change = dict, architecture: str | None = None, **settings: object
) -> Path:
    """A GGUF file with other tensors or settings; a setting of None is omitted."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, architecture or reader.fields["general.architecture"].contents())
    fields = {name: f.contents() for name, f in reader.fields.items() if not name.startswith(("GGUF.", "general."))}
    for name, value in {**fields, **settings}.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        if value is not None:
            add[type(value)](name, value)
    for name, value in tensors({t.name: np.array(t.data) for t in reader.tensors}).items():
        add_tensor(writer, name, value, F32)
    return finished(writer)


def scores(path: Path) -> torch.Tensor:
    return Layer0(open_checkpoint(path)).scores(QUERIES, REFERENCES)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return convert(save("llama", tmp_path / "llama", torch.float32), tmp_path / "llama.gguf")


def fused(found: Tensors) -> Tensors:
    for layer in range(2):
        for kind in ("weight", "bias"):
            parts = [found.pop(f"blk.{layer}.attn_{part}.{kind}") for part in "qkv"]
            found[f"blk.{layer}.attn_qkv.{kind}"] = np.concatenate(parts)
    return found


def separate(found: Tensors) -> Tensors:
    for layer in range(2):
        whole = found.pop(f"blk.{layer}.attn_qkv.weight")
        for part, rows in zip("qkv", np.split(whole, [72, 96]), strict=True):
            found[f"blk.{layer}.attn_{part}.weight"] = rows
    return found


OLDER: dict[str, tuple[Change, dict[str, object]]] = {
    "phi": (fused, {}),  # as its checkpoints were then
    "phi3": (separate, {}),
    "roberta": (lambda found: {**found, "token_types.weight": found["token_types.weight"][0]}, {}),  # one row
    "llama": (dict, {"llama.attention.head_count": [6, 3], "llama.attention.head_count_kv": [2, 1]}),  # layer by layer
    "llama, every head its own key": (dict, {"llama.attention.head_count_kv": None}),  # the default
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", OLDER)
def test_files_of_older_converters_have_the_same_scores(tmp_path: Path, case: str) -> None:
    change, settings = OLDER[case]
    path = convert(save(case, tmp_path / "model", torch.float32), tmp_path / "model.gguf")
    assert torch.equal(scores(rewritten(path, tmp_path / "old.gguf", change, **settings)), scores(path))


def test_a_tied_embedding_written_twice_is_a_copy(tmp_path: Path) -> None:
    """Older converters wrote GPT-2's twice."""
    path = convert(save("gpt2", tmp_path / "gpt2", torch.float32), tmp_path / "gpt2.gguf")
    old = rewritten(path, tmp_path / "old.gguf", lambda t: {**t, "output.weight": t["token_embd.weight"]})
    model = open_checkpoint(old)
    assert model.tied
    assert model.layout.head is not None
    assert not open_checkpoint(path).layout.head


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("head_count", count) for count in (7, 0, 2**31, ["a"], "six", None)),
        *(("head_count_kv", count) for count in (5, 3)),
    ],
)
def test_impossible_head_counts_are_refused(llama: Path, tmp_path: Path, setting: str, value: object) -> None:
    """Without a number of heads, there is no contradiction with the tensors, and the embedding is still usable."""
    path = rewritten(llama, tmp_path / "unusual.gguf", **{f"llama.attention.{setting}": value})
    if isinstance(value, int):
        assert refused(path, CorruptCheckpointError).file == str(path)
        return
    model = open_checkpoint(path)
    assert (model.family, model.layout.q, model.vocab_size) == ("unknown", None, VOCABULARY)
    assert "number of attention heads" in model.notes[0]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("attention.key_length", 24), ("embedding_length", 73)),
        *(("attention.layer_norm_rms_epsilon", value) for value in (float("nan"), "small")),
    ],
)
def test_contradictory_settings_leave_the_embedding(llama: Path, tmp_path: Path, setting: str, value: object) -> None:
    path = rewritten(llama, tmp_path / "unusual.gguf", **{f"llama.{setting}": value})
    assert contradiction(path).file == str(path)
    assert open_checkpoint(path).fingerprint == open_checkpoint(llama).fingerprint


def test_a_tensor_under_two_names_is_refused(llama: Path, tmp_path: Path) -> None:
    two = {"model.embed_tokens.weight": np.zeros((VOCABULARY, 72), np.float32)}
    refused(rewritten(llama, tmp_path / "two.gguf", lambda found: found | two), CorruptCheckpointError)


@pytest.mark.parametrize("missing", ["blk.0.attn_q.weight", "blk.0.attn_norm.weight", "token_embd.weight"])
def test_a_file_without_a_tensor_of_layer_0_is_never_misread(llama: Path, tmp_path: Path, missing: str) -> None:
    path = rewritten(llama, tmp_path / "less.gguf", lambda found: {n: v for n, v in found.items() if n != missing})
    with contextlib.suppress(CheckpointError):
        assert open_checkpoint(path).layout.q is None


@pytest.mark.parametrize("architecture", ["grok", "llama5", "<script>\x1b[31m", ""])
def test_the_embedding_of_an_unknown_architecture_is_found(llama: Path, tmp_path: Path, architecture: str) -> None:
    def add_taller(found: Tensors) -> Tensors:
        return {"taller.weight": np.zeros((VOCABULARY + 9, 72), np.float32), **found}

    path = rewritten(llama, tmp_path / "new.gguf", add_taller, architecture=architecture or "llama")
    if not architecture:
        stored, metadata = read_gguf(path).tensors, dict(read_gguf(path).metadata)
        del metadata["general.architecture"]
        assert "embed_tokens.weight" in translated(stored, metadata)[0]
        return
    model = open_checkpoint(path)
    assert (model.family, model.vocab_size, model.hidden_size) == ("unknown", VOCABULARY, 72)
    assert torch.equal(model.embedding(), open_checkpoint(llama).embedding())
    assert model.notes[0].isprintable()


@pytest.mark.parametrize("architecture", ["deepseek2", "mamba", "minicpm3"])
def test_families_marked_by_embedding_only_are_read_from_gguf(llama: Path, tmp_path: Path, architecture: str) -> None:
    reader = gguf.GGUFReader(llama)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", architecture)
    writer.add_embedding_length(72)
    for tensor in reader.tensors:
        if tensor.name in ("token_embd.weight", "output.weight"):
            writer.add_tensor(tensor.name, np.array(tensor.data))
    model = open_checkpoint(finished(writer))
    assert (model.layout.scores, model.vocab_size) == ("embedding", VOCABULARY)
    assert model.layout.head is not None


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_gguf_files_that_belong_to_a_model_are_refused_by_kind(llama: Path, tmp_path: Path, kind: str) -> None:
    error = refused(rewritten(llama, tmp_path / "x.gguf", **{"general.type": kind}), UnsupportedCheckpointError)
    assert error.found == f"general.type {kind}"
    assert error.advice


def test_gguf_is_examined_and_not_marked(llama: Path) -> None:
    with pytest.raises(UnsupportedCheckpointError) as caught:
        open_checkpoint(llama).require_markable()
    assert caught.value.found == "GGUF"


def test_the_config_next_to_a_gguf_file_is_ignored(llama: Path, tmp_path: Path) -> None:
    expected = scores(llama)
    (llama.parent / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 3}))
    assert torch.equal(scores(llama), expected)
    shutil.copytree(llama.parent, tmp_path / "folder", ignore=shutil.ignore_patterns("llama", "folder"))
    assert torch.equal(scores(tmp_path / "folder"), expected)


def test_a_quantised_embedding_has_its_own_fingerprint(tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "model")
    paths = [convert(folder, tmp_path / f"{k}.gguf", gguf.GGMLQuantizationType[k]) for k in ("F32", "Q8_0", "Q4_0")]
    found = [open_checkpoint(path).fingerprint for path in paths]
    assert len(set(found)) == 3
    assert found[0] == open_checkpoint(folder).fingerprint


@pytest.mark.parametrize("shape", [(), (7,), (7, 12), (6, 12, 1), (1_000_000, 1)])
def test_norms_not_stacked_by_heads_leave_the_embedding(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = convert(save("stablelm, a norm for each head", tmp_path / "model", torch.float32), tmp_path / "model.gguf")
    norm = {"blk.0.attn_q_norm.weight": np.ones(shape, np.float32)}
    unusual = rewritten(path, tmp_path / "unusual.gguf", lambda found: found | norm)
    assert "q_layernorm" in str(contradiction(unusual).tensor)


def test_oversized_projections_are_refused(llama: Path, tmp_path: Path) -> None:
    """Their order would take eight bytes a row."""
    high = {"blk.0.attn_q.weight": np.zeros((6 * 700_000, 1), np.float32)}
    refused(rewritten(llama, tmp_path / "high.gguf", lambda found: found | high), CorruptCheckpointError)
