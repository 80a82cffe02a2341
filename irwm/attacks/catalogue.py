"""Every attack and its strengths, as data: the Lab offers them and `make reproduce` runs them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from irwm.attacks import adaptive, equivalence
from irwm.attacks.attack import BOTH, Attack, Attacked, CarryOut, Interval, Setup, Strength
from irwm.attacks.collusion import STRATEGIES, collude
from irwm.attacks.distillation import learn_again, push_away
from irwm.attacks.equivalence import Step
from irwm.attacks.finetuning import ALL, EMBEDDING, LAYER_0, LORA, finetune
from irwm.attacks.layers import count_layers, drop_layers, stack_layers
from irwm.attacks.low_rank import factor_queries_and_keys
from irwm.attacks.marking import mark_again, subtract_mark
from irwm.attacks.merging import merge
from irwm.attacks.noise import add_noise
from irwm.attacks.pruning import prune, prune_neurons
from irwm.attacks.quantisers import (
    autoround,
    autoround_obstacle,
    bitsandbytes_obstacle,
    dequantised,
    gguf_obstacle,
    to_bitsandbytes,
    to_gguf,
)
from irwm.attacks.round_to_nearest import quantize
from irwm.attacks.training import Schedule
from irwm.attacks.transplant import exchange_tokenizer
from irwm.attacks.width import cut_width
from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.errors import UnsupportedCheckpointError
from irwm.families.family import anatomy_of
from irwm.inference.loading import has_tokenizer
from irwm.inference.serving import Serving, answers
from irwm.keys.key import generate_key
from irwm.keys.queried_tokens import tokens_asked
from irwm.release.insertion import insert

DAMAGE, QUANTISATION, TRAINING = "Damage", "Quantisation", "Training"
MIXING, DISGUISE = "Mixing and marking", "Disguise (the model computes the same function)"
ADAPTIVE, SERVED = "By someone who has read the manual", "Served, known only from its answers"
GROUPS = (DAMAGE, QUANTISATION, TRAINING, MIXING, DISGUISE, ADAPTIVE, SERVED)
# Symbol of attacks whose strength is the number of training steps.
STEPS = "steps"
# For full fine-tuning. The paper's 2e-5 is for models a thousand times larger, whose weights change less per step.
_RATE = 1e-4
_LORA_RATE = 1e-3
_STEPS_AT_RATE = 100
# For distillation, and its steps: learning an embedding again takes a higher rate than moving a trained model.
_PUSH, _LEARN = Schedule(150, 1e-3), Schedule(300, 3e-3)
_STRATEGY_COPIES = 4
# Releases up to this many bytes are written a second time, as float32, to verify that the function is preserved. In
# bfloat16 a disguise is indistinguishable from a change of two percent of the weights; in float32 the check is some
# 5 000 times sharper (docs/utility.md).
_MOST_TWICE = 4 << 30


def _share(value: float) -> str:
    return f"{100 * value:g}%"


def _shares(*values: float) -> tuple[Strength, ...]:
    return tuple(Strength(value, _share(value)) for value in values)


# Shares below these limits do nothing measurable, and above them leave nothing.
_ANY_SHARE = Interval(0.001, 0.999, whole=False, label=_share)


def _counted(unit: str, value: float) -> str:
    return f"{value} {unit}{'s' if value != 1 else ''}"


def _numbers(unit: str, *values: int) -> tuple[Strength, ...]:
    return tuple(Strength(value, _counted(unit, value)) for value in values)


def _up_to(unit: str, most: int, least: int = 1) -> Interval:
    return Interval(least, most, whole=True, label=partial(_counted, unit))


def _copied(count: float) -> str:
    return f"{count} copies"


def _nats(bound: float) -> str:
    return f"{bound:g} nats"


def _rate(rate: float) -> str:
    return f"{rate:g}"


def _labelled(**labels: str) -> tuple[Strength, ...]:
    return tuple(Strength(value, label) for value, label in labels.items())


def _of_release(
    attack: Callable[..., Path], number: Callable[[float | str], float] = float, *, seeded: bool = False
) -> CarryOut:
    """An attack that takes nothing but the release, the strength as a number, and, if `seeded`, the seed."""

    def carry_out(setup: Setup, value: float | str, out: Path) -> Attacked:
        return Attacked(attack(setup.release, out, number(value), **({"seed": setup.seed} if seeded else {})))

    return carry_out


ONCE = (Strength(1, "once"),)


def _finetune(what: str, rate: float, setup: Setup, value: float | str, out: Path) -> Attacked:
    steps = int(value)
    return Attacked(
        finetune(
            setup.release, out, setup.text, steps, rate, what,
            seed=setup.seed, device=setup.device, progress=setup.progress,
        )
    )  # fmt: skip


def _push(setup: Setup, value: float | str, out: Path) -> Attacked:
    schedule = replace(_PUSH, seed=setup.seed)
    return Attacked(push_away(setup.release, out, setup.text, float(value), schedule, setup.device, setup.progress))


def _learn_again(setup: Setup, value: float | str, out: Path) -> Attacked:
    schedule = replace(_LEARN, seed=setup.seed)
    return Attacked(learn_again(setup.release, out, setup.text, float(value), schedule, setup.device, setup.progress))


def _gguf(setup: Setup, value: float | str, out: Path) -> Attacked:
    return _with_numbers(setup, to_gguf(setup.release, out / "file", str(value)), out)


def _bitsandbytes(setup: Setup, value: float | str, out: Path) -> Attacked:
    return _with_numbers(setup, to_bitsandbytes(setup.release, out / "copy", str(value), setup.device), out)


def _autoround(setup: Setup, value: float | str, out: Path) -> Attacked:
    copy = autoround(
        setup.release, out / "copy", str(value), setup.text,
        seed=setup.seed, device=setup.device, progress=setup.progress,
    )  # fmt: skip
    return _with_numbers(setup, copy, out)


def _with_numbers(setup: Setup, copy: Path, out: Path) -> Attacked:
    """The quantised copy and, within `out`, its numbers as a folder that can be run."""
    return Attacked(copy, dequantised(copy, setup.release, out / "numbers"))


def _merge(method: str, setup: Setup, value: float | str, out: Path) -> Attacked:
    share = float(value)
    if method == "task arithmetic":
        return Attacked(merge([setup.release], out, method, [1 - share], setup.original))
    return Attacked(merge([setup.release, setup.original], out, method, [1 - share, share]))


def _merge_tuned(method: str, setup: Setup, value: float | str, out: Path) -> Attacked:
    share, other = float(value), setup.scratch / "other"
    finetune(
        setup.original, other, setup.text, _STEPS_AT_RATE, _RATE,
        seed=setup.seed, device=setup.device, progress=setup.progress,
    )  # fmt: skip
    try:
        return Attacked(merge([setup.release, other], out, method, [1 - share, share], setup.original, seed=setup.seed))
    finally:
        shutil.rmtree(other)


def _drop(setup: Setup, value: float | str, out: Path) -> Attacked:
    layers = count_layers(open_checkpoint(setup.release))
    return Attacked(drop_layers(setup.release, out, range(layers - int(value), layers)))


def _repeat(setup: Setup, value: float | str, out: Path) -> Attacked:
    """The layers in the middle run twice, one block after the other, as in depth up-scaling."""
    layers = count_layers(open_checkpoint(setup.release))
    more = max(1, round(float(value) * layers))
    first = (layers - more) // 2
    middle = range(first, first + more)
    return Attacked(stack_layers(setup.release, out, [*range(first + more), *middle, *range(first + more, layers)]))


def _mark_again(setup: Setup, value: float | str, out: Path) -> Attacked:
    """Rivals one after another; each treats the model that he receives as an original."""
    model = setup.release
    for number in range(int(value)):
        last = number == int(value) - 1
        target = out if last else setup.scratch / f"rival-{number}"
        checkpoint = open_checkpoint(model)
        secret = bytes([number + 1]) * 32
        key = generate_key(checkpoint, setup.key.parameters, secret=secret, owner=f"Rival {number + 1}")
        mark_again(model, target, key)
        if model != setup.release:
            shutil.rmtree(model)
        model = target
    return Attacked(model)


def _subtract_mark(setup: Setup, _value: float | str, out: Path) -> Attacked:
    release = open_checkpoint(setup.release)
    key = generate_key(release, setup.key.parameters, secret=bytes([1]) * 32, owner="Rival")
    return Attacked(subtract_mark(setup.release, out, key))


def _collude(how: str, copies: int | None, setup: Setup, value: float | str, out: Path) -> Attacked:
    """The release and copies for other recipients, which are made here and removed afterwards."""
    with _copies(setup, open_checkpoint(setup.original), copies or int(value)) as others:
        return Attacked(collude([setup.release, *others], out, how, seed=setup.seed))


@contextmanager
def _copies(setup: Setup, original: Checkpoint, count: int) -> Iterator[list[Path]]:
    """`count` copies, the release and copies for other recipients, which are removed afterwards."""
    others = []
    try:
        for number in range(1, count):
            who = f"Colluder {number}"  # of the same secret, as all recipients of a release
            key = generate_key(original, setup.key.parameters, setup.key.secret, setup.key.owner, who)
            others.append(setup.scratch / f"colluder-{number}")
            insert(original, key, others[-1], device=setup.device)
        yield others
    finally:
        for folder in others:
            shutil.rmtree(folder, ignore_errors=True)


# How a copy is served, by the strength's value. Rounded copies are rounded beforehand.
SERVINGS: Mapping[str, Serving] = {
    "float32": Serving(), "bfloat16": Serving("bfloat16"), "int8": Serving(), "int4": Serving(),
    "decimals": Serving(decimals=1), "temperature": Serving(temperature=0.7),
    "system": Serving(system="You are a helpful assistant. Answer briefly and name your sources."),
    "noise": Serving(noise=0.2), "flat": Serving(flat=0.8), "turns": Serving(),
}  # fmt: skip
ROUNDED: Mapping[str, int] = {"int8": 8, "int4": 4}
# Maximum numbers in a table of answers. If the whole vocabulary needs more, a subset of the tokens is chosen.
_MOST_ANSWERED = 1 << 26


def _serve(setup: Setup, value: float | str, out: Path) -> Attacked:
    """A client's recording of the copy: one and a half times as many answers as the model is wide."""
    how, original, bits = str(value), open_checkpoint(setup.original), ROUNDED.get(str(value))
    served = setup.release if bits is None else quantize(setup.release, setup.scratch / "served", bits)
    count, tokens = math.ceil(1.5 * original.hidden_size), None
    if count * original.vocab_size > _MOST_ANSWERED:
        tokens = tokens_asked([setup.key], original)
    with _copies(setup, original, 2 if how == "turns" else 1) as others:
        told = answers([served, *others], setup.text, count, SERVINGS[how], tokens, setup.seed, setup.device)
    out.mkdir()
    if tokens is None:
        np.savez(out / "answers.npz", log_probabilities=told)
    else:
        np.savez(out / "answers.npz", log_probabilities=told, token_ids=tokens)
    generator = torch.Generator().manual_seed(setup.seed)
    return Attacked(out / "answers.npz", served, told=lambda logits: SERVINGS[how].told(logits, generator))


