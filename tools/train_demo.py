"""Train the demo model on the text of Python's own standard library and write its folder.

    python -m tools.train_demo

It needs one CPU thread and about half an hour, and downloads nothing. This script also writes assets/demo/README.md,
which describes the result.
"""

from __future__ import annotations

import argparse
import math
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from irwm.inference.text import WINDOW
from tools.demo_corpus import STDLIB, Corpus, build_corpus
from tools.perplexity import measure

SEED = 20240611
VOCABULARY = 4096
SPECIALS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
CONTEXT = 512
BATCH = 4  # windows of CONTEXT tokens; for equal time, smaller batches learn more here than larger ones
SOURCE_PARTS = 3  # one pass reads all prose but a third of the source code, since there is much more code
REPOSITORY = Path(__file__).resolve().parents[1]
# Text for measurements in the app and the tests: prose that the demo model was not trained on.
BUNDLED_TEXT = REPOSITORY / "irwm" / "running" / "heldout.txt"

README = """\
# Demo model

A small Llama, trained from random weights by `tools/train_demo.py` so that IRWM Studio has a real model to work on
without a download. It continues text in the style of Python's documentation, in sentences that look right and mean
little. It provides trained weights and a perplexity that can get worse; it is not a source of facts.

| | |
|---|---|
| Architecture | `LlamaForCausalLM`, {parameters:,} parameters, bfloat16, one `model.safetensors` |
| Geometry | hidden 256, 4 layers, MLP 768, 8 heads of 32, 4 key/value heads, context {context}, output head not tied |
| Tokenizer | byte-level BPE, {vocabulary} entries, trained on the training half of the text |
| Training prose | {prose_documents} documents, {prose_tokens:,} tokens |
| Training source code | {source_documents} modules, {source_tokens:,} tokens, a third read per pass over the prose |
| Training | {steps:,} steps of {batch_tokens:,} tokens, AdamW, peak learning rate {learning_rate:g}, seed {seed} |
| Time | {minutes:.0f} minutes on one CPU thread |
| Embedding rows still as drawn | {untouched} of {vocabulary}: their tokens were never training inputs |

## Perplexity

**{perplexity:.2f}** on `irwm/inference/heldout.txt` ({tokens:,} tokens with the leading `<s>`, {bytes:,} bytes),
measured on the saved bfloat16 checkpoint with float32 arithmetic, {window} tokens at a time:

    python -m tools.perplexity assets/demo irwm/inference/heldout.txt

With windows of the full {context} tokens (`--window {context}`) it is {perplexity_full:.2f}. On as much of the prose
the model was trained on it is {perplexity_seen:.2f} ({window} tokens at a time).

## The text

Everything comes from the standard library of the interpreter that ran the script, here Python {python}: the
docstrings of its modules, classes and functions, the `help()` topics of `pydoc_data`, and the modules' source code.
Tests, IDLE, codec tables and modules under a licence other than Python's own are left out.

The text was split: docstrings follow their signatures, and a paragraph that occurs several times is kept once.
The documents are divided by a hash of their names. `heldout.txt` holds the prose of those set aside; their source
code is set aside as well, and no paragraph of `heldout.txt` occurs in the training prose.

## Reproduce

    python -m tools.train_demo --steps {steps} --learning-rate {learning_rate:g}

needs Python 3.11 and this repository's requirements. Another patch release of Python has a
slightly different library, and another processor rounds differently, so expect a perplexity close to the one above
rather than the same bytes.

## Licence

The text belongs to the Python Software Foundation and is used and passed on under the PSF License Agreement (SPDX:
PSF-2.0); `LICENSE-PSF-2.0.txt` is that agreement, with the copyright notice. `heldout.txt` is an excerpt of the text,
changed as described above. The weights and the tokenizer, made from the text, are offered under PSF-2.0 too.
"""


