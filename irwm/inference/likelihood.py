"""How likely a model finds given tokens, and the gradient of that with respect to one of its matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.errors import UnsupportedCheckpointError
from irwm.inference.loading import typed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Tokens of one input, at most: the memory of attention and logits grows with it.
MOST_CONTEXT = 2048
# Logits computed at once: 128 MB of float32, of which some four copies are needed.
_LOGITS_AT_ONCE = 1 << 25
# Noise with which `information` is measured, in deviations of a row: small enough that log-probabilities are linear in
# it, large enough for float32.
_SHARE = 0.05

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Window:
    """One input of a model: a part of a sequence.

    Attributes:
        sequence: the number of the sequence.
        start, stop: the part, half-open.
        first: the first token of the sequence that is predicted in this window; all from it up to `stop` are.
    """

    sequence: int
    start: int
    stop: int
    first: int


def windows(lengths: Sequence[int], firsts: Sequence[int], context: int) -> list[Window]:
    """Inputs of at most `context` tokens in which each token from a sequence's first one on is predicted once.

    In a sequence longer than that each token is predicted from at least half of the context, if there is as much
    before it.

    Args:
        lengths: tokens of each sequence.
        firsts: of each sequence, the first token that is predicted, at least 1.
        context: at least 2.
    """
    found = []
    for number, (length, first) in enumerate(zip(lengths, firsts, strict=True)):
        stop = min(length, context)
        while first < length:
            if first < stop:
                found.append(Window(number, max(0, stop - context), stop, first))
                first = stop
            # The next window ends half a context later, or at the end of the sequence.
            stop = min(length, max(stop, first) + context // 2)
    return found


def context_of(model: PreTrainedModel) -> int:
    """Tokens of one input of this model: its own limit, and at most `MOST_CONTEXT`."""
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min(MOST_CONTEXT, own) if isinstance(own, int) and own >= 2 else MOST_CONTEXT


def batches(parts: Sequence[Window], vocabulary: int) -> list[list[Window]]:
    """Windows of similar length together, so that little of a batch is padding and its logits fit in memory."""
    found: list[list[Window]] = []
    most = _LOGITS_AT_ONCE // vocabulary
    for part in sorted(parts, key=lambda each: each.start - each.stop):
        longest = found[-1][0].stop - found[-1][0].start if found else 0
        if not found or (len(found[-1]) + 1) * longest > most:
            found.append([])
        found[-1].append(part)
    return found


@torch.no_grad()
def log_probabilities(
    model: PreTrainedModel,
    sequences: Sequence[NDArray[np.int64]],
    parts: Sequence[Sequence[Window]],
    step: Step,
    temperatures: Sequence[float] = (1.0,),
    prompt: torch.Tensor | None = None,
) -> list[NDArray[np.float64]]:
    """Natural logarithm of the probability of every token of each sequence, (k, n) at k temperatures; NaN where no
    window predicts it.

    Args:
        sequences: (n,) int64 token ids each.
        parts: of `batches`.
        step: called after each batch; its exceptions are propagated.
        temperatures: by which the logits are divided.
        prompt: (m, d) vectors that the model reads as embeddings of tokens before every input.

    Raises:
        UnsupportedCheckpointError: transformers cannot run the model on these tokens.
    """
    found = [np.full((len(temperatures), len(sequence)), np.nan) for sequence in sequences]
    for batch in parts:
        predicted = predict(model, sequences, batch, prompt)
        values = torch.stack([predicted.at(each) for each in temperatures]).cpu().double().numpy()
        for part, own in zip(batch, np.split(values, np.cumsum(_sizes(batch))[:-1], axis=1), strict=True):
            found[part.sequence][:, part.first : part.stop] = own
        step()
    return found


def gradients(
    model: PreTrainedModel,
    matrices: Sequence[torch.nn.Parameter],
    sequences: Sequence[NDArray[np.int64]],
    groups: Sequence[Sequence[Sequence[Window]]],
    weightings: Sequence[tuple[Sequence[NDArray[np.float64]], float]],
    step: Step,
    prompt: torch.Tensor | None = None,
) -> Iterator[list[list[NDArray[np.float32]]]]:
    """For each weighting y the gradients dL/dW, float32 of W's shape, of L = sum over tokens of y_t log p(x_t): after
    each group those of all tokens up to it.

    On a processor the arrays are the same every time, since those of a large model are gigabytes. No other weight's
    gradient is computed. A matrix that is both embedding and output head gets the sum of both.

    Args:
        matrices: W, parameters of the model.
        groups: each the parts of `log_probabilities`.
        sequences, step, prompt: as there.
        weightings: each the numbers y (n,) of every sequence, and the temperature of p.

    Raises:
        UnsupportedCheckpointError: as `log_probabilities`, or the output does not depend on a matrix.
    """
    model.requires_grad_(False)
    for matrix in matrices:
        matrix.requires_grad_(True)
    sums = [[torch.zeros_like(matrix) for matrix in matrices] for _ in weightings]
    for group in groups:
        for batch in group:
            _add_gradients(model, matrices, sequences, batch, weightings, prompt, sums)
            step()
        yield [[matrix.cpu().numpy() for matrix in each] for each in sums]


def _add_gradients(
    model: PreTrainedModel,
    matrices: Sequence[torch.nn.Parameter],
    sequences: Sequence[NDArray[np.int64]],
    batch: Sequence[Window],
    weightings: Sequence[tuple[Sequence[NDArray[np.float64]], float]],
    prompt: torch.Tensor | None,
    sums: Sequence[Sequence[torch.Tensor]],
) -> None:
    """Add the gradients of one batch to `sums`, by weighting and matrix."""
    predicted = predict(model, sequences, batch, prompt)
    for number, (weighting, temperature) in enumerate(weightings):
        y = np.concatenate([weighting[part.sequence][part.first : part.stop] for part in batch])
        values = predicted.at(temperature)
        total = (values * torch.from_numpy(y).to(values)).sum()
        with typed(_file(model), "this model cannot be differentiated"):
            own = torch.autograd.grad(total, list(matrices), retain_graph=number + 1 < len(weightings))
        for so_far, more in zip(sums[number], own, strict=True):
            so_far += more


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Logits (n, v) at the predicted tokens (n,) of a batch, window after window."""

    logits: torch.Tensor
    tokens: torch.Tensor

    def at(self, temperature: float | torch.Tensor) -> torch.Tensor:
        """(n,) natural logarithms of the tokens' probabilities."""
        return -torch.nn.functional.cross_entropy(self.logits / temperature, self.tokens, reduction="none")


