"""One function for each parser of untrusted bytes: it takes any bytes and returns; anything else is a bug.

A typed error is a correct answer. Any other error goes to the fuzzer, which keeps the bytes. Parsers that the app runs
in a child process run here in the fuzzer's own process, so that it sees which lines they reach.
"""

from __future__ import annotations

import json
import re
import struct
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from irwm.checkpoint import Checkpoint, find_files, open_checkpoint
from irwm.checkpoint.dtypes import BITS
from irwm.checkpoint.files import open_regular, parse_json
from irwm.checkpoint.formats import gguf_parser, torch_parser
from irwm.checkpoint.formats.gguf_translation import translated
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.parser_process import answer_of
from irwm.checkpoint.quantised import assembled
from irwm.checkpoint.tensors import TensorEntry
from irwm.checkpoint.tokens import special_token_ids, token_ids
from irwm.families import recognise
from tests.fuzz.received import RECEIVED
from tests.fuzz.target import FOLDER, Target, written

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "assets" / "demo"


def safetensors(content: bytes) -> None:
    read_safetensors(written("one.safetensors", content))


def gguf(content: bytes) -> None:
    gguf_parser.parse(str(written("one.gguf", content)))


def torch_archive(content: bytes) -> None:
    """As the child answers: torch's own unpickler may raise any error, which becomes a refusal there."""
    answer = answer_of({"parse": torch_parser.parse}, str(written("one.bin", content)))
    assert json.loads(answer)


def index(content: bytes) -> None:
    written("sharded/model.safetensors.index.json", content)
    find_files(FOLDER / "sharded")


def config(content: bytes) -> None:
    """Any config with the shapes of any of our families: the text is {"config": ..., "shapes": {name: [..]}}."""
    value = parse_json(content, FOLDER, "config", strict=False)
    if isinstance(value, dict) and isinstance(value.get("config"), dict) and isinstance(value.get("shapes"), dict):
        shapes = {name: tuple(shape) for name, shape in value["shapes"].items() if _is_shape(shape)}
        recognise(value["config"], shapes)


def quantised(content: bytes) -> None:
    """Any config with pieces of any name, number format and shape, and any state of bitsandbytes:
    {"config": .., "pieces": {name: [dtype, ..]}, "state": text}."""
    value = parse_json(content, FOLDER, "config", strict=False)
    if isinstance(value, dict) and isinstance(value.get("config"), dict) and isinstance(value.get("pieces"), dict):
        state = str(value.get("state", "")).encode("utf-8", "replace")[:4096]
        file = written("pieces", state + bytes(4096 - len(state)))
        with open_regular(file) as (_, seen):
            pieces = {
                name: TensorEntry(name, dtype, tuple(shape), file, 0, BITS[dtype] * prod(shape) // 8, seen)
                for name, (dtype, *shape) in filter(_is_piece, value["pieces"].items())
            }
        assembled(pieces, value["config"])


def adapter(content: bytes) -> None:
    """An adapter's config next to valid weights, on the demo model."""
    folder = written("adapter/adapter_config.json", content).parent
    weights = folder / "adapter_model.safetensors"
    if not weights.exists():
        stem = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
        save_file({f"{stem}A.weight": torch.ones(2, 256), f"{stem}B.weight": torch.ones(256, 2)}, weights)
    open_checkpoint(folder, open_checkpoint(DEMO))


def gguf_settings(content: bytes) -> None:
    """GGUF's settings with the tensors of a small Llama under GGUF's names."""
    value = parse_json(content, FOLDER, "settings", strict=False)
    if isinstance(value, dict):
        seen = open_checkpoint(DEMO).tensors["model.embed_tokens.weight"].parts[0].seen
        shapes = {"token_embd.weight": (64, 32), "blk.0.attn_norm.weight": (32,), "output.weight": (64, 32)}
        shapes |= {"blk.0.attn_q.weight": (32, 32), "blk.0.attn_k.weight": (16, 32)}
        tensors = {n: TensorEntry(n, "F32", s, FOLDER / "one.gguf", 0, 0, seen) for n, s in shapes.items()}
        found, made, _ = translated(tensors, value)
        recognise(made, {name: tensor.shape for name, tensor in found.items()})


def tokenizer(content: bytes) -> None:
    model = _with_tokenizer()
    written("tokens/tokenizer.json", content)
    special_token_ids(model)
    token_ids(model)


@cache
def _with_tokenizer() -> Checkpoint:
    for name in ("config.json", "model.safetensors"):
        written(f"tokens/{name}", (DEMO / name).read_bytes())
    return open_checkpoint(FOLDER / "tokens")


def _is_piece(item: tuple[str, Any]) -> bool:
    piece = item[1]
    return isinstance(piece, list) and bool(piece) and piece[0] in list(BITS) and _is_shape(piece[1:])


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and len(value) < 5 and all(type(n) is int and 0 <= n < 1 << 40 for n in value)


def _safetensors_seeds() -> list[bytes]:
    header = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"format": "pt"}}
    text = json.dumps(header).encode()
    return [struct.pack("<Q", len(text)) + text + bytes(16)]


