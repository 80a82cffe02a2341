"""Reads the fingerprints of keys in answers: every place, by every weighting of the tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.answers.answers import Answers
from irwm.answers.fits import FITTING, RUNNING, Part, Progress, Steps, halves_of, observed_of
from irwm.answers.gradient import Gradient
from irwm.answers.weights import TEMPERATURES, weightings
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.platform import free_memory
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.evidence.finding import FINGERPRINT, Evidence
from irwm.evidence.fingerprint import Group, task_of
from irwm.evidence.sign_sums import score
from irwm.inference.fitting import Fits, fitted
from irwm.inference.likelihood import Step, context_of, gradients, log_probabilities, matrix_of
from irwm.inference.loading import Weights, open_weights
from irwm.keys.check_original import check_geometry, check_original
from irwm.keys.key import Key
from irwm.scheme.basis import Basis
from irwm.scheme.parameters import EMBEDDING, HEAD, PLACES
from irwm.scheme.probabilities import rademacher_tail_log10

# (s, d) float32 by weighting and place.
Gradients = dict[str, dict[str, NDArray[np.float32]]]
Partly = Callable[[int, Gradients], None]


def readings_of(
    answers: Answers, model: Checkpoint, keys: Sequence[Key], device: str, progress: Progress | None, decoys: int = 0
) -> list[list[Evidence]]:
    """For each place and weighting the evidence of every key, in the keys' order, and then of `decoys` recipients who
    were never issued a copy; empty if no key has noise.

    Which readings are made depends only on what is given, never on what they show.

    Raises:
        As `irwm.answers.tracing.trace_answers`.
    """
    return next(tries_of(answers, model, keys, device, progress, decoys=decoys), [])


def tries_of(
    answers: Answers,
    model: Checkpoint,
    keys: Sequence[Key],
    device: str,
    progress: Progress | None,
    fits: Fits | None = None,
    decoys: int = 0,
    earlier: Callable[[int, list[list[Evidence]]], None] | None = None,
) -> Iterator[list[list[Evidence]]]:
    """The readings of `readings_of`, and then those after each fit; nothing if no key has noise.

    The next try is made only when it is asked for. A caller that ends before must correct for all of them.

    Args:
        earlier: called, before the first readings, with a number of tokens and the readings of the keys from only the
            first tokens, for each of `POINTS` but the last.

    Raises:
        As `irwm.answers.tracing.trace_answers`.
    """
    if not keys:
        raise ParameterError("there is no key to trace", expected="at least one key")
    answers.check_tokens(model)
    for key in keys:
        check_geometry(key, model)
    for key in {key.model_fingerprint: key for key in keys}.values():  # all keys of a fingerprint share an original
        check_original(key, model)
    if not any(key.parameters.noise_coordinates for key in keys):
        return
    places = places_of(keys, model)

    def readings(by_weighting: Gradients, fit: str, decoys: int) -> list[list[Evidence]]:
        found = []
        for weighting, per_place in by_weighting.items():
            by = f"{weighting}, {fit}" if fit else weighting
            for place, values in per_place.items():
                part = model if place == EMBEDDING else model.output_head
                assert part is not None
                found.append(_evidence(part, values, keys, place, by, decoys))
        return found

    def partly(tokens: int, so_far: Gradients) -> None:
        assert earlier is not None
        earlier(tokens, readings(so_far, "", 0))

    of_fits = gradients_by_fit(answers, model, places, device, progress, fits, None if earlier is None else partly)
    for fit, by_weighting in of_fits:
        yield readings(by_weighting, fit, decoys)


def strongest_by_try(tries: Iterable[list[list[Evidence]]]) -> Iterator[list[Evidence]]:
    """After each try, the strongest evidence so far of every key and decoy."""
    best: list[list[Evidence]] = []
    for readings in tries:
        best = [[max(each, key=strength) for each in zip(*best, *readings, strict=True)]]
        yield best[0]


def places_of(keys: Sequence[Key], model: Checkpoint) -> tuple[str, ...]:
    """The places in which any of the keys has a fingerprint."""
    there = (EMBEDDING,) if model.output_head is None else PLACES
    return tuple(place for place in there if any(key.at(place) is not None for key in keys))


def gradients_of(
    answers: Answers, model: Checkpoint, places: Sequence[str], device: str = "cpu", progress: Progress | None = None
) -> Gradients:
    """G = dL/dW (s, d) float32 at the original, by weighting and place; no key has a part in it.

    Raises:
        UnsupportedCheckpointError: transformers cannot run the original, or it does not generate text.
    """
    return next(gradients_by_fit(answers, model, places, device, progress))[1]


def gradients_by_fit(
    answers: Answers,
    model: Checkpoint,
    places: Sequence[str],
    device: str = "cpu",
    progress: Progress | None = None,
    fits: Fits | None = None,
    partly: Partly | None = None,
) -> Iterator[tuple[str, Gradients]]:
    """The gradients at the original, named "", and then those at each fit, named by its kind; no key has a part in any.

    A fit is made to each half of the answers and scored on the other half, and the two gradients are added. `partly` is
    called with the gradients at the original so far and the number of their tokens, for each of `POINTS` but the last.

    Raises:
        AnswersError: too few answers for a fit.
        ParameterError: the original's context is too short for the soft prompt.
        UnsupportedCheckpointError: as `gradients_of`.
    """
    weights = open_weights(model.path, device, layer_by_layer=_exceeds_memory(model, device, len(places)))
    if weights.masked:
        raise UnsupportedCheckpointError(
            "an encoder does not generate text", file=model.path, expected="a model that generates text"
        )
    running, shape = weights.model, (model.vocab_size, model.hidden_size)
    matrices = {place: matrix_of(running, head=place == HEAD, shape=shape) for place in places}
    context = context_of(running)
    whole = Part.of(answers, context, model.vocab_size)
    if fits is None:
        step = Steps(progress, whole.steps).stage(whole.steps, RUNNING)
        yield "", _scored(weights, matrices, whole, step, partly=partly)[0]
        return
    halves = halves_of(answers, fits, context, model.vocab_size)
    steps = Steps(progress, whole.steps + len(fits.kinds) * sum(fits.steps + half.steps for half in halves))
    found, temperature = _scored(weights, matrices, whole, steps.stage(whole.steps, RUNNING), partly=partly)
    yield "", found
    del found  # gigabytes, if the model is large
    for kind in fits.kinds:
        both = []
        for half, other in (halves, halves[::-1]):
            step = steps.stage(fits.steps, FITTING[kind])
            with fitted(running, kind, observed_of(other, temperature), fits, step) as prompt:
                both.append(_scored(weights, matrices, half, steps.stage(half.steps, RUNNING), prompt)[0])
        one, two = both
        for by, place in product(one, places):
            one[by][place] += two[by][place]
        yield kind, one


def _exceeds_memory(model: Checkpoint, device: str, places: int) -> bool:
    """Whether the processor has too little memory for the whole model and the gradients of `places` matrices."""
    free = free_memory()
    if free is None or torch.device(device).type != "cpu":
        return False
    weights = sum(math.prod(tensor.shape) for tensor in model.tensors.values())
    # The sums for both weightings, and the gradient of a batch.
    return 4 * (weights + 3 * places * model.vocab_size * model.hidden_size) > free


def _scored(
    weights: Weights,
    matrices: Mapping[str, torch.nn.Parameter],
    part: Part,
    step: Step,
    prompt: torch.Tensor | None = None,
    partly: Partly | None = None,
) -> tuple[Gradients, float]:
    """The gradients of a part of the answers, and the temperature of their last weighting."""
    running, sequences = weights.model, part.answers.sequences
    own = log_probabilities(running, sequences, part.batches, step, TEMPERATURES, prompt)
    ways = weightings(part.answers, own)
    weighted = [(each.y, each.temperature) for each in ways.values()]
    groups = part.groups if partly else [part.batches]
    found: Gradients = {}
    tokens = 0
    for number, sums in enumerate(
        gradients(running, list(matrices.values()), sequences, groups, weighted, step, prompt)
    ):
        found = {by: dict(zip(matrices, each, strict=True)) for by, each in zip(ways, sums, strict=True)}
        tokens += sum(window.stop - window.first for batch in groups[number] for window in batch)
        if partly and number + 1 < len(groups):
            partly(tokens, found)
    return found, weighted[-1][1]


def _evidence(
    model: Checkpoint, values: NDArray[np.float32], keys: Sequence[Key], place: str, by: str, decoys: int
) -> list[Evidence]:
    """The evidence of every key and decoy in one place, by one weighting; z is NaN for a key without noise there.

    Args:
        model: the original, or its output head.
        values: (s, d) the gradient.
    """
    z, rows = np.full(len(keys) + decoys, np.nan), np.zeros(len(keys) + decoys, dtype=np.int64)
    groups, end = Group.all_of(keys, place), len(keys)
    for index, group in enumerate(groups):
        # Each group gets its share of the decoys, drawn from its own secret.
        count = decoys // len(groups) + (index < decoys % len(groups))
        extra = tuple(group.derivation.decoy_noise_key(number) for number in range(1, count + 1))
        numbers = np.concatenate([group.numbers, np.arange(end, end + count)])
        end += count
        source = Gradient.of(model, values, Basis.derive(group.derivation.basis_key(), model.hidden_size))
        sums = score(task_of(source, (*group.stream_keys, *extra), group.parameters))
        z[numbers], rows[numbers] = sums.z, sums.rows
    log10_p = rademacher_tail_log10(z)
    return [Evidence(FINGERPRINT, place, float(log10_p[i]), by, 1, float(z[i]), int(rows[i])) for i in range(len(z))]


def tries(fits: Fits | None) -> int:
    """How many tries there are, needed or not."""
    return 1 + (len(fits.kinds) if fits else 0)


def strength(evidence: Evidence) -> float:
    """z, and less than any number if there is none."""
    return evidence.z if evidence.z == evidence.z else -math.inf