def predict(
    model: PreTrainedModel,
    sequences: Sequence[NDArray[np.int64]],
    batch: Sequence[Window],
    prompt: torch.Tensor | None = None,
) -> Predicted:
    """What the model predicts in one batch, by one run; arguments and errors as `log_probabilities`."""
    longest = max(part.stop - part.start for part in batch)
    # Padding follows the tokens, and a causal model's outputs do not depend on what follows.
    shown = np.zeros((len(batch), longest), dtype=np.int64)
    rows, columns, wanted = [], [], []
    for number, part in enumerate(batch):
        shown[number, : part.stop - part.start] = sequences[part.sequence][part.start : part.stop]
        rows.append(np.full(part.stop - part.first, number))
        columns.append(np.arange(part.first, part.stop) - part.start - 1 + (0 if prompt is None else len(prompt)))
        wanted.append(sequences[part.sequence][part.first : part.stop])
    at = [torch.from_numpy(np.concatenate(each)).to(model.device) for each in (rows, columns, wanted)]
    with typed(_file(model), "this model cannot be run on these tokens"):
        logits = model(**_inputs(model, torch.from_numpy(shown).to(model.device), prompt), use_cache=False).logits
        return Predicted(logits[at[0], at[1]].float(), at[2])


def _inputs(model: PreTrainedModel, shown: torch.Tensor, prompt: torch.Tensor | None) -> dict[str, torch.Tensor]:
    if prompt is None:
        return {"input_ids": shown}
    rows = model.get_input_embeddings()(shown)
    return {"inputs_embeds": torch.cat([prompt.expand(len(shown), -1, -1), rows], 1)}