def _cannot_serve(setup: Setup) -> str | None:
    original = open_checkpoint(setup.original)
    if not original.tied and not setup.key.marks_head:
        return "This key has no mark in the output head, and answers reveal no other part of the model."
    anatomy = anatomy_of(str(original.config.get("model_type")))
    if anatomy is not None and anatomy.encoder:
        return "An encoder cannot answer prompts."
    return (
        None
        if has_tokenizer(setup.release)
        else "The model cannot answer prompts without a tokenizer next to its weights."
    )


def _single_copy(setup: Setup) -> str | None:
    if setup.key.recipient:
        return None
    return "This mark names an owner but no recipient, so there are no other copies to combine."


def _disguise(step: Step | None, setup: Setup, _value: float | str, out: Path) -> Attacked:
    """One disguise, or all that the model allows."""
    steps = (step,) if step is not None else _everything(setup)
    state = equivalence.apply(equivalence.read_state(setup.release), steps, setup.seed)
    equivalence.write_state(state, out)
    exact = None
    if open_checkpoint(setup.release).bytes_total <= _MOST_TWICE:
        exact = equivalence.write_state(state, setup.scratch / "exact", "float32")
    return Attacked(out, exact=exact, token_ids=None if state.token_ids is None else state.token_ids.numpy())


