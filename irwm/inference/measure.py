"""The cost of a change of a model: perplexity, divergence and agreement compared with the model it was made from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from irwm.errors import UnsupportedCheckpointError
from irwm.inference.loading import open_tokenizer
from irwm.inference.model_pair import Match, Pair, TokenMap, common_order, pair_of, states
from irwm.inference.reference import Progress, Reference, blocks, loss_of, losses, passages_of
from irwm.inference.text import exp_mean, token_list

Told = Callable[[torch.Tensor], torch.Tensor]
# The losses of neighbouring tokens are correlated. Sums over blocks of this length are nearly independent.
BLOCK = 32
_HEADLESS = "an encoder without an output head predicts nothing, so the last hidden states were compared"


@dataclass(frozen=True, slots=True)
class Utility:
    """A model compared with the reference, on the same text.

    Every standard error is of the mean over the text's tokens, from the sums of blocks of 32 neighbouring tokens, and
    None with fewer than 2 blocks. It measures how much another text of the same kind would change the figure, not
    other kinds of texts.

    Attributes:
        tokens: predicted tokens behind the perplexities; of an encoder, hidden states compared.
        perplexity_reference, perplexity: exp of the mean loss in nats; of a masked model the pseudo-perplexity. None
            for an encoder without an output head, which predicts nothing. Infinite if a model's outputs are not
            numbers.
        change: their ratio - 1.
        change_error: standard error of `change`, from the differences token by token.
        kl: mean over the predicted tokens of KL(reference || other), in nats, over the tokens that both models have:
            the reference's probabilities of these are made to sum to 1, the other model's are its own.
        kl_error: its standard error.
        top1: share of places at which both models predict the same token as the likeliest.
        compared: places behind `kl` and `top1`.
        similarity: mean cosine between the two models' last hidden states; encoders without an output head only.
        reason: why figures are missing or incomplete; empty otherwise.
    """

    tokens: int
    perplexity_reference: float | None = None
    perplexity: float | None = None
    change: float | None = None
    change_error: float | None = None
    kl: float | None = None
    kl_error: float | None = None
    top1: float | None = None
    compared: int = 0
    similarity: float | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; an infinite number, which JSON lacks, is the word "infinity"."""
        return {name: "infinity" if value == math.inf else value for name, value in asdict(self).items()}


def compare(
    reference: Reference,
    other_dir: str | Path,
    token_ids: TokenMap | None = None,
    progress: Progress | None = None,
    told: Told | None = None,
) -> Utility:
    """Measure another model on the reference's text.

    If the other model's vocabulary was reordered or padded, its tokens are found by their texts or by `token_ids`. If
    tokens of the text are gone, divergence and agreement are measured on the other tokens. For the perplexity the
    other model's own tokenizer encodes the whole text, and its loss is divided by the reference's number of tokens, so
    that both figures are about the same text. Without a tokenizer the perplexities are also about the other tokens.

    Args:
        reference: the result of `irwm.inference.reference`.
        other_dir: a model folder or GGUF file that transformers opens, of the reference's kind.
        token_ids: new id of each old one, -1 for removed tokens; needed if the tokenizer was not rewritten.
        progress: called with runs done, the total of runs, and a description of the step.
        told: for a served model: the transformation that its server applies to logits (m, v).

    Raises:
        UnsupportedCheckpointError: transformers cannot run it, it is of another kind, or its tokens cannot be matched.
        ParameterError: `token_ids` does not fit, or no tokens of the text are left.
        CheckpointError: it is not a readable checkpoint.
    """
    pair = pair_of(reference, Path(other_dir), token_ids)
    if reference.headless:
        return _encoder(pair, progress)
    after, kl, equal = [], [], []
    for expected, logits, passage in pair.run(progress):
        outputs = logits if told is None else told(logits)
        after.append(loss_of(outputs, passage.wanted))
        divergence, same = _distance(expected, outputs, pair.match)
        kl.append(divergence)
        equal.append(same)
    return _utility(pair, torch.cat(after), torch.cat(kl), torch.cat(equal))


