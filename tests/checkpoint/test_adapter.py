"""Adapters saved by peft, read on their base and compared with peft's own merge, and adapters that are refused."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.checkpoint import (
    Checkpoint,
    PackedTensor,
    adapter,
    open_checkpoint,
    read_tensor,
    special_token_ids,
    token_ids,
)
from irwm.checkpoint.adapter import is_adapter
from irwm.checkpoint.card import card_of
from irwm.errors import (
    CheckpointChangedError,
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.builders import EMBEDDING, change_config, refused
from tests.checkpoint.builders import KEY as K
from tests.checkpoint.builders import QUERY as Q
from tests.conftest import Marked
from tools.small_models import write_llama

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def made(
    base: Path, out: Path, resize: int = 0, load: Callable[..., Any] | None = None, **settings: Any
) -> dict[str, torch.Tensor]:
    """An adapter of random numbers for the model in `base`, saved by peft; returns the merged model's weights."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # peft warns about what it saves in addition to A and B
        torch.manual_seed(0)
        model = (load or AutoModelForCausalLM.from_pretrained)(base, dtype=torch.float32)
        if resize:
            model.resize_token_embeddings(resize)
        adapter = get_peft_model(model, LoraConfig(r=4, **settings))
        with torch.no_grad():
            for name, value in adapter.named_parameters():
                if "magnitude" in name:
                    value.mul_(1 + 0.2 * torch.rand(value.shape))
                elif "lora_" in name or "trainable_tokens_delta" in name or "modules_to_save" in name:
                    value.copy_(0.05 * torch.randn(value.shape))
        adapter.save_pretrained(out)
        return {name: value.detach().clone() for name, value in adapter.merge_and_unload().state_dict().items()}


def change_weights(folder: Path, tensors: Mapping[str, torch.Tensor | None]) -> None:
    """Replaces tensors by the end of their names; None removes one."""
    held = load_file(folder / WEIGHTS)
    for end, value in tensors.items():
        (name,) = [name for name in held if name.endswith(end)]
        del held[name]
        if value is not None:
            held[name] = value.contiguous()
    save_file(held, folder / WEIGHTS)


@pytest.fixture(scope="module")
def base(tiny_path: Path) -> Checkpoint:
    return open_checkpoint(tiny_path)


@pytest.fixture(scope="module")
def sound(base: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the tiny model's q, k and embedding."""
    folder = tmp_path_factory.mktemp("adapter") / "a"
    made(base.path, folder, target_modules=["q_proj", "k_proj", "embed_tokens"])
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """A copy of `sound` that the test may corrupt."""
    return Path(shutil.copytree(sound, tmp_path / "adapter"))


def require_equal(model: Checkpoint, expected: dict[str, torch.Tensor], names: tuple[str, ...]) -> None:
    for name in names:
        tensor = model.tensors[name]
        found = read_tensor(tensor).float()
        torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-6)
        rows = [7, 0, 7, 3][: 4 if tensor.shape[0] > 7 else 0]
        torch.testing.assert_close(read_tensor(tensor, rows).float(), expected[name][rows], rtol=1e-5, atol=1e-6)