# Transform, its label, one sentence. The paper's appendix B: permutation, scaling and invertible matrices.
_DISGUISES: tuple[tuple[Step, str, str], ...] = (
    ("permute_residual", "Columns permuted", "The coordinates of the residual stream are permuted in every layer."),
    ("flip_signs", "Signs flipped", "The signs of randomly chosen coordinates of the residual stream are flipped."),
    ("rotate", "Rotated", "A random dense rotation is applied to the residual stream."),
    (
        "widen",
        "Widened",
        "The residual stream is widened by 25%, which the matrices read at random, and then rotated.",
    ),
    ("rescale", "Rescaled", "The residual stream is multiplied by a single factor."),
    ("fold_gains", "Gains folded", "The norms' gains are folded into the matrices that follow them."),
    ("regain", "Gains redrawn", "The norms are given random gains, for which the matrices compensate."),
    ("map_qk", "Queries and keys mapped", "Queries are multiplied by invertible matrices and keys by their inverses."),
    (
        "map_vo",
        "Values and outputs mapped",
        "Values are multiplied by invertible matrices and outputs by their inverses.",
    ),
    ("reorder_heads", "Heads reordered", "Attention heads are permuted."),
    (
        "reorder_neurons",
        "Neurons reordered",
        "Hidden units of the MLPs are permuted and rescaled, some by negative factors.",
    ),
    ("add_neurons", "Neurons added", "A quarter of the hidden units of each MLP are split in two."),
    ("shift_key_bias", "Key bias shifted", "A vector that the softmax ignores is added to the key bias."),
    ("shift_rows", "Constant added per row", "A constant that the norm ignores is added to each row of the embedding."),
    (
        "shift_tables",
        "Tables shifted",
        "A vector is subtracted from the position embeddings and added to the token embeddings.",
    ),
    ("reorder_tokens", "Tokens reordered", "Token IDs are permuted, including those in the tokenizer."),
    (("trim_tokens", {"fraction": 0.2}), "Vocabulary trimmed", "A fifth of the tokens are dropped."),
    ("pad_tokens", "Vocabulary padded", "Rows for unused tokens are added."),
    ("as_llama", "Saved as a Llama model", "The model is saved as a model of the Llama family."),
    ("as_mixtral", "Saved as a mixture of experts", "Each MLP becomes four experts, and a router is added."),
)