def _distance(expected: torch.Tensor, outputs: torch.Tensor, matched: Match) -> tuple[torch.Tensor, torch.Tensor]:
    """KL divergence, float64 (m,), and whether the likeliest token is the same, bool (m,), of two tables of logits
    (m, columns). A row with a NaN or infinite logit has infinite divergence and no agreement."""
    there = (matched.new >= 0).nonzero().flatten()
    ours = slice(None) if matched.plain else there
    theirs = slice(None) if matched.plain else matched.new[there]
    divergence, equal = [], []
    for rows in blocks(*expected.shape):
        log_p = expected[rows].double()[:, ours].log_softmax(dim=1)
        log_q = outputs[rows].double().log_softmax(dim=1)[:, theirs]
        p = log_p.exp()
        each = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(dim=1)
        sound = torch.isfinite(outputs[rows]).all(dim=1) & torch.isfinite(expected[rows]).all(dim=1)
        # For equal distributions the sum is some -1e-17.
        divergence.append(torch.where(sound, each.clamp(min=0.0), torch.inf))
        equal.append(sound & (matched.new[expected[rows].argmax(dim=1)] == outputs[rows].argmax(dim=1)))
    return torch.cat(divergence), torch.cat(equal)


def _utility(pair: Pair, after: torch.Tensor, kl: torch.Tensor, equal: torch.Tensor) -> Utility:
    reference, reason = pair.reference, []
    before, compared = reference.losses, len(reference.losses)
    change, error = _mean(after - before, reference.parts)
    divergence, kl_error = _mean(kl, reference.parts)
    means = before.mean().item(), after.mean().item()
    if pair.gone:
        reason.append(
            f"{pair.gone} of the text's tokens are not in the model's vocabulary, so only the other {compared} "
            "positions were compared"
        )
        rewritten = _own_loss(pair)
        if rewritten is not None:
            before = pair.asked.losses
            means = before.mean().item(), rewritten / len(before)
            change, error = means[1] - means[0], None
            reason.append(
                "for the perplexity, the whole text was encoded with the model's own tokenizer, and its total loss was "
                "divided by the reference's number of tokens"
            )
    if not math.isfinite(means[1]):
        reason.insert(0, "the model's outputs are not finite numbers")
    ratio = exp_mean(change)
    return Utility(
        tokens=len(before),
        perplexity_reference=exp_mean(means[0]),
        perplexity=exp_mean(means[1]),
        change=ratio - 1,
        change_error=None if error is None or not math.isfinite(ratio) else ratio * error,
        kl=divergence,
        kl_error=kl_error,
        top1=equal.double().mean().item(),
        compared=compared,
        reason="; ".join(reason),
    )


def _own_loss(pair: Pair) -> float | None:
    """The whole text's loss in nats, as encoded by the other model's own tokenizer; None without a tokenizer."""
    asked = pair.asked
    try:
        tokenizer = open_tokenizer(pair.other)
    except UnsupportedCheckpointError:
        return None
    ids, _ = token_list(tokenizer, asked.text, len(asked.text) + 2, asked.masked)
    passages = passages_of(ids, pair.weights, tokenizer, asked.window, asked.seed)
    return losses(pair.weights, passages).sum().item()


def _encoder(pair: Pair, progress: Progress | None) -> Utility:
    ours, theirs, reason = *states(pair, progress), [_HEADLESS]
    order = common_order(ours, theirs)
    if order is not None:
        theirs = theirs[:, order]
        reason.append("the coordinates of the hidden states had been reordered; their order was restored")
    if pair.gone:
        reason.append(f"tokens left out because they are not in the model's vocabulary: {pair.gone}")
    cosines = torch.nn.functional.cosine_similarity(ours, theirs, dim=1)
    if not torch.isfinite(cosines).all():
        cosines = torch.where(torch.isfinite(cosines), cosines, 0.0)
        reason.insert(0, "the model's outputs are not finite numbers")
    return Utility(
        tokens=len(cosines),
        compared=len(cosines),
        similarity=cosines.mean().item(),
        reason="; ".join(reason),
    )


def _mean(values: torch.Tensor, parts: torch.Tensor) -> tuple[float, float | None]:
    """The mean of values (n,) and its standard error, from the sums of blocks of neighbouring ones."""
    mean = values.mean()
    if not math.isfinite(mean):
        return mean.item(), None
    rest, sums = values - mean, []
    for part in parts.unique():
        sums += [block.sum() for block in rest[parts == part].split(BLOCK)]
    if len(sums) < 2:
        return mean.item(), None
    every = torch.stack(sums)
    spread = (every.square().sum() * len(sums) / (len(sums) - 1)).sqrt()
    return mean.item(), (spread / len(values)).item()
