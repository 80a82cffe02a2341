"""Changes of the residual stream: its coordinates' order, signs, rotation and scale, its norms' gains, its tables.

An RMSNorm model with folded gains sees its stream only through inner products and norms, so any orthogonal Q and any
scale c cancel between the writers of the stream (W -> Q^T W) and its readers (W -> W Q). A LayerNorm also subtracts the
mean over the coordinates, so Q has to keep the direction of all ones (GPT-2); and where its gain stays on the stream
(BERT), only permutations and one global sign remain. In return, if every reader of the embedding has a LayerNorm in
front, a constant per row cancels, and so does a vector that is added to one table and subtracted from another.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from irwm.attacks.equivalence.draft import (
    Draft,
    generator,
    log_uniform,
    orthogonal,
    require_at_least_one,
    require_share,
)
from irwm.attacks.equivalence.head import free_tables, untied
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import Structure, structure_of
from irwm.attacks.equivalence.transform import (
    free_gains,
    layer_norm,
    no_post_norms,
    positions,
    rms_norms,
    transform,
)
from irwm.errors import NotApplicableError, ParameterError

# Between 1/8 and 8, all weights that matter keep their relative precision in bfloat16 and float16.
_LARGEST_DRAWN_FACTOR = 8.0


@transform()
def permute_residual(state: State, seed: int = 0) -> State:
    """Permutes the stream's d coordinates everywhere; a BERT without a head outputs them in the new order."""
    state = free_tables(state)
    structure, draft = structure_of(state), Draft(state)
    order = torch.randperm(structure.hidden_size, generator=generator(seed))
    draft.change((*structure.tables, *structure.readers), lambda w: w[:, order])
    draft.change((*structure.writers, *structure.writer_biases, *structure.norm_vectors), lambda w: w[order])
    return draft.done()


@transform()
def flip_signs(state: State, seed: int = 0) -> State:
    """Flips the sign of each coordinate with probability 1/2. LayerNorm families: flips all of them together."""
    if structure_of(state).norm.kind == "layer":
        return _scaled(state, -1.0)
    structure, draft = structure_of(state), Draft(state)
    coins = torch.randint(2, (structure.hidden_size,), generator=generator(seed))
    signs = (2 * coins - 1).to(torch.float64)
    draft.change((*structure.tables, *structure.readers), lambda w: w * signs)
    draft.change(structure.writers, lambda w: w * signs[:, None])
    draft.change(structure.writer_biases, lambda b: b * signs)
    return draft.done()


@transform(free_gains, no_post_norms)
def rotate(state: State, seed: int = 0) -> State:
    """Folds the gains, then rotates the stream by a random dense orthogonal matrix, which in a LayerNorm family keeps
    the direction of all ones; a tied head becomes a separate tensor. For families without norms on the stream or after
    the sublayers: not BERT, not Gemma 2."""
    state = fold_gains(state)
    structure, source = structure_of(state), generator(seed)
    d = structure.hidden_size
    return turned(state, orthogonal(d, source) if structure.norm.kind == "rms" else _beside_ones(d, source))


@transform(rms_norms, free_gains, no_post_norms)
def widen(state: State, seed: int = 0, share: float = 0.25, size: float = 1.0) -> State:
    """Adds a `share` of the stream's width as empty coordinates, at least one for each head, which each matrix reads by
    random numbers of `size` times its deviation, and rotates the stream, so that none stays empty. RMSNorm families
    without norms after the sublayers."""
    require_share("the share of new coordinates", share)
    state = fold_gains(state)
    structure, source = structure_of(state), generator(seed)
    d, heads = structure.hidden_size, structure.heads
    wide = d + heads * max(1, round(share * d / heads))
    q = orthogonal(wide, source)
    wider = resized(state, q[:d])

    def read_empty(matrix: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(matrix), wide - d, generator=source, dtype=torch.float64)
        return matrix + size * matrix.std() * noise @ q[d:]

    draft = Draft(wider)
    draft.change(structure_of(wider).readers, read_empty)
    return draft.done()