SETTINGS: dict[str, dict[str, Any]] = {
    "matrices": {"target_modules": ["q_proj", "k_proj", "v_proj"], "lora_alpha": 12},
    "rank-stabilised": {"target_modules": ["q_proj", "k_proj"], "use_rslora": True, "lora_alpha": 12},
    "patterns": {
        "target_modules": ["q_proj", "k_proj", "o_proj"],
        "rank_pattern": {"q_proj": 7, "^model.layers.0.self_attn.o_proj": 3},
        "alpha_pattern": {"k_proj": 31, "layers.0.self_attn.o_proj": 2.5, "^q_proj": 1000},
    },
    "DoRA": {"target_modules": ["q_proj", "k_proj"], "use_dora": True},
    "all linear layers": {"target_modules": "all-linear"},
    "another beginning": {"target_modules": ["q_proj", "k_proj"], "init_lora_weights": "gaussian"},
    "embedding": {"target_modules": ["q_proj", "k_proj", "embed_tokens"], "lora_alpha": 9},
    "embedding alone": {"target_modules": ["embed_tokens"]},
    "saved layers": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "input_layernorm", "lm_head"]},
    "q as a parameter": {"target_modules": ["k_proj"], "target_parameters": ["self_attn.q_proj.weight"]},
    "embedding as a parameter": {"target_modules": ["q_proj"], "target_parameters": ["embed_tokens.weight"]},
    "resized": {"resize": 613, "target_modules": ["q_proj"]},
    "resized embedding": {"resize": 613, "target_modules": ["embed_tokens", "k_proj"]},
    "tokens": {"target_modules": ["q_proj", "k_proj"], "trainable_token_indices": {"embed_tokens": [3, 599, 7]}},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_adapter_reads_as_peft_merges_it(base: Checkpoint, tmp_path: Path, settings: str) -> None:
    expected = made(base.path, tmp_path / "a", **SETTINGS[settings])
    model = open_checkpoint(tmp_path / "a", base=base)
    resized = "resize" in SETTINGS[settings]
    assert model.vocab_size == len(model.embedding()) == (613 if resized else base.vocab_size)
    assert resized or model.layout == base.layout
    assert any(not torch.equal(read_tensor(base.tensors[name]), expected[name]) for name in base.tensors)
    require_equal(model, expected, (EMBEDDING, Q, K) if resized else tuple(base.tensors))


@pytest.mark.slow
def test_factors_of_fused_experts_are_omitted_with_a_note(tmp_path: Path) -> None:
    """peft wraps a module once for each parameter that it adapts, and names the factors after the wrappers."""
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    sizes = {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4}
    config = Qwen3MoeConfig(vocab_size=300, num_experts_per_tok=2, **sizes, **heads)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "base")
    experts = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    merged = made(tmp_path / "base", tmp_path / "a", target_modules=["q_proj"], target_parameters=experts)
    found = open_checkpoint(tmp_path / "a", open_checkpoint(tmp_path / "base"))
    require_equal(found, merged, (EMBEDDING, Q))
    assert "not supported: 2." in " ".join(found.notes)


def test_adapter_in_pytorch_format_is_read(base: Checkpoint, sound: Path, copy: Path) -> None:
    torch.save(load_file(copy / WEIGHTS), copy / "adapter_model.bin")
    (copy / WEIGHTS).unlink()
    torch.save({"step": 3}, copy / "optimizer.pt")
    model, expected = (open_checkpoint(folder, base=base) for folder in (copy, sound))
    assert model.shards[0].name == "adapter_model.bin"
    for name in (EMBEDDING, Q, K):
        assert torch.equal(read_tensor(model.tensors[name]), read_tensor(expected.tensors[name]))


def test_an_adapter_changes_transposed_weights_correctly(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=200, n_embd=32, n_head=4, n_layer=1)).save_pretrained(tmp_path / "base")
    gpt2 = open_checkpoint(tmp_path / "base")
    (name,) = [name for name in gpt2.tensors if name.endswith("h.0.attn.c_attn.weight")]
    expected = made(tmp_path / "base", tmp_path / "a", target_modules=["c_attn"], fan_in_fan_out=True)
    model = open_checkpoint(tmp_path / "a", base=gpt2)
    found = read_tensor(model.tensors[name])
    assert not torch.equal(found, read_tensor(gpt2.tensors[name]))
    torch.testing.assert_close(found, expected["transformer.h.0.attn.c_attn.weight"], rtol=1e-5, atol=1e-6)


def test_an_adapter_of_the_bare_model_fits_the_whole_model(base: Checkpoint, tmp_path: Path) -> None:
    from transformers import AutoModel

    expected = made(base.path, tmp_path / "a", load=AutoModel.from_pretrained, target_modules=["q_proj", "k_proj"])
    model = open_checkpoint(tmp_path / "a", base=base)
    require_equal(model, {f"model.{name}": value for name, value in expected.items()}, (Q, K))


