"""Time and peak memory of aligning a large model's embedding, from unchanged to fully disguised.

    python -m benchmarks.alignment_scale [--rows 128256] [--columns 4096] [--device cpu]

The weights are synthetic: heavy-tailed rows whose variance falls off over the columns as in trained embeddings, with
the layer-0 q and k that the family needs, in bfloat16 like an 8B Llama. The disguised suspect has reordered rows, a
rotated and scaled residual stream, and no tokenizer. Each alignment runs in a separate process. Its reported peak
resident memory excludes that of a process that only imports the package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

BLOCK = 8192


def write(folder: Path, embedding: torch.Tensor, heads: int) -> None:
    d = embedding.shape[1]
    folder.mkdir()
    config = {
        "model_type": "llama",
        "hidden_size": d,
        "vocab_size": len(embedding),
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 4,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    generator = torch.Generator().manual_seed(1)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "model.layers.0.input_layernorm.weight": torch.ones(d, dtype=torch.bfloat16),
        "model.layers.0.self_attn.q_proj.weight": torch.randn(d, d, generator=generator).bfloat16(),
        "model.layers.0.self_attn.k_proj.weight": torch.randn(d // 4, d, generator=generator).bfloat16(),
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def synthetic(rows: int, columns: int) -> torch.Tensor:
    """Return (rows, columns) in bfloat16: heavy-tailed, with a variance that falls off over the columns."""
    generator = torch.Generator().manual_seed(0)
    spread = 0.02 * torch.arange(1, columns + 1).float() ** -0.3
    made = torch.empty(rows, columns, dtype=torch.bfloat16)
    for start in range(0, rows, BLOCK):
        block = torch.randn(min(BLOCK, rows - start), columns, generator=generator)
        made[start : start + BLOCK] = (block * block.abs().sqrt() * spread).bfloat16()
    return made


def make(folder: Path, rows: int, columns: int) -> None:
    """Write the original, a copy with reordered columns, a rotated copy, and one with rotated and reordered rows."""
    generator = torch.Generator().manual_seed(2)
    original = synthetic(rows, columns)
    heads = columns // 128
    write(folder / "original", original, heads)
    write(folder / "columns", original[:, torch.randperm(columns, generator=generator)].contiguous(), heads)
    turn = torch.linalg.qr(torch.randn(columns, columns, generator=generator)).Q
    turned = torch.empty_like(original)
    for start in range(0, rows, BLOCK):
        turned[start : start + BLOCK] = (1.7 * original[start : start + BLOCK].float() @ turn).bfloat16()
    write(folder / "rotated", turned, heads)
    order = torch.randperm(rows, generator=generator)
    torch.save(order, folder / "order.pt")
    write(folder / "rotated and reordered", turned[order].contiguous(), heads)


def align(folder: Path, suspect: str, device: str) -> None:
    """Align in a separate process, and print time and memory."""
    import irwm

    if suspect == "only the import":
        print(json.dumps({"peak": peak()}))
        return
    model, other = irwm.open_checkpoint(folder / "original"), irwm.open_checkpoint(folder / suspect)
    started = time.perf_counter()
    alignment = irwm.align(other, model, device=device)
    seconds = time.perf_counter() - started
    rows = torch.arange(model.vocab_size)
    if "reordered" in suspect:
        rows = torch.argsort(torch.load(folder / "order.pt", weights_only=True))
    right = float((torch.from_numpy(alignment.rows) == rows).double().mean())
    print(
        json.dumps(
            {
                "seconds": seconds,
                "peak": peak(),
                "aligned": alignment.aligned,
                "similarity": alignment.similarity,
                "right": right,
            }
        )
    )


def peak() -> int:
    """Return peak resident memory in bytes. getrusage would include memory of the parent process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=128256)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, help="folder for the models; existing ones are reused")
    parser.add_argument("--align", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.align:
        align(options.folder, options.align, options.device)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "rotated and reordered").exists():
            folder.mkdir(exist_ok=True)
            make(folder, options.rows, options.columns)
        print(f"{options.rows} × {options.columns}, {options.device}, {torch.get_num_threads()} threads\n")
        print("| suspect | aligned | similarity | rows right | seconds | GiB beyond the import |")
        print("|---|---|---|---|---|---|")
        base = 0
        for suspect in ("only the import", "original", "columns", "rotated", "rotated and reordered"):
            command = [
                sys.executable,
                "-m",
                "benchmarks.alignment_scale",
                "--align",
                suspect,
                "--folder",
                str(folder),
                "--device",
                options.device,
            ]
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            if suspect == "only the import":
                base = result["peak"]
                continue
            print(
                f"| {suspect} | {result['aligned']} | {result['similarity']:.3f} | {result['right']:.4f} "
                f"| {result['seconds']:.1f} | {(result['peak'] - base) / 2**30:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
