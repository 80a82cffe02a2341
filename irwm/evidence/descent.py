"""Which of several models were made from which: a map of their descent.

Two models are compared by samples of their weights, at the same places of tensors with the same names. If their
coordinates differ, as after a disguise, the cosines of their whitened embedding rows are compared instead
(`irwm.evidence.likeness`). The shortest tree that joins the models of a family is its map: a model that was made in two
steps differs from its origin by both, so the steps are shorter than the way around (Horwitz et al., arXiv:2405.18432).

A branch has a direction where something shows it: one end is known to be an original, or only one end has rounded or
removed weights, and those of the other end show whether they were rounded or removed, or trained further. A model has
one parent in a tree, which gives the direction of further branches. Statistics of the weights, such as the kurtosis
that the paper uses, are not reliable enough on our models (docs/descent.md).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from irwm.checkpoint import Checkpoint, read_tensor
from irwm.errors import IrwmError
from irwm.evidence.likeness import FEW_ROWS, Sketch, likeness, sketch

# Tensors of a sample, and values of each.
_TENSORS, _VALUES = 64, 1 << 16
# Wider rows are in no model; one of them would fill the memory.
_WIDEST = 1 << 20
# Relative differences of unrelated weights are about the root of two; those of relatives with the same coordinates are
# smaller than this. Models that were trained apart have a likeness below the other limit.
_SAME_COORDINATES, _RELATED = 0.7, 0.35
# Candidates for rounded weights: the share of repeated values in a row is so many times, and so much, larger; and for
# removed weights: so many more of them are zero.
_MORE_REPEATED, _LEAST_REPEATED, _MORE_ZEROS = 1.4, 0.03, 0.02
# Rows that are searched for repeated values. Of formats of 2 to 8 bits that round to the nearest: the size of a group
# with one step; steps from 0 to its largest weight; the largest multiple of a step that is used, since 16-bit formats
# are as coarse beyond it; and how near multiples are to whole numbers.
_ROWS, _GROUP, _LEVELS, _MOST_STEPS, _NEAR_WHOLE = (
    16,
    32,
    (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128),
    20,
    0.06,
)
ORIGINAL, ONE_PARENT = "original", "one parent"
ROUNDED, REMOVED = "rounded weights", "removed weights"
FROM_ROUNDED, FROM_REMOVED = "continued from rounded weights", "continued from removed weights"
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Branch:
    """Two models of which one was made from the other, or nearly so.

    Attributes:
        first, second: places among the models. With a direction, `second` was made from `first`.
        distance: relative difference of their weights, or of the geometry of their embeddings if `by_embedding`.
        by_embedding: whether their coordinates differ.
        direction: what shows it; "" if nothing does.
    """

    first: int
    second: int
    distance: float
    by_embedding: bool
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Descent:
    """A map of descent.

    Attributes:
        names: of the models; with their folders if several have the same one.
        families: places of the models of each family, the largest family first; without those that were left out.
        branches: of all families; a family of n models has n - 1.
    """

    names: tuple[str, ...]
    families: tuple[tuple[int, ...], ...]
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Sampled:
    """The compared parts of a model: values by tensor, and a sketch of the embedding."""

    values: Mapping[str, torch.Tensor]
    shapes: Mapping[str, tuple[int, ...]]
    embedding: Sketch
    repeated: float
    zeros: float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A model in a drawing of the map, with the models that are joined to it and away from the first one.

    Attributes:
        place: among the models.
        branch: that joins it to the model above; None for the first model of a family.
    """

    place: int
    branch: Branch | None
    below: tuple[Drawn, ...]