def _sizes(batch: Sequence[Window]) -> list[int]:
    return [part.stop - part.first for part in batch]


def _file(model: PreTrainedModel) -> Path:
    return Path(getattr(model, "name_or_path", ""))


def matrix_of(model: PreTrainedModel, *, head: bool, shape: tuple[int, int]) -> torch.nn.Parameter:
    """The embedding of a model, or its output head.

    Raises:
        UnsupportedCheckpointError: transformers gives the matrix another shape, or the model has none.
    """
    layer = model.get_output_embeddings() if head else model.get_input_embeddings()
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, torch.nn.Parameter) or tuple(weight.shape) != shape:
        raise UnsupportedCheckpointError(
            f"this model's {'output head' if head else 'embedding'} has one shape in transformers and another in the "
            "file",
            file=_file(model),
            expected=f"{shape[0]} × {shape[1]}",
            found="none" if weight is None else " × ".join(map(str, weight.shape)),
            advice="Open the original that the keys were made for, as transformers saved it",
        )
    return weight


@torch.no_grad()
def information(
    model: PreTrainedModel,
    matrices: Sequence[torch.nn.Parameter],
    sequences: Sequence[NDArray[np.int64]],
    parts: Sequence[Sequence[Window]],
    draws: int,
    seed: int,
    step: Step,
) -> list[NDArray[np.float64]]:
    """Fisher information about `matrices` W at every token of each sequence, (n,); NaN where no window predicts it.

    It is the trace over all rows i of sigma_i^2 F_i, with sigma_i the row's own deviation and F the Fisher information
    of the next token given those before it. It is estimated without gradients: white noise D with sigma_i in row i
    times `_SHARE` is added to W, and the variance of the change of log p(v), over v as the model draws it, has that
    mean in units of `_SHARE`^2 (up to terms of order `_SHARE`^2).

    Args:
        matrices: W, parameters of the model. They have their old values afterwards.
        sequences, parts, step: as `log_probabilities`.
        draws: how many D the variance is averaged over; each is a copy of W in memory.
        seed: of D.

    Raises:
        UnsupportedCheckpointError: as `log_probabilities`.
    """
    found = [np.full(len(sequence), np.nan) for sequence in sequences]
    generator = torch.Generator().manual_seed(seed)
    own = [matrix.data for matrix in matrices]
    moved = [[_moved(matrix, generator) for matrix in own] for _ in range(draws)]
    try:
        for batch in parts:
            before = predict(model, sequences, batch).logits.log_softmax(-1)
            shares, total = before.exp(), torch.zeros(len(before), dtype=torch.float64, device=before.device)
            for others in moved:
                _set(matrices, others)
                change = predict(model, sequences, batch).logits.log_softmax(-1) - before
                mean = (shares * change).sum(-1, keepdim=True)
                total += (shares * (change - mean).square()).sum(-1).double()
                _set(matrices, own)
            values = (total / (draws * _SHARE**2)).cpu().numpy()
            for part, each in zip(batch, np.split(values, np.cumsum(_sizes(batch))[:-1]), strict=True):
                found[part.sequence][part.first : part.stop] = each
            step()
    finally:
        _set(matrices, own)
    return found


def _moved(matrix: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A matrix (s, d) with white noise of `_SHARE` times each row's deviation."""
    noise = torch.randn(matrix.shape, generator=generator).to(matrix)
    return matrix + _SHARE * matrix.square().mean(dim=1, keepdim=True).sqrt() * noise


def _set(matrices: Sequence[torch.nn.Parameter], values: Sequence[torch.Tensor]) -> None:
    for matrix, value in zip(matrices, values, strict=True):
        matrix.data = value
