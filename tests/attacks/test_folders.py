"""The transforms as attacks on folders: the written files, the errors, and that no partial output remains."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from irwm.attacks import equivalence
from irwm.attacks.equivalence import TRANSFORMS, applicable, apply, read_state, rename_map, write_state
from irwm.attacks.rewrite import copy_companions
from irwm.checkpoint import open_checkpoint
from irwm.errors import CorruptCheckpointError, NotApplicableError, ParameterError
from tests.attacks.models import edited, error
from tools.small_models import write_llama

# Options unlike the defaults, to check that each wrapper passes them.
OPTIONS: dict[str, dict] = {
    "rescale": {"factor": 3.0},
    "regain": {"spread": 3.0},
    "map_qk": {"condition": 2.0},
    "map_vo": {"condition": 2.0},
    "shift_key_bias": {"size": 0.5},
    "shift_rows": {"size": 0.5},
    "shift_tables": {"size": 0.5},
    "reorder_neurons": {"spread": 3.0},
    "add_neurons": {"share": 0.5},
    "widen": {"share": 0.5, "size": 2.0},
    "reorder_tokens": {"tokenizer": "drop"},
    "trim_tokens": {"fraction": 0.3, "tokenizer": "drop"},
    "pad_tokens": {"count": 5, "rows": "zero", "interleave": True},
    "rename_tensors": {"scheme": "scrambled"},
    "cast": {"dtype": "bfloat16"},
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_each_folder_attack_equals_its_transform(tiny_models: dict[str, Path], tmp_path: Path, name: str) -> None:
    family = "phi3" if applicable(tiny_models["phi3"])[name] is None else "bert"
    attack, options = getattr(equivalence, name), OPTIONS.get(name, {})
    seed = {"seed": 8} if "seed" in inspect.signature(attack).parameters else {}
    assert ("seed" in inspect.signature(attack).parameters) == TRANSFORMS[name].takes_seed
    out = attack(tiny_models[family], tmp_path / "attacked", **options, **seed)
    assert out == tmp_path / "attacked"
    expected = write_state(apply(read_state(tiny_models[family]), [(name, options)], seed=8), tmp_path / "expected")
    assert {f.name for f in out.iterdir()} == {f.name for f in expected.iterdir()}
    for file in out.iterdir():
        assert file.read_bytes() == (expected / file.name).read_bytes()


def test_a_refused_transform_writes_nothing(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(NotApplicableError):
        equivalence.disguise(tiny_models["bert"], tmp_path / "out", ["permute_residual", "rotate"])
    assert list(tmp_path.iterdir()) == []


def test_numbers_too_large_for_the_format_are_refused_by_name(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ParameterError) as caught:
        equivalence.rescale(tiny_models["llama"], tmp_path / "out", factor=1e6, dtype="float16")
    assert "embed_tokens" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_mistral_with_short_window_cannot_become_llama(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    short, long = (edited(tiny_models["mistral"], tmp_path / str(n), sliding_window=n) for n in (16, 64))
    assert applicable(short)["as_llama"]
    assert applicable(long)["as_llama"] is None


def test_model_of_unknown_structure_can_be_renamed_and_cast(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    scrambled = equivalence.rename_tensors(tiny_models["llama"], tmp_path / "scrambled", "scrambled")
    found = applicable(scrambled)
    assert {name for name, reason in found.items() if reason is None} == {"rename_tensors", "cast"}
    with pytest.raises(NotApplicableError):
        equivalence.rotate(scrambled, tmp_path / "out")


def test_tensor_with_unknown_role_stops_all_weight_transforms(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    adapter = {"model.layers.0.self_attn.q_proj.lora_A.weight": torch.ones(4, 48)}
    folder = edited(tiny_models["llama"], tmp_path / "adapted", lambda tensors: tensors.update(adapter))
    assert "lora_A" in (applicable(folder)["permute_residual"] or "")


def test_missing_layer_is_reported(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    def torn(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if ".layers.1." in name]:
            del tensors[name]

    folder = edited(tiny_models["llama"], tmp_path / "torn", torn)
    assert applicable(folder)["rotate"]
    with pytest.raises(CorruptCheckpointError):
        equivalence.rotate(folder, tmp_path / "out")


@pytest.mark.parametrize("scheme", ["prefix", "scrambled"])
def test_renamed_tensors_are_the_same_tensors(tiny_models: dict[str, Path], tmp_path: Path, scheme: str) -> None:
    out = equivalence.rename_tensors(tiny_models["gemma"], tmp_path / "out", scheme, seed=5)
    old, new = load_file(tiny_models["gemma"] / "model.safetensors"), load_file(out / "model.safetensors")
    names = rename_map(old, scheme, seed=5)
    assert set(names.values()) == set(new)
    assert all(torch.equal(old[name], new[names[name]]) for name in old)
    config = json.loads((out / "config.json").read_text())
    assert ("architectures" in config) == (scheme == "prefix")
    assert config["model_type"] == ("gemma" if scheme == "prefix" else "custom")


@pytest.mark.parametrize(
    ("dtype", "noise"), [("float64", 1e-6), ("float32", 1e-6), ("float16", 1e-2), ("bfloat16", 0.1)]
)
def test_cast_model_is_stored_and_rounded_in_its_format(
    tiny_models: dict[str, Path], tmp_path: Path, dtype: str, noise: float
) -> None:
    out = equivalence.cast(tiny_models["llama"], tmp_path / "out", dtype)
    assert {str(t.dtype) for t in load_file(out / "model.safetensors").values()} == {f"torch.{dtype}"}
    assert json.loads((out / "config.json").read_text())["dtype"] == dtype
    assert error(tiny_models["llama"], out) < noise


def test_bfloat16_model_keeps_dtype_by_default(demo_path: Path, tmp_path: Path) -> None:
    for dtype, expected in ((None, torch.bfloat16), ("float32", torch.float32)):
        out = equivalence.reorder_heads(demo_path, tmp_path / str(dtype), dtype=dtype)
        assert {t.dtype for t in load_file(out / "model.safetensors").values()} == {expected}


def test_companion_files_are_copied_in_their_folders(minilm_path: Path) -> None:
    files = read_state(minilm_path, weights=False).files
    assert {"tokenizer.json", "vocab.txt", "1_Pooling/config.json"} <= files.keys()
    assert "config.json" not in files


def test_head_equal_to_tied_embedding_is_not_written(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    def tied(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    folder = edited(tiny_models["gemma"], tmp_path / "copied", tied)
    out = equivalence.permute_residual(folder, tmp_path / "out")
    assert "lm_head.weight" not in load_file(out / "model.safetensors")
    assert error(folder, out) < 3e-5


INDEX = "model.safetensors.index.json"


def saved_by_a_library(folder: Path, *, shards: bool) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"new": true}')
    if shards:
        (folder / INDEX).write_text('{"weight_map": {"of": "the new shards"}}')
    return folder


def test_companions_do_not_replace_config_and_shard_index(tmp_path: Path) -> None:
    model = open_checkpoint(write_llama(tmp_path / "model"))
    (model.path / "tokenizer.json").write_text("{}")
    (model.path / INDEX).write_text('{"weight_map": {"of": "the old shards"}}')
    one = saved_by_a_library(tmp_path / "one", shards=False)
    several = saved_by_a_library(tmp_path / "several", shards=True)
    for out in (one, several):
        copy_companions(model, out, described=True)
        assert json.loads((out / "config.json").read_text()) == {"new": True}
        assert (out / "tokenizer.json").exists()
    assert not (one / INDEX).exists()
    assert "new" in (several / INDEX).read_text()
    copy_companions(model, one)
    assert "old" in (one / INDEX).read_text()
