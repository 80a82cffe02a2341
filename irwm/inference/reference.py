"""A model run once over a text, so that many others can be compared with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import torch

from irwm.checkpoint import open_checkpoint, token_ids
from irwm.errors import ParameterError
from irwm.inference.loading import Weights, embedding_rows, open_tokenizer, open_weights, typed
from irwm.inference.text import Passage, causal, encoded, hidden, token_list, window_of

Progress = Callable[[int, int, str], None]
# Numbers of float64 worked on at once: 32 MB.
_AT_ONCE = 1 << 22
# Bytes of outputs that are held in memory; larger outputs are in a temporary file.
IN_MEMORY = 256 * 1024 * 1024


class OutputStore:
    """A model's outputs, exact and in bounded memory: float32 tensors (n, width), appended in order and read by index.

    Outputs of 4096 tokens over a vocabulary of 128 000 are 2 GB in float32. Half-precision numbers would halve that,
    but rounding a log-probability of -10 to float16 moves it by 0.004, a thousand times the measured divergence.
    Running the reference again for each compared model would hold two models in memory and take twice the time. So
    outputs are kept exactly, beyond `IN_MEMORY` bytes in an unnamed temporary file that is deleted with the object.
    """

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - closed by the finalizer
        self._at: list[tuple[int, torch.Size]] = []
        weakref.finalize(self, self._file.close)

    def add(self, outputs: torch.Tensor) -> None:
        """Appends (n, width).

        Raises:
            OSError: the temporary folder is full.
        """
        self._file.seek(0, 2)
        self._at.append((self._file.tell(), outputs.shape))
        self._file.write(outputs.to("cpu", torch.float32).contiguous().numpy().tobytes())

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, number: int) -> torch.Tensor:
        """The tensor at index `number`, exactly as it was appended."""
        start, shape = self._at[number]
        self._file.seek(start)
        content = bytearray(self._file.read(shape.numel() * 4))
        return torch.frombuffer(content, dtype=torch.float32).reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The result of `reference`.

    Attributes:
        folder: the model's folder.
        text: the part of the text that was read.
        ids: the tokens of that part.
        passages: the inputs of the model.
        outputs: for each passage (m, vocabulary) logits, or for an encoder (m, d) hidden states.
        losses: float64 (n,), negative log-likelihood of each predicted token in nats; empty for an encoder.
        parts: int64 (n,), the piece of text that each prediction belongs to.
        vocabulary: token to id, from the model's own files.
        rows: rows of the embedding, which are the columns of the logits.
        masked, headless: as in `irwm.inference.Opened`.
        dtype: the dtype of the stored weights.
        window, seed, device: the settings of the run.
        roundings: the effect of rounding on this model, by dtype, measured once by `irwm.inference.same_function`.
    """

    folder: Path
    text: str
    ids: tuple[int, ...]
    passages: tuple[Passage, ...]
    outputs: OutputStore
    losses: torch.Tensor
    parts: torch.Tensor
    vocabulary: Mapping[str, int]
    rows: int
    masked: bool
    headless: bool
    dtype: torch.dtype
    window: int
    seed: int
    device: str
    roundings: dict[torch.dtype, tuple[float, float]] = field(default_factory=dict)


def reference(
    model_dir: str | Path,
    text: str,
    tokens: int = 4096,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress | None = None,
) -> Reference:
    """Run a model over the beginning of a text and keep its outputs.

    The arithmetic is float32 on the weights as stored. A causal model reads windows of 256 tokens, each starting with
    the last token of the previous one. For a masked model (BERT) every token is masked once, a seventh of each window
    at a time; exp of its mean loss is a pseudo-perplexity. An encoder without an output head predicts nothing: its last
    hidden states are kept.

    Args:
        model_dir: a model folder or GGUF file that transformers opens.
        tokens: maximum number of tokens of the text.
        seed: draws the masked tokens of a masked model.
        progress: called with runs done, the total of runs, and a description of the step; its exceptions are
            propagated.

    Raises:
        ParameterError: fewer than 2 tokens requested or in the text, or a token without a row in the model.
        UnsupportedCheckpointError: transformers cannot run the model.
        CheckpointError: it is not a readable checkpoint.
    """
    if tokens < 2:
        raise ParameterError("there are too few tokens to measure a model", expected="2 or more", found=str(tokens))
    folder = Path(model_dir)
    tokenizer, weights = open_tokenizer(folder), open_weights(folder, device)
    ids, read = token_list(tokenizer, text, tokens, weights.masked)
    return _read(folder, weights, tokenizer, ids, read, device, seed, progress)


