"""The suspects of the comparison: a release in every disguise, strong changes, and unrelated models."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks.rewrite import rewrite

Change = Callable[[Path, Path], Path]
Step = str | tuple[str, dict[str, object]]

# All function-preserving disguises except those of tokens. `rotate` folds the gains, and `regain` draws new ones.
WEIGHTS: tuple[Step, ...] = (
    "permute_residual",
    "flip_signs",
    "rotate",
    "rescale",
    "regain",
    "map_qk",
    "map_vo",
    "reorder_heads",
    "reorder_neurons",
)
KEPT: Step = ("reorder_tokens", {"tokenizer": "keep"})
DROPPED: Step = ("reorder_tokens", {"tokenizer": "drop"})
SCHEME: Final = "scrambled"
TRIMMED: Step = ("trim_tokens", {"fraction": 0.4})
NOISE_SEED, TUNING_SEED = 7, 11
TUNING_STEPS, TUNING_RATE, TUNING_BATCH, TUNING_LENGTH = 40, 2e-4, 8, 128


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table.

    Attributes:
        label: label in the table.
        steps: disguises, in order; empty for the unchanged release.
        change: a change of the weights after the disguises, or None.
        renamed: whether tensor names are hidden. The peers get the names back, since they cannot recover them.
    """

    label: str
    steps: tuple[Step, ...] = ()
    change: Change | None = None
    renamed: bool = False

    def build(self, release: Path, folder: Path, seed: int = 0) -> Path:
        """Write the suspect into the new folder `folder`."""
        from irwm.attacks.equivalence import disguise

        folder.mkdir(parents=True)
        suspect = release
        if self.steps:
            suspect = folder / "disguised"
            disguise(release, suspect, self.steps, seed=seed)
        if self.change is not None:
            suspect = self.change(suspect, folder / "changed")
        return suspect


def quantised(source: Path, out: Path) -> Path:
    """Quantise to 4 bits in groups of 32."""
    return irwm.attacks.quantize(source, out, 4)


def noisy(source: Path, out: Path) -> Path:
    """Add Gaussian noise of 0.3 deviations to every matrix."""
    return irwm.attacks.add_noise(source, out, 0.3, NOISE_SEED)


def halved(source: Path, out: Path) -> Path:
    """Prune half of all weights by magnitude."""
    return irwm.attacks.prune(source, out, 0.5)


def tuned(source: Path, out: Path) -> Path:
    """Train all weights a little further, on the text of one Python module."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=True)
    text = Path(argparse.__file__).read_text(encoding="utf-8")
    tokens = torch.tensor(Tokenizer.from_file(str(source / "tokenizer.json")).encode(text).ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=TUNING_RATE)
    generator = torch.Generator().manual_seed(TUNING_SEED)
    for _ in range(TUNING_STEPS):
        starts = torch.randint(tokens.numel() - TUNING_LENGTH, (TUNING_BATCH,), generator=generator)
        batch = torch.stack([tokens[s : s + TUNING_LENGTH] for s in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    trained = model.state_dict()
    return rewrite(source, out, lambda name, tensor: trained.get(name, tensor))


ROWS = (
    Row("the release unchanged"),
    Row("residual columns permuted", ("permute_residual",)),
    Row("residual signs flipped", ("flip_signs",)),
    Row("residual stream rotated", ("rotate",)),
    Row("residual stream rescaled", ("rescale",)),
    Row("norm gains folded in", ("fold_gains",)),
    Row("norm gains redrawn", ("regain",)),
    Row("q and k mapped inversely", ("map_qk",)),
    Row("v and o mapped inversely", ("map_vo",)),
    Row("heads reordered", ("reorder_heads",)),
    Row("neurons reordered and rescaled", ("reorder_neurons",)),
    Row("tokens reordered, tokenizer kept", (KEPT,)),
    Row("tokens reordered, no tokenizer", (DROPPED,)),
    Row("40 % of tokens trimmed", (TRIMMED,)),
    Row("padded with new tokens", ("pad_tokens",)),
    Row("tensors renamed", (("rename_tensors", {"scheme": SCHEME}),), renamed=True),
    Row("all together, tokenizer kept", (*WEIGHTS, KEPT)),
    Row("all together, no tokenizer", (*WEIGHTS, DROPPED)),
    Row("all, no tokenizer, int4", (*WEIGHTS, DROPPED), quantised),
    Row("all, 40 % of tokens trimmed, tokenizer kept, int4", (TRIMMED, *WEIGHTS, KEPT), quantised),
    Row("all, 40 % of tokens trimmed, no tokenizer, int4", (TRIMMED, *WEIGHTS, DROPPED), quantised),
    Row("noise of 0.3 deviations", change=noisy),
    Row("half of the weights pruned", change=halved),
    Row("trained further", change=tuned),
)


def with_names(release: Path, renamed: Path, out: Path) -> Path:
    """Copy `renamed` with the names of `release` restored: tensors, config and tokenizer."""
    from irwm.attacks.equivalence import rename_map

    names = [name for path in sorted(release.glob("*.safetensors")) for name in load_file(path)]
    back = {new: old for old, new in rename_map(names, SCHEME).items()}
    shutil.copytree(release, out, ignore=shutil.ignore_patterns("*.safetensors*"))
    for path in renamed.glob("*.safetensors"):
        tensors = {back[name]: tensor for name, tensor in load_file(path).items()}
        save_file(tensors, out / path.name, metadata={"format": "pt"})
    return out


def random_model(original: Path, out: Path, seed: int) -> Path:
    """Write a model with the original's config and tokenizer and random weights, with transformers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(original, local_files_only=True))
    model.to(torch.bfloat16).save_pretrained(out)
    for file in original.glob("tokenizer*"):
        shutil.copyfile(file, out / file.name)
    return out