def map_descent(
    models: Sequence[Checkpoint],
    originals: Collection[int] = (),
    progress: Progress | None = None,
    unreadable: Callable[[int, IrwmError], None] | None = None,
) -> Descent:
    """The map of descent of several models.

    Args:
        originals: places of models that were made from none of the others.
        progress: called with models done, their number and a description of the step; its exceptions are propagated.
        unreadable: called with the place of a model that cannot be read, which is then left out. None raises its error.

    Raises:
        CheckpointError, RemoteError: a model cannot be read.
        IrwmError: a place in `originals` is not one of a model.
    """
    if not set(originals) <= set(range(len(models))):
        raise IrwmError("an original is not among the models", expected=f"0 to {len(models) - 1}")
    sampled: dict[int, _Sampled] = {}
    for number, model in enumerate(models):
        if progress is not None:
            progress(number, len(models), f"Reading {model.path.name}")
        try:
            sampled[number] = _sample(model)
        except IrwmError as error:
            if unreadable is None:
                raise
            unreadable(number, error)
    pairs = [(i, j) for j in sampled for i in sampled if i < j]
    distances = {pair: found for pair in pairs if (found := _distance(*(sampled[i] for i in pair))) is not None}
    joined = _shortest_tree(len(models), distances)
    branches = [Branch(i, j, distances[i, j][1], distances[i, j][0]) for i, j in joined]
    directed = _directed(branches, sampled, set(originals))
    return Descent(_names(models), _families(sampled, joined), tuple(sorted(directed, key=lambda each: each.distance)))


def _names(models: Sequence[Checkpoint]) -> tuple[str, ...]:
    names = Counter(model.path.name for model in models)
    return tuple(
        model.path.name if names[model.path.name] == 1 else f"{model.path.parent.name}/{model.path.name}"
        for model in models
    )


