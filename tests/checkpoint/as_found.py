"""Checkpoints in the arrangements of public bug reports, made from any one-file model.

Each function writes the model in `folder` into `out` in one arrangement, and returns the path that a user would
open. `KINDS` has two or more variants of each kind; docs/formats.md lists the kinds with the reports.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoint import builders
from tests.checkpoint.builders import EMBEDDING, change_config, split, write_index
from tests.checkpoint.gguf_builders import convert, converted

WHOLE = "model.safetensors"
Arrangement = Callable[[Path, Path], Path]


def companions(folder: Path, out: Path) -> Path:
    """Only the config and the tokenizer."""
    out.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file() and file.suffix in (".json", ".model", ".txt"):
            shutil.copy(file, out)
    return out


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / WHOLE)


def with_tensors(folder: Path, out: Path, tensors: dict[str, torch.Tensor], name: str = WHOLE) -> Path:
    companions(folder, out)
    save_file({key: value.clone().contiguous() for key, value in tensors.items()}, out / name, {"format": "pt"})
    return out


def adapter(out: Path, width: int, wanted: str = "peft") -> Path:
    """A small adapter of layer 0's q in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=generator) * 0.02 for shape in ((8, width), (width, 8)))
    if wanted == "peft":
        base = "base_model.model.model.layers.0.self_attn.q_proj"
        save_file({f"{base}.lora_A.weight": a, f"{base}.lora_B.weight": b}, out / "adapter_model.safetensors")
        config: dict[str, Any] = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
    else:
        base = "model.layers.0.self_attn.q_proj"
        pieces = {f"{base}.lora_a": a.T.contiguous(), f"{base}.lora_b": b.T.contiguous()}
        save_file(pieces, out / "adapters.safetensors")
        config = {"fine_tune_type": "lora", "lora_parameters": {"rank": 8, "scale": 2.0}, "model": "someone/model"}
    (out / "adapter_config.json").write_text(json.dumps(config))
    return out


def next_to_an_adapter(name: str, folder: Path, out: Path) -> Path:
    """The merged weights under an unusual name, next to the adapter that was merged into them."""
    companions(folder, out)
    tensors = tensors_of(folder)
    (save_file if name.endswith(".safetensors") else torch.save)(tensors, out / name)
    torch.save({"state": {}, "param_groups": []}, out / "optimizer.pt")
    return adapter(out, tensors[EMBEDDING].shape[1])


def hub_cache(below: str, folder: Path, out: Path) -> Path:
    """A download cache whose snapshot links to the blob store. Returns the cache."""
    hub_snapshot(below, folder, out)
    return out


def hub_snapshot(below: str, folder: Path, out: Path) -> Path:
    return builders.hub_cache(folder, out, below)


def hub_file(folder: Path, out: Path) -> Path:
    return hub_snapshot("Q8_0", folder, out) / WHOLE