def _gguf_seeds() -> list[bytes]:
    import gguf
    import numpy as np

    from tests.checkpoint.gguf_builders import finished

    writer = gguf.GGUFWriter(FOLDER / "seed.gguf", "llama")
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["<s>", "a", "b"])
    writer.add_token_types([3, 1, 1])
    writer.add_tensor("token_embd.weight", np.zeros((3, 32), dtype=np.float16))
    return [finished(writer).read_bytes()]


def _torch_seeds() -> list[bytes]:
    path = FOLDER / "seed.bin"
    torch.save({"a": torch.zeros(2, 2), "b": torch.zeros(3, dtype=torch.bfloat16)}, path)
    return [path.read_bytes()]


def _index_seeds() -> list[bytes]:
    written("sharded/model-00001-of-00001.safetensors", _safetensors_seeds()[0])
    written("sharded/config.json", b"{}")
    return [json.dumps({"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}).encode()]


def _config_seeds() -> list[bytes]:
    made = []
    for file in (DEMO / "config.json", *sorted((ROOT / "tests" / "models").glob("*/config.json"))):
        model = open_checkpoint(file.parent)
        # The embedding, layer 0 and the tensors after all layers: small enough for a fuzzer.
        shapes = {n: t.shape for n, t in model.tensors.items() if not re.search(r"\.[1-9]\d*\.|mlp", n)}
        plain = {key: value for key, value in model.config.items() if not isinstance(value, (dict, list))}
        made.append(json.dumps({"config": plain, "shapes": shapes}).encode())
    return made


def _quantised_seeds() -> list[bytes]:
    stem = "model.layers.0.self_attn.q_proj."
    gptq = {"qweight": ["I32", 4, 32], "qzeros": ["I32", 1, 4], "scales": ["F16", 1, 32], "g_idx": ["I32", 32]}
    packed = {"weight_packed": ["I32", 32, 4], "weight_scale": ["BF16", 32, 1]}
    eight = {"weight": ["I8", 32, 32], "SCB": ["F32", 32]}
    four = {"weight": ["U8", 512, 1], "weight.absmax": ["F32", 16], "weight.quant_map": ["F32", 16]}
    mlx = {"weight": ["U32", 32, 4], "scales": ["F16", 32, 1], "biases": ["F16", 32, 1]}
    fp8 = {"weight": ["F8_E4M3", 32, 32], "weight_scale_inv": ["F32", 1, 1]}
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [32, 32]})
    four["weight.quant_state.bitsandbytes__nf4"] = ["U8", len(state)]
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}
    made = []
    for pieces in (gptq, packed, eight, four, mlx, fp8):
        named = {stem + name: piece for name, piece in pieces.items()}
        made.append(json.dumps({"config": {"quantization_config": settings}, "pieces": named, "state": state}).encode())
    return made


def _adapter_seeds() -> list[bytes]:
    plain = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
    patterns = {"rank_pattern": {}, "alpha_pattern": {"q_proj": 8}, "use_rslora": True, "modules_to_save": None}
    return [json.dumps(plain).encode(), json.dumps(plain | patterns).encode()]


def _settings_seeds() -> list[bytes]:
    settings = {"general.architecture": "llama", "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1}
    settings |= {"llama.embedding_length": 32, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.block_count": 1}
    return [json.dumps(settings).encode()]


def _tokenizer_seeds() -> list[bytes]:
    vocab = {"<s>": 0, "a": 1, "b": 2}
    added = [{"id": 0, "content": "<s>", "special": True}]
    return [json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": added}).encode()]


TARGETS = {
    "safetensors": Target(safetensors, _safetensors_seeds),
    "gguf": Target(gguf, _gguf_seeds),
    "gguf_settings": Target(gguf_settings, _settings_seeds),
    "torch": Target(torch_archive, _torch_seeds),
    "index": Target(index, _index_seeds),
    "config": Target(config, _config_seeds),
    "quantised": Target(quantised, _quantised_seeds),
    "adapter": Target(adapter, _adapter_seeds),
    "tokenizer": Target(tokenizer, _tokenizer_seeds),
    **RECEIVED,
}
