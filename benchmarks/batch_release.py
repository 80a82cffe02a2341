"""Copies for many recipients, with and without sharing equal data: seconds, and disk space.

    python -m benchmarks.batch_release --folder /mnt/btrfs --copies 10

Sharing needs a disk that clones files (btrfs, XFS, bcachefs, ZFS 2.2 or later). On other disks both lines are equal.
The model is synthetic, with the given size: the embedding in one shard, as in large models, and the rest in another.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

import irwm
from irwm.release.cloning import ClonedFrom, clones_in
from irwm.scheme.parameters import many_recipients

HEADS = 8


def made_up(folder: Path, vocabulary: int, hidden: int, megabytes: int) -> Path:
    """Write a Llama with random weights: the embedding in one shard, about `megabytes` of other weights in another."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * 0.02).to(torch.bfloat16)

    layer = {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.k_proj.weight": (hidden, hidden),
        "self_attn.v_proj.weight": (hidden, hidden),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (4 * hidden, hidden),
        "mlp.up_proj.weight": (4 * hidden, hidden),
        "mlp.down_proj.weight": (hidden, 4 * hidden),
    }
    layers = max(1, megabytes * 1_000_000 // (2 * 16 * hidden**2))
    rest = {"model.norm.weight": torch.ones(hidden, dtype=torch.bfloat16), "lm_head.weight": noise(vocabulary, hidden)}
    for number in range(layers):
        rest |= {f"model.layers.{number}.{name}": noise(*shape) for name, shape in layer.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            rest[f"model.layers.{number}.{norm}.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
    shards = {
        "model-00001-of-00002.safetensors": {"model.embed_tokens.weight": noise(vocabulary, hidden)},
        "model-00002-of-00002.safetensors": rest,
    }
    for name, tensors in shards.items():
        save_file(tensors, folder / name, metadata={"format": "pt"})
    where = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def measure(model: irwm.Checkpoint, folder: Path, copies: int, share: bool) -> str:
    """Make the copies, each like a job, and delete them."""
    os.sync()
    before, start = shutil.disk_usage(folder).used, time.perf_counter()
    shared: Mapping[str, ClonedFrom] = {}
    secret, size, cloned = None, 0, 0
    out = folder / "copies"
    out.mkdir()
    for number in range(copies):
        key = irwm.generate_key(model, many_recipients(model.hidden_size), secret, "Owner", f"Recipient {number}")
        secret = key.secret
        release = irwm.insert(model, key, out / str(number), shared=shared)
        shared = release.shared if share else {}
        size, cloned = size + release.bytes_written, cloned + release.bytes_cloned
    seconds = time.perf_counter() - start
    os.sync()
    taken = shutil.disk_usage(folder).used - before
    shutil.rmtree(out)
    name = "shared" if share else "copied"
    return (
        f"{name:8}{copies:7}{seconds:10.1f}{seconds / copies:12.2f}{size / 1e6:12.1f}{(size - cloned) / 1e6:14.1f}"
        f"{taken / 1e6:14.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None, help="output folder; default: a temporary folder")
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the weights that no mark changes")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as temporary:
        folder = Path(temporary)
        model = irwm.open_checkpoint(made_up(folder / "model", chosen.vocabulary, chosen.hidden, chosen.megabytes))
        print(f"{model.bytes_total / 1e6:.0f} MB of weights; this disk clones: {'yes' if clones_in(folder) else 'no'}")
        print(f"{'':8}{'copies':>7}{'seconds':>10}{'each':>12}{'MB in all':>12}{'MB written':>14}{'MB on disk':>14}")
        for share in (False, True):
            print(measure(model, folder, chosen.copies, share), flush=True)


if __name__ == "__main__":
    main()