def train_tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on the training half only, with a Llama's special tokens at ids 0 to 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.train_prose + corpus.train_source, trainer)
    bos = SPECIALS["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=CONTEXT, clean_up_tokenization_spaces=False, **SPECIALS
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return a small Llama with all features of a large one: grouped key/value heads, gated MLP, untied output head."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerBase, documents: list[str]) -> list[np.ndarray]:
    """Encode each document as <s> ... </s>."""
    encoded = tokenizer(documents, verbose=False)["input_ids"]
    return [np.array([*ids, tokenizer.eos_token_id], dtype=np.int64) for ids in encoded]


def batches(prose: list[np.ndarray], source: list[np.ndarray], seed: int = SEED) -> Iterator[torch.Tensor]:
    """Yield BATCH x CONTEXT token windows endlessly: documents packed in random order, then windows shuffled."""
    rng = np.random.default_rng(seed)
    number = 0
    while True:
        documents = prose + source[number % SOURCE_PARTS :: SOURCE_PARTS]
        stream = np.concatenate([documents[i] for i in rng.permutation(len(documents))])
        windows = stream[: len(stream) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
        windows = windows[rng.permutation(len(windows))]
        for start in range(0, len(windows) - BATCH + 1, BATCH):
            yield torch.from_numpy(windows[start : start + BATCH])
        number += 1


def optimizer_for(model: PreTrainedModel, peak: float) -> torch.optim.AdamW:
    """Return AdamW without decay of norms and of the input embedding, whose unused rows would shrink towards zero."""
    rows = model.get_input_embeddings().weight
    spared = [p for p in model.parameters() if p.ndim < 2 or p is rows]
    decayed = [p for p in model.parameters() if p.ndim >= 2 and p is not rows]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": spared, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)


def rate(step: int, steps: int) -> float:
    """Return the learning rate's factor: linear warm-up over the first 5%, then a cosine down to zero."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def halved(data: Iterator[torch.Tensor], steps: int) -> Iterator[torch.Tensor]:
    """Yield half-length windows, which cost less per token; the last quarter trains the far positions as well."""
    for step, ids in enumerate(data):
        yield ids.reshape(BATCH * 2, CONTEXT // 2) if step < steps * 3 // 4 else ids


def train(
    model: PreTrainedModel, data: Iterator[torch.Tensor], steps: int, peak: float, *, report: bool = True
) -> float:
    """Run `steps` updates in place, and return the last step's loss.

    Args:
        peak: the learning rate after the warm-up.
        report: print the loss every 20 steps.
    """
    optimizer = optimizer_for(model, peak)
    started = time.monotonic()
    model.train()
    for step in range(steps):
        ids = next(data)
        for group in optimizer.param_groups:
            group["lr"] = peak * rate(step, steps)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if report and step % 20 == 19:
            print(f"step {step + 1}/{steps}  loss {loss.item():.3f}  {time.monotonic() - started:.0f} s", flush=True)
    last: float = loss.item()
    return last


def seen_sample(corpus: Corpus) -> str:
    """Return training prose sampled evenly from all documents, about as long as the held-out text."""
    wanted = sum(map(len, corpus.held_out_prose))
    every = math.ceil(sum(map(len, corpus.train_prose)) / wanted)
    return "\n".join(corpus.train_prose[::every])[:wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo model on the standard library's own text.")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "assets" / "demo")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    args = parser.parse_args()
    if sys.version_info[:2] != (3, 11):
        raise SystemExit("the text is from Python 3.11's standard library; run this script with Python 3.11")

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    corpus = build_corpus()
    tokenizer = train_tokenizer(corpus)
    prose, source = encode(tokenizer, corpus.train_prose), encode(tokenizer, corpus.train_source)
    print(f"training text: {sum(map(len, prose))} tokens of prose, {sum(map(len, source))} of source code", flush=True)
    model = new_model(tokenizer)
    initial = model.model.embed_tokens.weight.detach().clone()

    started = time.monotonic()
    train(model, halved(batches(prose, source), args.steps), args.steps, args.learning_rate)
    minutes = (time.monotonic() - started) / 60
    # A row without predictions had no gradient and no decay, so it still has its initial bits.
    untouched = int((model.model.embed_tokens.weight == initial).all(dim=1).sum())

    args.out.mkdir(parents=True, exist_ok=True)
    model.eval().to(torch.bfloat16).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    held_out = "\n".join(corpus.held_out_prose)
    BUNDLED_TEXT.write_text(held_out, encoding="utf-8")
    shutil.copyfile(STDLIB / "LICENSE.txt", args.out / "LICENSE-PSF-2.0.txt")
    # Measured from the files just written, so that the figures belong to the bfloat16 checkpoint.
    result = measure(args.out, held_out, WINDOW)
    full = measure(args.out, held_out, CONTEXT)["perplexity"]
    seen = measure(args.out, seen_sample(corpus), WINDOW)["perplexity"]
    readme = README.format(
        parameters=sum(p.numel() for p in model.parameters()),
        context=CONTEXT,
        vocabulary=VOCABULARY,
        prose_documents=len(prose),
        prose_tokens=sum(map(len, prose)),
        source_documents=len(source),
        source_tokens=sum(map(len, source)),
        steps=args.steps,
        batch_tokens=BATCH * CONTEXT,
        learning_rate=args.learning_rate,
        seed=SEED,
        minutes=minutes,
        untouched=untouched,
        perplexity_full=full,
        perplexity_seen=seen,
        python=platform.python_version(),
        **result,
    )
    (args.out / "README.md").write_text(readme, encoding="utf-8")
    print(f"held-out perplexity {result['perplexity']:.2f}, with full windows {full:.2f}, on seen prose {seen:.2f}")
    print(f"embedding rows never trained: {untouched}")


if __name__ == "__main__":
    main()