def split_gguf(given: int | None, folder: Path, out: Path) -> Path:
    """A GGUF in three files, the first of which holds settings only; `given` is the file to open, None the folder."""
    out.mkdir(parents=True)
    most = -(-len(converted(folder)) // 2)
    convert(folder, out / "model.gguf", split_max_tensors=most, small_first_shard=True)
    return out if given is None else out / f"model-{given + 1:05d}-of-00003.gguf"


def below(path: str, folder: Path, out: Path) -> Path:
    """The model in a folder below the one that is given."""
    shutil.copytree(folder, out / path)
    return out


def with_apple_double(of_zip: bool, folder: Path, out: Path) -> Path:
    """Shards without an index, and macOS companion files next to them or in a separate folder."""
    split(folder, out, index=False)
    hidden = out / "__MACOSX" if of_zip else out
    hidden.mkdir(exist_ok=True)
    for file in [each for each in out.iterdir() if each.is_file()]:
        companion = bytes.fromhex("0005160700020000") + b"Mac OS X        " + bytes(4072)
        (hidden / f"._{file.name}").write_bytes(companion)
    return out


def stale_index(arrangement: str, folder: Path, out: Path) -> Path:
    """An index that names missing files, next to a model that is complete without it."""
    tensors = tensors_of(folder)
    old = {name: f"model-0000{1 + place % 2}-of-00002.safetensors" for place, name in enumerate(sorted(tensors))}
    if arrangement == "another format":
        companions(folder, out)
        torch.save(tensors, out / "pytorch_model.bin")
    elif arrangement == "resharded":
        split(folder, out, index=False)
    else:
        with_tensors(folder, out, tensors)
    if arrangement == "one old shard left":
        part = {name: tensors[name] for name, file in old.items() if file.startswith("model-00001")}
        save_file(part, out / "model-00001-of-00002.safetensors")
    write_index(out, old)
    return out


def contradictory(what: str, folder: Path, out: Path) -> Path:
    """An intact embedding, and a contradiction in the rest."""
    tensors, config = tensors_of(folder), json.loads((folder / "config.json").read_text())
    attention = [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight"))]
    for name in attention:
        if what == "packed":
            words = tensors[name].to(torch.uint8).reshape(-1)[: tensors[name].numel() // 4]
            tensors[name] = words.reshape(tensors[name].shape[0] // 4, -1)
        elif what == "missing":
            del tensors[name]
        elif what == "empty":
            tensors[name] = torch.empty(0)
    with_tensors(folder, out, tensors)
    changes = {
        "hidden size": {"hidden_size": 2 * config["hidden_size"]},
        "heads": {"num_attention_heads": 7},
        "no heads": {"num_attention_heads": None},
        "unknown type": {"model_type": "unknown"},
    }
    change_config(out, **changes.get(what, {}))
    return out


def null_metadata(folder: Path, out: Path) -> Path:
    """A header whose `__metadata__` is null, which safetensors 0.8 opens."""
    companions(folder, out)
    content = (folder / WHOLE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length]) | {"__metadata__": None}
    text = json.dumps(header).encode()
    (out / WHOLE).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    return out


def twice(folder: Path, out: Path) -> Path:
    """Two shards that hold the same tensor with the same numbers."""
    split(folder, out)
    first, second = sorted(out.glob("*.safetensors"))[:2]
    name, value = min(load_file(first).items())
    save_file(load_file(second) | {name: value}, second, {"format": "pt"})
    return out


def without_a_name(kind: str, folder: Path, out: Path) -> Path:
    """A weight file with a name that does not show its format, as in Ollama and content stores."""
    companions(folder, out)
    if kind == "gguf":
        file = convert(folder, out / "x.gguf", gguf.GGMLQuantizationType.F32)
        return file.rename(out / f"sha256-{'0a' * 32}")
    if kind == "torch":
        torch.save(tensors_of(folder), out / "epoch=3.ckpt")
        return out / "epoch=3.ckpt"
    shutil.copy(folder / WHOLE, out / "weights")
    return out / "weights"


def one_file_of(kind: str, folder: Path, out: Path) -> Path:
    split(folder, out, index=kind == "index")
    return out / ("model.safetensors.index.json" if kind == "index" else "model-00002-of-00003.safetensors")


def as_torchao(style: str, folder: Path, out: Path) -> Path:
    """Names as in torchao's safetensors files; the matrices of layer 0 are codes of 8 bits."""
    found: dict[str, torch.Tensor] = {}
    for name, value in tensors_of(folder).items():
        if "layers.0" not in name or value.dim() != 2:
            found[f"{name}:_data" if style == "early" else name] = value
            continue
        scale = value.float().abs().amax(dim=1, keepdim=True) / 127
        pieces = {"qdata": (value.float() / scale).round().to(torch.int8), "scale": scale}
        module = name.removesuffix("weight")
        for piece, tensor in pieces.items():
            found[f"{name}:{piece}" if style == "early" else f"{module}_weight_{piece}"] = tensor
    return with_tensors(folder, out, found)


def odd_bytes(name: bytes, folder: Path, out: Path) -> Path:
    """A folder whose name is not UTF-8."""
    out.mkdir(parents=True)
    unusual = Path(os.fsdecode(os.path.join(os.fsencode(out), name)))
    shutil.copytree(folder, unusual)
    return unusual


def shards(index: bool, folder: Path, out: Path) -> Path:
    return split(folder, out, index=index)


KINDS: dict[str, Arrangement] = {
    "shards with an index": partial(shards, True),
    "shards without an index": partial(shards, False),
    "weights .pt next to an adapter": partial(next_to_an_adapter, "hf_model_0001_0.pt"),
    "weights .safetensors next to an adapter": partial(next_to_an_adapter, "finetuned.safetensors"),
    "hub cache": partial(hub_cache, ""),
    "hub cache, model in a subfolder": partial(hub_cache, "Q8_0"),
    "hub cache, model two folders down": partial(hub_cache, "fp32/Q8_0"),
    "hub cache, one file": hub_file,
    "hub cache, one blob": lambda folder, out: hub_file(folder, out).resolve(),
    "split GGUF, folder": partial(split_gguf, None),
    "split GGUF, first file": partial(split_gguf, 0),
    "split GGUF, second file": partial(split_gguf, 1),
    "one subfolder": partial(below, "download"),
    "three folders down": partial(below, "a/b/c"),
    "hidden subfolder": partial(below, ".cache/model"),
    "AppleDouble next to shards": partial(with_apple_double, False),
    "AppleDouble in __MACOSX": partial(with_apple_double, True),
    "stale index, whole file": partial(stale_index, "whole"),
    "stale index, one old shard left": partial(stale_index, "one old shard left"),
    "stale index, other shards": partial(stale_index, "resharded"),
    "stale index, PyTorch file": partial(stale_index, "another format"),
    **{f"contradiction: {what}": partial(contradictory, what) for what in (
        "packed", "missing", "empty", "hidden size", "heads", "no heads", "unknown type",
    )},
    "__metadata__ null": null_metadata,
    "a tensor in two shards": twice,
    "GGUF without a name": partial(without_a_name, "gguf"),
    "safetensors without a name": partial(without_a_name, "safetensors"),
    "PyTorch as .ckpt": partial(without_a_name, "torch"),
    "index given": partial(one_file_of, "index"),
    "one shard given": partial(one_file_of, "shard"),
    "torchao, early names": partial(as_torchao, "early"),
    "torchao, later names": partial(as_torchao, "later"),
    "name in Latin-1": partial(odd_bytes, b"mod\xe8le"),
    "name in Shift-JIS": partial(odd_bytes, b"\x83\x82\x83f\x83\x8b"),
}  # fmt: skip