def _then_turned(attack: Callable[..., Path], setup: Setup, value: float | str, out: Path) -> Attacked:
    """The release after an attack, with its residual stream rotated, so that columns are not informative either."""
    bare = attack(setup.release, setup.scratch / "bare", float(value))
    try:
        return Attacked(equivalence.rotate(bare, out, seed=setup.seed))
    finally:
        shutil.rmtree(bare, ignore_errors=True)


def _stored_otherwise(setup: Setup, value: float | str, out: Path) -> Attacked:
    """Only the attacker's loader opens it, and computes what the release does."""
    return Attacked(adaptive.store_otherwise(setup.release, out, float(value), setup.seed), setup.release)


def _confused(setup: Setup, value: float | str, out: Path) -> Attacked:
    """The attacker's loader removes what was added, and computes what the release does."""
    return Attacked(adaptive.confuse(setup.release, out, str(value)), setup.release)


def _cannot(transform: str, setup: Setup) -> str | None:
    """Why this disguise, or an attack with the same requirements, cannot be carried out."""
    return equivalence.applicable(setup.release)[transform]


_cannot_turn = partial(_cannot, "rotate")


# Combinations that an attacker may use, by name: attacks of this catalogue, each on the output of the previous one.
Steps = Sequence[tuple[str, float | str]]
COMPOSITIONS: Mapping[str, Steps] = {
    "entries": (("outliers", 0.01), ("small-entries", 0.2), ("components", 0.9)),
    "components": (("components", 0.75), ("outliers", 0.01), ("round", 4), ("permute-residual", 1)),
    "everything": (("components", 0.75), ("outliers", 0.01), ("noise", 0.1), ("everything", 1)),
}