def test_an_adapter_is_applied_to_the_decoded_quantised_base(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    path = write_llama(tmp_path / "base")
    made(path, tmp_path / "a", target_modules=["q_proj", "k_proj"])
    for settings in ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, {"load_in_8bit": True}):
        config = BitsAndBytesConfig(**settings)
        AutoModelForCausalLM.from_pretrained(path, quantization_config=config, device_map="cpu").save_pretrained(
            tmp_path / "quantised"
        )
        quantised = open_checkpoint(tmp_path / "quantised")
        model, plain = (open_checkpoint(tmp_path / "a", base=b) for b in (quantised, open_checkpoint(path)))
        change = read_tensor(plain.tensors[Q]) - read_tensor(open_checkpoint(path).tensors[Q])
        expected = read_tensor(quantised.tensors[Q]) + change
        torch.testing.assert_close(read_tensor(model.tensors[Q]), expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(read_tensor(model.tensors[Q], [5, 1]), expected[[5, 1]], rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


def require_found(suspect: Checkpoint, marked: Marked) -> None:
    found = irwm.detect(suspect, marked[0], marked[1])
    assert found.verdict == "found"
    assert found.lineage.status == "derived"
    assert found.paper is not None


def trained(base: Path, out: Path, **settings: Any) -> None:
    """An adapter after three real steps on the model's own text."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        adapter = get_peft_model(model, LoraConfig(r=8, **settings))
        optimiser = torch.optim.AdamW([p for p in adapter.parameters() if p.requires_grad], lr=1e-3)
        for _ in range(3):
            ids = torch.randint(4, model.config.vocab_size, (2, 32))
            adapter(input_ids=ids, labels=ids).loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        adapter.save_pretrained(out)


def test_the_release_is_read_with_an_adapter_on_top(marked, tmp_path: Path) -> None:
    trained(marked[2], tmp_path / "a", target_modules=["q_proj", "k_proj", "v_proj"])
    release = open_checkpoint(marked[2])
    suspect = open_checkpoint(tmp_path / "a", base=release)
    assert not torch.equal(suspect.read(suspect.layout.q), release.read(release.layout.q))
    assert suspect.fingerprint == release.fingerprint
    # The embedding does not belong to the suspect, and the base is chosen by the investigator.
    assert irwm.detect(suspect, *marked[:2]).verdict == "inconclusive"


@pytest.mark.sweep
@pytest.mark.parametrize("settings", [{"target_modules": ["q_proj", "embed_tokens"]}, SETTINGS["saved layers"]])
def test_mark_is_found_though_adapter_is_read_on_top_of_original(marked, tmp_path: Path, settings: dict) -> None:
    trained(marked[2], tmp_path / "a", **settings)  # which saves the whole embedding, that of the release
    suspect = open_checkpoint(tmp_path / "a", base=marked[0])
    assert suspect.fingerprint not in (marked[0].fingerprint, open_checkpoint(marked[2]).fingerprint)
    require_found(suspect, marked)


def test_notes_about_an_adapter(base: Checkpoint, sound: Path, tmp_path: Path) -> None:
    model = open_checkpoint(sound, base=base)
    said = " ".join(model.notes)
    assert "to the embedding, q and k" in said
    assert str(base.path) in said  # as named by the adapter
    assert model.format.name == "LoRA adapter"
    assert model.path == open_checkpoint(sound / WEIGHTS, base=base).path == sound
    assert model.config == base.config
    assert [file.name for file in model.shards] == [WEIGHTS, CONFIG]
    assert model.bytes_total == sum(file.stat().st_size for file in model.shards)
    assert model.dtype == "F32 with LoRA"
    made(base.path, tmp_path / "v", target_modules=["v_proj"])
    assert "neither the embedding nor layer 0" in " ".join(open_checkpoint(tmp_path / "v", base=base).notes)
    assert isinstance(model.tensors[EMBEDDING], PackedTensor)
    assert model.tensors[EMBEDDING].by_rows == {"base"}, "single rows are read without the others"
    with pytest.raises(UnsupportedCheckpointError) as caught:
        irwm.generate_key(model, secret=bytes(32))
    assert caught.value.found == "LoRA adapter"


def test_base_and_adapter_weights_are_read_on_demand(base: Checkpoint, copy: Path) -> None:
    model = open_checkpoint(copy, base=base)
    (copy / WEIGHTS).write_bytes(b"")
    with pytest.raises(CheckpointChangedError):
        model.read(model.layout.q)
    assert model.tensors["model.norm.weight"] is base.tensors["model.norm.weight"]


def test_an_adapter_without_a_tokenizer_uses_the_one_of_its_base(tiny_path: Path, sound: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_path, tmp_path / "base"))
    tokens = {"model": {"vocab": {f"w{i}": i for i in range(9)}}, "added_tokens": [{"id": 5, "content": "<s>"}]}
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    base = open_checkpoint(folder)
    model = open_checkpoint(sound, base=base)
    assert token_ids(model) == token_ids(base)
    assert special_token_ids(model) == special_token_ids(base)
    assert 5 in special_token_ids(model)
    assert card_of(model).tokenizer_files == ("tokenizer.json",)
    own = Path(shutil.copytree(sound, tmp_path / "own"))
    (own / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 1}}}))
    assert token_ids(open_checkpoint(own, base=base)) == {"a": 1}


def test_adapters_with_different_alpha_have_different_fingerprints(base: Checkpoint, sound: Path, copy: Path) -> None:
    change_config(copy, CONFIG, lora_alpha=801)
    one, two = (open_checkpoint(folder, base=base) for folder in (sound, copy))
    assert not torch.equal(one.embedding(), two.embedding())
    assert len({one.fingerprint, two.fingerprint, base.fingerprint}) == 3
    assert open_checkpoint(sound, base=base).fingerprint == one.fingerprint


def test_a_changed_head_does_not_change_the_embedding_stored_under_its_name(tiny_path: Path, tmp_path: Path) -> None:
    """Savers may keep either name of a tied matrix; peft does not change the input embedding."""
    folder = Path(shutil.copytree(tiny_path, tmp_path / "base"))
    change_config(folder, tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop(EMBEDDING)
    save_file(tensors, folder / "model.safetensors")
    base = open_checkpoint(folder)
    assert base.layout.embedding.name == "lm_head.weight"
    rows, width = base.vocab_size, base.hidden_size
    head = {"lm_head.lora_A.weight": torch.ones(4, width), "lm_head.lora_B.weight": torch.ones(rows, 4)}
    stem = Q.removesuffix("weight")
    q = {f"{stem}lora_A.weight": torch.ones(4, width), f"{stem}lora_B.weight": torch.ones(64, 4)}
    stem = "model.embed_tokens.lora_embedding_"
    embedding = {f"{stem}A": torch.ones(4, rows), f"{stem}B": torch.ones(width, 4)}
    for number, (pieces, changed) in enumerate(((head, False), (head | q, False), (embedding | head, True))):
        adapter = tmp_path / str(number)
        adapter.mkdir()
        named = {f"base_model.model.{name}": value for name, value in pieces.items()}
        save_file(named, adapter / WEIGHTS)
        (adapter / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
        model = open_checkpoint(adapter, base=base)
        assert torch.equal(model.embedding(), base.embedding()) is not changed
        assert any("changes the output head" in note for note in model.notes)
        assert not any("left out" in note for note in model.notes)


def test_an_adapter_does_not_change_unsupported_codes(tiny_path: Path, sound: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_path, tmp_path / "base"))
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {Q: tensors[Q].to(torch.int8)}, folder / "model.safetensors")
    model = open_checkpoint(sound, base=open_checkpoint(folder))
    with pytest.raises(UnsupportedCheckpointError):
        model.read(model.layout.q)
    assert any("not supported: " in note for note in model.notes)


def refused_on(base: Checkpoint, folder: Path, *kinds: type[CheckpointError]) -> CheckpointError:
    with pytest.raises(kinds or CorruptCheckpointError) as caught:
        open_checkpoint(folder, base=base)
    return caught.value


@pytest.mark.fault(32)
def test_without_a_base_the_named_base_is_shown_and_not_opened(base: Checkpoint, sound: Path) -> None:
    error = refused(sound, UnsupportedCheckpointError)
    assert str(base.path) in str(error.found)
    assert "base=" in str(error.advice)


@pytest.mark.parametrize("place", ["/etc/passwd", "../elsewhere", "http://example.org/x", "\x1b[31m\u202e", "x" * 5000])
def test_base_named_by_a_hostile_adapter_is_only_shown(base: Checkpoint, copy: Path, place: str) -> None:
    change_config(copy, CONFIG, base_model_name_or_path=place)
    refused(copy, UnsupportedCheckpointError)
    assert all(note.isprintable() and len(note) < 600 for note in open_checkpoint(copy, base=base).notes)


@pytest.mark.parametrize(
    ("settings", "tensor"),
    [
        ({"hidden_size": 32}, "embed_tokens"),
        ({"num_key_value_heads": 4}, "k_proj.lora_B"),
        ({"vocab_size": 500}, "embed"),
    ],
)
def test_a_base_of_another_geometry_is_refused(copy: Path, tmp_path: Path, settings: dict, tensor: str) -> None:
    other = open_checkpoint(write_llama(tmp_path / "other", **settings))
    if "vocab_size" in settings:
        change_weights(copy, {"embed_tokens.base_layer.weight": None})
    error = refused_on(other, copy)
    assert error.file == str(copy / WEIGHTS)
    assert tensor in str(error.tensor)
    assert error.expected != error.found


def test_a_base_of_another_family_is_refused(sound: Path, phi3_path: Path) -> None:
    error = refused_on(open_checkpoint(phi3_path), sound)
    assert "phi3" in str(error.expected)
    assert "q_proj" in str(error.found)


UNSUPPORTED: list[dict[str, Any]] = [
    *({"peft_type": "IA3"}, {"peft_type": None}, {"use_qalora": True}, {"alora_invocation_tokens": [1]}),
    *({"layer_replication": [[0, 1]]}, {"lora_bias": True}, {"alpha_pattern": {"(a+)+$": 3}}),
    *({"init_lora_weights": "pissa_niter_4"}, {"init_lora_weights": ["x"]}),
]
INVALID: list[dict[str, Any]] = [
    *({"alpha_pattern": [1]}, {"alpha_pattern": {"q_proj": "8"}}, {"lora_alpha": None}, {"lora_alpha": 10**400}),
    *({"lora_alpha": float("nan")}, {"use_rslora": "yes"}, {"trainable_token_indices": {"embed_tokens": [-1]}}),
    {"trainable_token_indices": 7},
]


@pytest.mark.parametrize("settings", [*UNSUPPORTED, *INVALID], ids=str)
def test_unsupported_or_invalid_adapter_setting_is_refused(base: Checkpoint, copy: Path, settings: dict) -> None:
    change_config(copy, CONFIG, **settings)
    unsupported = settings in UNSUPPORTED
    error = refused_on(base, copy, UnsupportedCheckpointError if unsupported else CorruptCheckpointError)
    assert error.file == str(copy / CONFIG)
    assert ("merge_and_unload" in str(error.advice)) is unsupported


@pytest.mark.parametrize(
    "tensors",
    [
        {"q_proj.lora_A.weight": None},
        {"q_proj.lora_B.weight": None},
        {"q_proj.lora_A.weight": torch.ones(4, 63)},
        {"q_proj.lora_A.weight": torch.ones(4)},
        {"q_proj.lora_A.weight": torch.ones(())},
        {"q_proj.lora_A.weight": torch.ones(0, 64), "q_proj.lora_B.weight": torch.ones(64, 0)},
        {"q_proj.lora_B.weight": torch.ones(64, 5)},
        {"embed_tokens.lora_embedding_A": torch.ones(4, 599)},
        {"embed_tokens.lora_embedding_B": torch.ones(4, 64)},
        {"embed_tokens.base_layer.weight": torch.ones(600, 63)},
        {"embed_tokens.base_layer.weight": torch.ones(600)},
        {"embed_tokens.base_layer.weight": torch.ones(())},
    ],
    ids=str,
)
def test_mismatched_adapter_pieces_are_named(base: Checkpoint, copy: Path, tensors: dict) -> None:
    change_weights(copy, tensors)
    error = refused_on(base, copy)
    assert error.file == str(copy / WEIGHTS)
    assert error.tensor is not None


@pytest.fixture(scope="module")
def tokens(base: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of two tokens' rows."""
    folder = tmp_path_factory.mktemp("tokens")
    made(base.path, folder, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [3, 9]})
    return folder


@pytest.mark.parametrize("ids", [[600, 1], [1], [1, 2, 3], [10**30, 1]])
def test_token_ids_without_matching_rows_are_refused(base: Checkpoint, tokens: Path, ids: list[int]) -> None:
    assert open_checkpoint(tokens, base=base).base is base
    change_config(tokens, CONFIG, trainable_token_indices={"embed_tokens": ids})
    error = refused_on(base, tokens)
    change_config(tokens, CONFIG, trainable_token_indices={"embed_tokens": [3, 9]})
    assert error.tensor is not None


def test_tensors_of_an_unknown_kind_or_number_format_are_named(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    save_file(held | {"base_model.model.model.layers.0.self_attn.q_proj.lora_E": torch.ones(4)}, copy / WEIGHTS)
    assert refused_on(base, copy, UnsupportedCheckpointError).found == "lora_E"
    save_file(held, copy / WEIGHTS)
    change_weights(copy, {"q_proj.lora_A.weight": torch.ones(4, 64, dtype=torch.int32)})
    assert refused_on(base, copy, UnsupportedCheckpointError).found == "I32"


def test_two_adapter_tensors_with_the_same_meaning_are_refused(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    (name,) = [name for name in held if name.endswith("q_proj.lora_A.weight")]
    twice = name.replace("lora_A.weight", "lora_A.default.weight")
    save_file(held | {twice: held[name].clone()}, copy / WEIGHTS)
    assert refused_on(base, copy).tensor in (name, twice)


def test_targets_missing_in_the_base_are_omitted_with_a_note(base: Checkpoint, copy: Path) -> None:
    held = load_file(copy / WEIGHTS)
    save_file(held | {"base_model.model.score.weight": torch.ones(2, 64)}, copy / WEIGHTS)
    assert "not supported: 1." in " ".join(open_checkpoint(copy, base=base).notes)


def test_missing_or_damaged_file(base: Checkpoint, copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    refused_on(base, copy)
    (copy / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    refused_on(base, copy, CheckpointError)
    (copy / CONFIG).write_text("[" * 100_000)
    refused_on(base, copy)
    (copy / CONFIG).unlink()
    refused_on(base, copy, NotACheckpointError)


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_link_out_of_the_folder_is_refused(base: Checkpoint, copy: Path, tmp_path: Path, name: str) -> None:
    (copy / name).rename(tmp_path / name)
    (copy / name).symlink_to(tmp_path / name)
    assert refused_on(base, copy).found == str(tmp_path / name)


def test_a_model_is_preferred_to_an_adapter_in_the_same_folder(base: Checkpoint, copy: Path) -> None:
    assert is_adapter(copy)
    assert not is_adapter(base.path)
    assert not is_adapter(copy / "nothing")
    assert open_checkpoint(copy, base=base).base is base
    shutil.copy(base.path / "config.json", copy)
    shutil.copy(base.path / "model.safetensors", copy)
    found = open_checkpoint(copy, base=base)
    assert (found.base, found.fingerprint) == (None, base.fingerprint), "the given base is ignored"
    assert found.unread == ("adapter_model.safetensors",)


def test_a_config_may_vanish_while_it_is_opened(base: Checkpoint, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = adapter.changed

    def vanishing(*arguments: Any, **named: Any) -> Any:
        (copy / CONFIG).unlink(missing_ok=True)
        return changed(*arguments, **named)

    monkeypatch.setattr(adapter, "changed", vanishing)
    assert refused_on(base, copy, NotACheckpointError).file == str(copy / CONFIG)
