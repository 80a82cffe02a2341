"""Train a small model of another family, or an unrelated model of the same shape, on the demo model's text.

    python -m tools.train_small gemma --out tests/models/gemma
    python -m tools.train_small phi3 --out tests/models/phi3
    python -m tools.train_small gpt2 --out tests/models/gpt2
    python -m tools.train_small llama --seed 1 --steps 1200 --out /tmp/unrelated

The tests need trained weights with a tied head, an embedding scale and one key head (gemma), with fused projections
(phi3), and with LayerNorm, learned positions and a tied head (gpt2). `llama` has the demo model's shape and tokenizer:
with another seed it becomes a model that an honest competitor could have trained, which must never be mistaken for
ours. `--data-seed` alone keeps the random start and changes the order of the text.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tools.demo_corpus import STDLIB, build_corpus
from tools.train_demo import BATCH, CONTEXT, REPOSITORY, SEED, batches, encode, halved, new_model, train

DEMO = REPOSITORY / "assets" / "demo"

README = """\
# A small trained {family} model

`{name}`, {parameters:,} parameters, trained by `python -m tools.train_small {family}` ({steps:,} steps of {tokens:,}
tokens, seed {seed}, final training loss {loss:.2f}) on the text of Python's standard library, with the demo model's
tokenizer. It exists so that the tests meet trained weights of this family. Text and weights: PSF-2.0, see
`LICENSE-PSF-2.0.txt`; assets/demo/README.md describes the text.
"""


def gemma(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Return a model with a tied head, embedding times sqrt(d), gain 1 + w, one key head for all query heads."""
    return small_model("gemma", tokenizer)


def phi3(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Return a model with fused qkv and gate_up, one key head per query head, and an untied head."""
    return small_model("phi3", tokenizer, tied=False)


def small_model(
    family: str, tokenizer: PreTrainedTokenizerFast, width: int = 128, tied: bool = True, layers: int = 2
) -> PreTrainedModel:
    """Return a "gemma", "phi3" or "llama" model with random weights and four heads."""
    shape = _shape(tokenizer, width) | {"tie_word_embeddings": tied, "num_hidden_layers": layers}
    if family == "gemma":
        return GemmaForCausalLM(GemmaConfig(num_key_value_heads=1, **shape))
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **shape))
    del shape["head_dim"]
    return Phi3ForCausalLM(Phi3Config(num_key_value_heads=4, **shape))


def gpt2(tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Return a model with LayerNorm, learned positions, transposed fused qkv, an MLP without a gate, a tied head."""
    shape = _shape(tokenizer, 128)
    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=shape["hidden_size"],
            n_inner=shape["intermediate_size"],
            n_layer=shape["num_hidden_layers"],
            n_head=shape["num_attention_heads"],
            n_positions=shape["max_position_embeddings"],
            # With this little text dropout only slows learning, and the other families have none.
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **{name: shape[name] for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")},
        )
    )


def _shape(tokenizer: PreTrainedTokenizerFast, width: int) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": width // 4,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


FAMILIES = {"gemma": gemma, "phi3": phi3, "gpt2": gpt2, "llama": new_model}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, nargs="+", default=[SEED], help="several seeds write to OUT-SEED")
    parser.add_argument("--data-seed", type=int, help="seed of the order of the text; default: the seed")
    args = parser.parse_args()

    torch.set_num_threads(1)
    corpus = build_corpus()
    tokenizer: Any = AutoTokenizer.from_pretrained(DEMO)
    prose, source = encode(tokenizer, corpus.train_prose), encode(tokenizer, corpus.train_source)
    for seed in args.seed:
        out = args.out if len(args.seed) == 1 else args.out.with_name(f"{args.out.name}-{seed}")
        torch.manual_seed(seed)
        model = FAMILIES[args.family](tokenizer)
        started = time.monotonic()
        order = seed if args.data_seed is None else args.data_seed
        data = halved(batches(prose, source, order), args.steps)
        loss = train(model, data, args.steps, args.learning_rate)
        out.mkdir(parents=True, exist_ok=True)
        model.eval().to(torch.bfloat16).save_pretrained(out)
        tokenizer.save_pretrained(out)
        shutil.copyfile(STDLIB / "LICENSE.txt", out / "LICENSE-PSF-2.0.txt")
        values = {"family": args.family, "name": type(model).__name__, "steps": args.steps, "seed": seed, "loss": loss}
        count = sum(p.numel() for p in model.parameters())
        text = README.format(parameters=count, tokens=BATCH * CONTEXT, **values)
        (out / "README.md").write_text(text, encoding="utf-8")
        print(f"{out}: loss {loss:.2f}, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