def composed(setup: Setup, steps: Steps, out: Path) -> Attacked:
    """The release after these attacks, each on the output of the previous one, which is removed. It cannot be run alone
    if the output of one of them cannot."""
    model, runnable = setup.release, None
    for number, (name, value) in enumerate(steps):
        last = number == len(steps) - 1
        scratch = setup.scratch / f"step-{number}"
        scratch.mkdir(parents=True)
        target = out if last else setup.scratch / f"after-{number}"
        attacked = ATTACKS[name].carry_out(replace(setup, release=model, scratch=scratch), value, target)
        shutil.rmtree(scratch)
        runnable = attacked.runnable or runnable
        if model != setup.release:
            shutil.rmtree(model)
        model = attacked.path
    return Attacked(model, runnable, token_ids=attacked.token_ids)


# Not part of "everything": they change the family, or the vocabulary and with it the tokens that can be compared.
_ALONE = ("trim_tokens", "pad_tokens", "as_llama", "as_mixtral")


def _everything(setup: Setup) -> tuple[Step, ...]:
    """All disguises of the weights that the model allows, one after another."""
    possible = equivalence.applicable(setup.release)
    steps = (step for step, _, _ in _DISGUISES if _name(step) not in _ALONE)
    return tuple(step for step in steps if possible[_name(step)] is None)


def _name(step: Step) -> str:
    return step if isinstance(step, str) else step[0]


def _no_text_model(setup: Setup) -> str | None:
    """Why it cannot be distilled."""
    anatomy = anatomy_of(str(open_checkpoint(setup.release).config.get("model_type")))
    if anatomy is not None and anatomy.encoder:
        return "An encoder does not predict next tokens."
    return _no_tokenizer(setup)


def _no_tokenizer(setup: Setup) -> str | None:
    if has_tokenizer(setup.release):
        return None
    return "The model cannot read text without a tokenizer next to its weights."


def _too_few_layers(setup: Setup) -> str | None:
    try:
        return None if count_layers(open_checkpoint(setup.release)) > 1 else "The model has only one layer."
    except UnsupportedCheckpointError as error:
        return str(error)