def restricted(reference: Reference, kept: torch.Tensor) -> Reference:
    """The same model run over the tokens of the same text that exist in another model.

    Args:
        kept: bool (ids,), whether each id of the vocabulary is one of them.

    Raises:
        ParameterError: fewer than 2 tokens are left.
    """
    ids = [i for i in reference.ids if kept[i]]
    if len(ids) < 2:
        raise ParameterError("too few tokens of the text exist in both models", found=f"{len(ids)} tokens left")
    folder, device = reference.folder, reference.device
    weights = open_weights(folder, device)
    return _read(folder, weights, open_tokenizer(folder), ids, reference.text, device, reference.seed)


def _read(
    folder: Path,
    weights: Weights,
    tokenizer: Any,
    ids: Sequence[int],
    text: str,
    device: str,
    seed: int,
    progress: Progress | None = None,
) -> Reference:
    window = window_of(weights.model)
    passages = passages_of(ids, weights, tokenizer, window, seed)
    store, losses = OutputStore(), []
    for passage, outputs in zip(passages, run(weights, passages), strict=True):
        store.add(outputs)
        losses.append(loss_of(outputs, passage.wanted))
        if progress:
            progress(len(losses), len(passages), "Running the model")
    return Reference(
        folder=folder,
        text=text,
        ids=tuple(ids),
        passages=tuple(passages),
        outputs=store,
        losses=torch.cat(losses),
        parts=torch.cat([torch.full((len(r.wanted),), r.part) for r in passages]),
        vocabulary=token_ids(open_checkpoint(folder)),
        rows=embedding_rows(weights.model),
        masked=weights.masked,
        headless=weights.headless,
        dtype=weights.dtype,
        window=window,
        seed=seed,
        device=device,
    )


def passages_of(ids: Sequence[int], weights: Weights, tokenizer: Any, window: int, seed: int) -> list[Passage]:
    """The inputs for a model of this kind with these tokens."""
    if weights.headless:
        return encoded(ids, window, tokenizer)
    return hidden(ids, window, tokenizer, seed) if weights.masked else causal(ids, window)


@torch.no_grad()
def run(weights: Weights, passages: Sequence[Passage], headless: bool | None = None) -> Iterator[torch.Tensor]:
    """The outputs of each passage, float32 on the CPU: logits (m, vocabulary), or hidden states (m, d) if `headless`;
    None uses the model's own setting.

    Raises:
        ParameterError: a token without a row in the model.
    """
    headless = weights.headless if headless is None else headless
    model = weights.model.base_model if headless else weights.model
    rows = embedding_rows(weights.model)
    for passage in passages:
        if passage.shown.numel() and int(passage.shown.max()) >= rows:
            raise ParameterError(
                "the tokenizer produces a token that has no row in the model",
                expected=f"token IDs below {rows}",
                found=str(int(passage.shown.max())),
                advice="The tokenizer next to the weights belongs to another model",
            )
        shown = passage.shown[None].to(weights.model.device)
        with typed(Path(getattr(weights.model, "name_or_path", "")), "this model cannot be run"):
            found = model(input_ids=shown) if weights.masked else model(input_ids=shown, use_cache=False)
        values = found.last_hidden_state if headless else found.logits
        yield values[0, passage.at.to(values.device)].float().cpu()


def loss_of(outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood, float64 (m,), of the tokens `wanted` (m,) under logits (m, vocabulary); infinite where
    a logit is NaN or infinite."""
    found = []
    for rows in blocks(len(wanted), outputs.shape[1]):
        logits = outputs[rows].double()
        loss = logits.logsumexp(dim=1) - logits.gather(1, wanted[rows, None])[:, 0]
        found.append(torch.where(torch.isfinite(loss), loss, torch.inf))
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)


def losses(opened: Weights, passages: Sequence[Passage]) -> torch.Tensor:
    """Negative log-likelihood, float64, of every wanted token of the passages, in their order."""
    return torch.cat([loss_of(o, r.wanted) for o, r in zip(run(opened, passages), passages, strict=True)])


def blocks(rows: int, width: int) -> list[slice]:
    """Blocks of rows of a table of this width that are processed at once."""
    step = max(1, _AT_ONCE // width)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