@transform()
def rescale(state: State, seed: int = 0, factor: float | None = None) -> State:
    """Multiplies the stream by `factor` > 0 (drawn between 1/8 and 8 if None), and the config's eps by its square, so
    that the outputs of the norms do not change. A BERT's prediction head has another LayerNorm after a GELU, for which
    the new eps is wrong; at BERT's 1e-12 the error is far below rounding."""
    if factor is None:
        factor = float(log_uniform(1, _LARGEST_DRAWN_FACTOR, generator(seed)))
    if not 0 < factor < float("inf"):
        raise ParameterError("the scale is out of range", expected="a positive number", found=str(factor))
    return _scaled(state, factor)


@transform(free_gains)
def fold_gains(state: State) -> State:
    """Multiplies each norm's gain into the columns of its readers and sets the gain to one; a tied head becomes a
    separate tensor, since it reads the last norm and the embedding does not. Not BERT."""
    return _with_gains(state, lambda size: torch.ones(size, dtype=torch.float64))


@transform(free_gains)
def regain(state: State, seed: int = 0, spread: float = 2.0) -> State:
    """Replaces the gains by random ones between 1 / spread and spread, for which the readers compensate; a tied head
    becomes a separate tensor. Not BERT."""
    require_at_least_one("the spread of gains", spread)
    source = generator(seed)
    return _with_gains(state, lambda size: log_uniform(size, spread, source))


@transform(layer_norm)
def shift_rows(state: State, seed: int = 0, size: float = 1.0) -> State:
    """Adds one random number, `size` times the table's deviation, to all entries of each word's row; the LayerNorm
    subtracts it with the mean over the entries. LayerNorm families; a tied head becomes a separate tensor."""
    state = untied(state)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    words = draft.read(structure.embedding)
    shift = torch.randn(len(words), 1, generator=source, dtype=torch.float64)
    draft.write(structure.embedding, words + size * words.std() * shift)
    return draft.done()


@transform(layer_norm, positions)
def shift_tables(state: State, seed: int = 0, size: float = 1.0) -> State:
    """Adds one random vector, `size` times the table's deviation, to every word's row and subtracts it from every
    position's row; the embedding of a token is the sum of one row of each. LayerNorm families with a table of
    positions; a tied head becomes a separate tensor."""
    state = untied(state)
    structure, draft, source = structure_of(state), Draft(state), generator(seed)
    words, positions = structure.tables[0], structure.tables[1]
    shift = torch.randn(structure.hidden_size, generator=source, dtype=torch.float64)
    shift = size * draft.read(words).std() * shift
    draft.change([words], lambda w: w + shift)
    draft.change([positions], lambda w: w - shift)
    return draft.done()


def turned(state: State, q: torch.Tensor) -> State:
    """The state with its stream multiplied by the orthogonal `q` (d, d). Valid only after the gains are folded."""
    structure, draft = structure_of(state), Draft(state)
    draft.change((*structure.tables, *structure.readers), lambda w: w @ q)
    draft.change(structure.writers, lambda w: q.T @ w)
    norm_biases = [norm.bias for norm in structure.norms if norm.bias is not None]
    draft.change((*structure.writer_biases, *norm_biases), lambda b: b @ q)
    return draft.done()


def resized(state: State, q: torch.Tensor) -> State:
    """The state with its stream multiplied by `q` (d, k), whose rows or columns are orthonormal: a wider stream that
    computes the same, or a narrower one that keeps only the directions of the columns. Valid only for RMSNorm families,
    after the gains are folded."""
    structure = structure_of(state)
    d, k = q.shape
    draft = Draft(turned(state, q))
    # A norm divides by the root of the mean square, and the mean is now over k coordinates.
    gain = math.sqrt(d / k)
    draft.change(structure.norm_vectors, lambda g: torch.full((k,), gain - structure.norm.offset, dtype=g.dtype))
    draft.config |= {"hidden_size": k, "head_dim": structure.head_dim}
    draft.config[structure.eps_key] = structure.norm.eps * d / k
    if structure.embedding_scaled:
        draft.change(structure.tables, lambda w: w * gain)
    if structure.head_norms:  # they share the eps
        projections = [ref for layer in structure.layers for ref in (*layer.q.refs, *layer.k.refs)]
        draft.change(projections, lambda w: w * gain)
    return draft.done()