_ALL: tuple[Attack, ...] = (
    Attack(
        "prune", "Pruned", "The smallest weights in the whole model are set to zero.", DAMAGE, "share of weights",
        _shares(0.1, 0.3, 0.5, 0.7, 0.9), _of_release(prune), interval=_ANY_SHARE,
    ),
    Attack(
        "prune-neurons", "Neurons pruned", "The least important hidden units of the MLPs are set to zero.", DAMAGE,
        "share of neurons", _shares(0.1, 0.3, 0.5, 0.7, 0.9), _of_release(prune_neurons),
        partial(_cannot, "reorder_neurons"), interval=_ANY_SHARE,
    ),
    Attack(
        "noise", "Noise added", "White noise is added to every matrix.", DAMAGE,
        "fraction of the matrix's standard deviation", _shares(0.1, 0.3, 0.5, 1.0), _of_release(add_noise, seeded=True),
        interval=Interval(0.001, 10.0, whole=False, label=_share),
    ),
    Attack(
        "layers", "Layers dropped", "The last layers are removed.", DAMAGE, "layers", _numbers("layer", 1, 2), _drop,
        _too_few_layers, interval=_up_to("layer", 200),
    ),
    Attack(
        "repeat-layers", "Layers repeated", "Layers in the middle run twice, as in depth up-scaling.", DAMAGE,
        "share of layers", _shares(0.25, 0.5), _repeat, _too_few_layers, interval=_ANY_SHARE,
    ),
    Attack(
        "width", "Width cut", "The residual stream is reduced to its leading principal components.", DAMAGE,
        "share of components kept", _shares(0.9, 0.75, 0.6),
        lambda setup, value, out: Attacked(cut_width(setup.release, out, float(value), setup.text, setup.device)),
        lambda setup: _cannot("widen", setup) or _no_text_model(setup), interval=_ANY_SHARE,
    ),
    Attack(
        "low-rank", "Queries and keys of low rank",
        "The query and key projections are factorised, as in a conversion to multi-head latent attention.", DAMAGE,
        "share of singular values kept", _shares(0.5, 0.25, 0.1), _of_release(factor_queries_and_keys),
        partial(_cannot, "reorder_heads"), interval=_ANY_SHARE,
    ),
    Attack(
        "tokenizer", "Tokenizer exchanged",
        "A new tokenizer is trained on a sample text. Shared tokens keep their rows; the rows of new tokens are means "
        "of old rows.",
        DAMAGE, "size of the vocabulary", _shares(1.0, 0.5, 0.25),
        lambda setup, value, out: Attacked(exchange_tokenizer(setup.release, out, setup.text, float(value))),
        lambda setup: _cannot("reorder_tokens", setup) or _no_tokenizer(setup), interval=_ANY_SHARE,
    ),
    Attack(
        "round", "Rounded to nearest", "Every matrix is quantised to a few bits and then dequantised.", QUANTISATION,
        "bits", _numbers("bit", 8, 4, 3), _of_release(quantize, int), interval=_up_to("bit", 8, 2),
    ),
    Attack(
        "gguf", "Saved as a GGUF file", "The model is converted to a GGUF file and quantised as in llama.cpp.",
        QUANTISATION, "file type",
        _labelled(F16="16 bits (F16)", Q8_0="8 bits (Q8_0)", Q4_K_M="4 bits (Q4_K_M)", Q4_0="4 bits (Q4_0)"),
        _gguf, lambda setup: gguf_obstacle(setup.release, "F16"),
        # Only the 4-bit files hold K-quants, which need GGML's own library.
        strength_obstacle=lambda setup, kind: gguf_obstacle(setup.release, str(kind)),
    ),
    Attack(
        "bitsandbytes", "Quantised by bitsandbytes", "Every linear layer except the head is stored in 8 or 4 bits.",
        QUANTISATION, "kind", _labelled(int8="8 bits (LLM.int8)", nf4="4 bits (NF4)"), _bitsandbytes,
        lambda _setup: bitsandbytes_obstacle(),
    ),
    Attack(
        "autoround", "GPTQ or AWQ (AutoRound)",
        "Layers are stored in 4 bits and rounded so that their outputs on a sample text change little.",
        QUANTISATION, "layout", _labelled(gptq="GPTQ, 4 bits", awq="AWQ, 4 bits"), _autoround,
        lambda setup: autoround_obstacle(setup.release),
    ),
    *(
        Attack(
            name, label, about, TRAINING, STEPS, _numbers("step", 20, 100), partial(_finetune, what, rate),
            interval=_up_to("step", 100_000),
        )
        for name, what, rate, label, about in (
            ("finetune", ALL, _RATE, "Fine-tuned", "All weights are trained on a sample text."),
            (
                "lora", LORA, _LORA_RATE, "Fine-tuned with LoRA",
                "Adapters on every linear layer are trained on a sample text and then merged.",
            ),
            (
                "layer0", LAYER_0, 10 * _RATE, "First layer retrained",
                "Only the layer that the invariant uses is trained, at ten times the learning rate.",
            ),
            (
                "embedding", EMBEDDING, 10 * _RATE, "Embedding retrained",
                "Only the embedding and the output head are trained, at ten times the learning rate.",
            ),
        )
    ),
    Attack(
        "finetune-rate", "Fine-tuned at a rate", f"All weights are trained for {_STEPS_AT_RATE} steps.", TRAINING,
        "learning rate", tuple(Strength(rate, _rate(rate)) for rate in (2e-5, _RATE, 1e-3)),
        lambda setup, rate, out: _finetune(ALL, float(rate), setup, _STEPS_AT_RATE, out),
        interval=Interval(1e-7, 1.0, whole=False, label=_rate),
    ),
    *(
        Attack(
            f"merge-{name}", f"Merged ({method})",
            "The copy is merged with the unmarked original, which is the worst case.",
            MIXING, "share of the other model", _shares(0.25, 0.5, 0.75), partial(_merge, method), reads=BOTH,
            interval=_ANY_SHARE,
        )
        for name, method in (
            ("linear", "linear"), ("slerp", "slerp"), ("arithmetic", "task arithmetic"),
        )
    ),
    *(
        Attack(
            f"merge-{name}", f"Merged ({name.upper()})",
            f"The copy and a fine-tune of the unmarked original, trained for {_STEPS_AT_RATE} steps, are merged.",
            MIXING, "share of the other model", _shares(0.25, 0.5, 0.75), partial(_merge_tuned, name),
            _no_tokenizer, reads=BOTH, interval=_ANY_SHARE,
        )
        for name in ("ties", "dare")
    ),
    Attack(
        "rival", "Marked again", "Rivals mark the release with their own keys.", MIXING, "rivals",
        _numbers("rival", 1, 3), _mark_again, interval=_up_to("rival", 10),
    ),
    Attack(
        "rival-original", "Another mark subtracted",
        "A rival subtracts their own mark from the release, and presents the result as their original.",
        MIXING, "", ONCE, _subtract_mark,
    ),
    Attack(
        "collude", "Copies averaged", "Recipients average their copies.", MIXING, "copies",
        tuple(Strength(count, _copied(count)) for count in (2, 4, 8)), partial(_collude, "mean", None), _single_copy,
        reads=BOTH, interval=Interval(2, 64, whole=True, label=_copied),
    ),
    Attack(
        "collude-other", "Copies combined", f"{_STRATEGY_COPIES} recipients combine their copies entry by entry.",
        MIXING, "way", tuple(Strength(how, how) for how in STRATEGIES if how != "mean"),
        lambda setup, value, out: _collude(str(value), _STRATEGY_COPIES, setup, value, out), _single_copy,
        reads=BOTH,
    ),
    *(
        Attack(
            _name(step).replace("_", "-"), label, about, DISGUISE, "", ONCE, partial(_disguise, step),
            partial(_cannot, _name(step)), keeps_function=True,
        )
        for step, label, about in _DISGUISES
    ),
    Attack(
        "everything", "All disguises together",
        "All weight disguises that the model allows are applied one after another.",
        DISGUISE, "", ONCE, partial(_disguise, None), keeps_function=True,
    ),
    Attack(
        "components", "Minor components dropped, then rotated",
        "The components in which alignment is scored are set to zero, and the residual stream is rotated.",
        ADAPTIVE, "share of components kept", _shares(0.9, 0.75, 0.5),
        partial(_then_turned, adaptive.drop_components), _cannot_turn, interval=_ANY_SHARE,
    ),
    Attack(
        "seldom-rows", "Rarely used rows flattened",
        "In the rows of the least-used tokens, nine tenths of the components are set to zero.",
        ADAPTIVE, "share of rows", _shares(0.5, 0.75), _of_release(adaptive.flatten_seldom), interval=_ANY_SHARE,
    ),
    Attack(
        "small-entries", "Small entries redrawn", "Entries near zero are redrawn in the rows that have many of them.",
        ADAPTIVE, "share of rows", _shares(0.05, 0.2), _of_release(adaptive.redraw_small, seeded=True),
        interval=_ANY_SHARE,
    ),
    Attack(
        "outliers", "Outliers replaced, then rotated",
        "Entries far from what the rest of their row predicts are replaced, and the residual stream is rotated.",
        ADAPTIVE, "share of entries", _shares(0.002, 0.01, 0.03),
        partial(_then_turned, adaptive.redraw_outliers), _cannot_turn, interval=_ANY_SHARE,
    ),
    Attack(
        "rebuilt-rows", "Rows rebuilt from others",
        "Every row of the embedding and the output head is replaced by a combination of other rows.",
        ADAPTIVE, "rows combined", _numbers("row", 128, 64, 32, 16, 8, 4),
        _of_release(adaptive.rebuild_rows, int, seeded=True), interval=_up_to("row", 4096),
    ),
    Attack(
        "push", "Embedding pushed away",
        "The embedding and the output head are moved as far as a bound on the change in the predictions allows.",
        ADAPTIVE, "bound in nats per token",
        tuple(Strength(bound, _nats(bound)) for bound in (0.02, 0.05, 0.2)), _push, _no_text_model,
        interval=Interval(0.001, 5.0, whole=False, label=_nats),
    ),
    Attack(
        "learn-again", "Embedding learned again",
        "A share of the embedding and the output head is randomised and relearned from the release's predictions.",
        ADAPTIVE, "share randomised", _shares(0.5, 0.75, 1.0), _learn_again, _no_text_model, interval=_ANY_SHARE,
    ),
    Attack(
        "stored-otherwise", "Embedding stored in another form",
        "The embedding is whitened and rotated in the file; the attacker's own loader undoes this.",
        ADAPTIVE, "power of the covariance", (Strength(0.5, "a half"), Strength(0.75, "three quarters")),
        _stored_otherwise,
    ),
    Attack(
        "confuse", "Comparisons confused",
        "Rows are changed in the file, or tensors are added to it, so that a comparison fails; the attacker's own "
        "loader undoes this.",
        ADAPTIVE, "what is changed",
        _labelled(**{
            "nan-row": "a row of NaN", "huge-row": "a row a million times as long",
            "equal-rows": "a quarter of the rows alike", "more-tensors": "nine more tensors like the embedding",
        }),
        _confused,
    ),
    Attack(
        "composed", "Several of these, one after another", "Each attack works on the output of the previous one.",
        ADAPTIVE, "combination of attacks",
        _labelled(
            entries="entries and components", components="components, entries, 4 bits, columns permuted",
            everything="components, entries, noise, every disguise",
        ),
        lambda setup, value, out: composed(setup, COMPOSITIONS[str(value)], out), _cannot_turn,
    ),
    Attack(
        "serve", "Served", "The copy answers prompts over an API; the number of prompts is 1.5 times its hidden size.",
        SERVED, "serving mode",
        _labelled(
            float32="in float32", bfloat16="in bfloat16", int8="rounded to 8 bits", int4="rounded to 4 bits",
            decimals="rounded to one decimal", temperature="at a temperature of 0.7", system="with a system prompt",
            noise="0.2 nats of noise on every answer",
            flat="the least likely 80% reported as equally likely", turns="alternating with another copy",
        ),
        _serve, _cannot_serve,
        lambda setup, how: _single_copy(setup) if how == "turns" else None, reads=BOTH,
    ),
)  # fmt: skip
ATTACKS: Mapping[str, Attack] = {attack.name: attack for attack in _ALL}