def _sample(model: Checkpoint) -> _Sampled:
    """Fixed places of at most `_TENSORS` matrices; which ones depends on their names alone."""
    matrices = {
        name: entry
        for name, entry in model.tensors.items()
        if len(entry.shape) == 2 and min(entry.shape) > 1 and entry.shape[1] <= _WIDEST
    }
    chosen = sorted(matrices, key=lambda name: hashlib.blake2b(name.encode("utf-8", "surrogatepass")).digest())
    values = {}
    for name in chosen[:_TENSORS]:
        height, width = matrices[name].shape
        rows = min(height, max(1, _VALUES // width))
        start = (height - rows) // 2
        values[name] = (
            read_tensor(matrices[name], slice(start, start + rows), public=True).float().nan_to_num(0.0, 0.0, 0.0)
        )
    repeated = [_repeated(each) for each in values.values()]
    zeros = [float((each == 0).float().mean()) for each in values.values()]
    return _Sampled(
        values,
        {name: tuple(matrices[name].shape) for name in values},
        sketch(model, most=FEW_ROWS),
        sum(repeated) / max(1, len(repeated)),
        sum(zeros) / max(1, len(zeros)),
    )


def _repeated(values: torch.Tensor) -> float:
    """The share of values other than zero that occur in their row before, in up to 16 rows."""
    shares = []
    for row in values[:_ROWS]:
        kept = row[row != 0]
        if len(kept):
            shares.append(1 - len(kept.unique()) / len(kept))
    return sum(shares) / max(1, len(shares))


def _distance(one: _Sampled, other: _Sampled) -> tuple[bool, float] | None:
    """The relative difference of two related models, after whether it is that of their embeddings; None if they are not
    related."""
    common = [name for name in one.values if one.shapes[name] == other.shapes.get(name)]
    if 2 * len(common) > min(len(one.values), len(other.values)):
        squares = sum(_difference(one.values[name], other.values[name]) for name in common)
        found = math.sqrt(squares / len(common))
        if found < _SAME_COORDINATES:
            return False, found
    alike = likeness(one.embedding, other.embedding)
    return (True, math.sqrt(max(0.0, 2 * (1 - alike)))) if alike > _RELATED else None


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The squared difference of two samples, in the product of their lengths."""
    lengths = float(one.norm()) * float(other.norm())
    return float((one - other).square().sum()) / lengths if lengths > 0 else 2.0


def _shortest_tree(count: int, distances: Mapping[tuple[int, int], tuple[bool, float]]) -> list[tuple[int, int]]:
    """The pairs of the shortest trees that join all related models (Kruskal's algorithm). Differences of weights and of
    embeddings have other scales, so the latter only join what the former leave apart."""
    part = list(range(count))
    joined = []
    for i, j in sorted(distances, key=lambda pair: (distances[pair], pair)):
        if part[i] != part[j]:
            old, new = part[j], part[i]
            part = [new if each == old else each for each in part]
            joined.append((i, j))
    return joined


def _families(places: Iterable[int], joined: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    left, found = set(places), []
    while left:
        family = _reached(min(left), joined)
        left -= family
        found.append(tuple(sorted(family)))
    return tuple(sorted(found, key=lambda family: (-len(family), family)))


def _reached(start: int, joined: Sequence[tuple[int, int]]) -> set[int]:
    """All models that branches connect with one."""
    found, rest = {start}, [start]
    while rest:
        here = rest.pop()
        for pair in joined:
            if here in pair:
                there = pair[0] + pair[1] - here
                if there not in found:
                    found.add(there)
                    rest.append(there)
    return found


def _directed(branches: Sequence[Branch], sampled: Mapping[int, _Sampled], originals: set[int]) -> list[Branch]:
    """The branches, those with a direction turned so that `first` is the parent."""
    pairs = [(each.first, each.second) for each in branches]
    found: dict[tuple[int, int], str] = {}  # reasons, by parent and child
    for branch, pair in zip(branches, pairs, strict=True):
        ends = [_reached(end, [each for each in pairs if each != pair]) & originals for end in pair]
        claims = [claim for claim in _shown(branch, sampled) if not ends[pair.index(claim[1])]]
        if len(claims) == 1:  # none, or two that contradict each other
            found[claims[0][:2]] = claims[0][2]
        elif bool(ends[0]) != bool(ends[1]):  # away from the originals
            parent, child = pair if ends[0] else pair[::-1]
            found[parent, child] = ORIGINAL if parent in originals else ONE_PARENT
    parents = Counter(child for _, child in found)
    found = {ends: why for ends, why in found.items() if parents[ends[1]] == 1}  # of two parents, one is wrong
    todo = [child for _, child in found]
    while todo:  # a model has one parent, so its other branches lead to its children
        here = todo.pop()
        for pair in pairs:
            if here in pair and pair not in found and pair[::-1] not in found:
                there = pair[0] + pair[1] - here
                if not _reached(there, [each for each in pairs if each != pair]) & originals:
                    found[here, there] = ONE_PARENT
                    todo.append(there)
    return [_turned(each, found) for each in branches]


def _turned(branch: Branch, found: Mapping[tuple[int, int], str]) -> Branch:
    ends = branch.first, branch.second
    if ends[::-1] in found:
        ends = ends[::-1]
    return replace(branch, first=ends[0], second=ends[1], direction=found.get(ends, ""))


def _shown(branch: Branch, sampled: Mapping[int, _Sampled]) -> Iterator[tuple[int, int, str]]:
    """The direction that the weights of both models show: parent, child and reason."""
    if branch.by_embedding:
        return
    for fine, coarse in ((branch.first, branch.second), (branch.second, branch.first)):
        one, other = sampled[fine], sampled[coarse]
        # Rounding makes zeros too, but removing weights repeats no other values.
        if other.repeated - one.repeated >= _LEAST_REPEATED and other.repeated >= _MORE_REPEATED * one.repeated:
            made, continued, was_made = ROUNDED, FROM_ROUNDED, _was_rounded(one, other)
        elif other.zeros - one.zeros >= _MORE_ZEROS:
            made, continued, was_made = REMOVED, FROM_REMOVED, _was_removed(one, other)
        else:
            continue
        if was_made is not None:
            yield (fine, coarse, made) if was_made else (coarse, fine, continued)


def _pairs(one: _Sampled, other: _Sampled) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for name, values in one.values.items():
        if one.shapes[name] == other.shapes.get(name):
            yield values, other.values[name]


def _was_rounded(fine: _Sampled, coarse: _Sampled) -> bool | None:
    """Whether the fine weights were rounded to the coarse ones: then the differences fill half a step to both sides
    evenly. False if they are close to the coarse ones, as after a little training; None if neither is clear."""
    found = []
    for values, rounded in _pairs(fine, coarse):
        levels = rounded[: rounded.shape[0], : rounded.shape[1] // _GROUP * _GROUP].reshape(-1, _GROUP)
        steps = _steps(levels)
        if steps is None:
            continue
        own = values[:, : values.shape[1] // _GROUP * _GROUP].reshape(-1, _GROUP)
        near = (levels.abs() <= _MOST_STEPS * steps) & (steps > 0)
        found.append(((own - levels) / steps)[near].abs())
    if not found:
        return None
    apart = torch.cat(found)
    outside, outer = (apart > 0.55).float().mean(), ((apart > 0.25) & (apart <= 0.55)).float().mean()
    if float(outside) < 0.03 and 0.35 < float(outer) < 0.65:
        return True
    return False if float((apart < 0.1).float().mean()) > 0.4 else None


def _steps(levels: torch.Tensor) -> torch.Tensor | None:
    """The steps of groups of rounded weights (n, 32), (n, 1): the largest one of a group divided by a whole number, as
    round-to-nearest formats do it; None if no such number makes the values multiples of their step."""
    largest = levels.abs().amax(dim=1, keepdim=True)
    for count in _LEVELS:
        steps = largest / count
        kept = levels.abs() <= _MOST_STEPS * steps
        multiples = (levels / steps)[kept & (steps > 0)]
        if len(multiples) and float((multiples - multiples.round()).abs().mean()) < _NEAR_WHOLE:
            return steps
    return None


def _was_removed(dense: _Sampled, sparse: _Sampled) -> bool | None:
    """Whether weights of the dense model were set to zero: then some that were kept are not much larger. False if those
    at the zeros are far smaller than all others, as after a little training; None if neither is clear."""
    below = above = 0
    for values, kept in _pairs(dense, sparse):
        gone = (kept == 0) & (values != 0)
        if not bool(gone.any()):
            continue
        sizes = values.abs()
        limit = float(torch.quantile(sizes[gone][: 1 << 16], 0.98))
        below += int(((sizes > limit / 2) & (sizes <= limit) & gone).sum())
        above += int(((sizes > limit) & (sizes <= 1.5 * limit) & ~gone).sum())
    if below == 0:
        return None
    share = above / below
    return True if share >= 0.1 else False if share < 0.02 else None


def drawn(descent: Descent) -> tuple[Drawn, ...]:
    """The trees of all families, each from a model without a parent and with the most neighbours."""
    return tuple(_drawn(descent, _root(descent, family), None) for family in descent.families)


def _root(descent: Descent, family: Sequence[int]) -> int:
    inside = [each for each in descent.branches if each.first in family]
    children = {each.second for each in inside if each.direction}
    neighbours = Counter(end for each in inside for end in (each.first, each.second))
    return max((place for place in family if place not in children), key=lambda place: (neighbours[place], -place))


def _drawn(descent: Descent, place: int, branch: Branch | None) -> Drawn:
    rest = [each for each in descent.branches if place in (each.first, each.second) and each is not branch]
    return Drawn(place, branch, tuple(_drawn(descent, each.first + each.second - place, each) for each in rest))


def lines_of(descent: Descent) -> list[str]:
    """The map as lines of text, each model below the one that it is joined to, with the distance, and how the direction
    is known. A branch without a direction begins with a question mark."""
    found: list[str] = []
    for tree in drawn(descent):
        found += [descent.names[tree.place], *_lines(descent, tree, "")]
    return found


def _lines(descent: Descent, above: Drawn, indent: str) -> list[str]:
    found: list[str] = []
    for each in above.below:
        branch, last = each.branch, each is above.below[-1]
        assert branch is not None
        known = branch.direction if branch.first == above.place else f"made into this: {branch.direction}"
        said = f"({known})" if branch.direction else "(direction unknown)"
        what = "embedding" if branch.by_embedding else "weights"
        sign = "─" if branch.direction else "?"
        name = descent.names[each.place]
        found.append(f"{indent}{'└' if last else '├'}{sign} {name}  {branch.distance:.3g} of {what} {said}")
        found += _lines(descent, each, indent + ("   " if last else "│  "))
    return found