def _beside_ones(d: int, source: torch.Generator) -> torch.Tensor:
    """A random orthogonal float64 (d, d) that fixes the direction of all ones and is otherwise uniform."""
    towards = torch.full((d,), -(d**-0.5), dtype=torch.float64)
    towards[0] += 1
    # Householder's reflection maps the first unit vector to the direction of all ones.
    reflection = torch.eye(d, dtype=torch.float64) - 2 * torch.outer(towards, towards) / towards.dot(towards)
    block = torch.block_diag(torch.ones(1, 1, dtype=torch.float64), orthogonal(d - 1, source))
    turn: torch.Tensor = reflection @ block @ reflection
    return turn


def _scaled(state: State, c: float) -> State:
    """The stream times c, which may be negative where the norms are LayerNorms."""
    if structure_of(state).post_norm_stream:
        return _scale_post_norm_stream(free_tables(state), c)
    return _scale_pre_norm_stream(state, c)


def _scale_pre_norm_stream(state: State, c: float) -> State:
    structure, draft = structure_of(state), Draft(state)
    offset = structure.norm.offset
    draft.change((*structure.tables, *structure.writers, *structure.writer_biases), lambda w: w * c)
    # A post-norm cancels the writers' scale, which only keeps its eps right; its gain sets the scale of its output.
    draft.change(structure.post_norms, lambda g: (g + offset) * c - offset)
    if c < 0:
        draft.change([norm.gain for norm in structure.norms], lambda g: -g - 2 * offset)
    if structure.tied:
        last = structure.norms[-1]
        draft.change([last.gain], lambda g: (g + offset) / c - offset)
        draft.change([last.bias] if last.bias is not None else [], lambda b: b / c)
    if structure.head_norms:
        # The norms of single heads share the eps, so their inputs are scaled in the same way.
        projections = [ref for layer in structure.layers for ref in (*layer.q.refs, *layer.k.refs)]
        draft.change(projections, lambda w: w * c)
    _square_into_eps(draft, structure, c)
    return draft.done()


def _scale_post_norm_stream(state: State, c: float) -> State:
    """A post-norm stream times c, which may be negative: the output of every norm but the last is multiplied by c."""
    structure, draft = structure_of(state), Draft(state)
    draft.change((*structure.tables, *structure.writers, *structure.writer_biases), lambda w: w * c)
    sign = 1.0 if c > 0 else -1.0  # a norm cancels the input's factor except for its sign
    *inner, last = structure.norms
    draft.change([norm.gain for norm in inner], lambda g: g * c * sign)
    draft.change([norm.bias for norm in inner if norm.bias is not None], lambda b: b * c)
    draft.change([last.gain], lambda g: g * sign)
    draft.change([name for norm in inner for name in norm.readers], lambda w: w / c)
    _square_into_eps(draft, structure, c)
    return draft.done()


def _square_into_eps(draft: Draft, structure: Structure, c: float) -> None:
    draft.config[structure.eps_key] = structure.norm.eps * c * c


def _with_gains(state: State, gain: Callable[[int], torch.Tensor]) -> State:
    state = untied(state)
    structure, draft = structure_of(state), Draft(state)
    offset = structure.norm.offset
    for norm in structure.norms:
        new = gain(structure.hidden_size)
        old = draft.read(norm.gain) + offset
        if norm.bias is not None and not old.all():
            raise NotApplicableError(
                "a gain of zero cannot be replaced, because the norm's bias is added after it",
                tensor=norm.gain, expected="non-zero gains", found=f"gains of zero: {int((old == 0).sum())}",
                advice="Choose another transform",
            )  # fmt: skip
        for reader in norm.readers:
            draft.write(reader, draft.read(reader) * (old / new))
        draft.write(norm.gain, new - offset)
        if norm.bias is not None:
            draft.write(norm.bias, draft.read(norm.bias) * (new / old))
    return draft.done()
