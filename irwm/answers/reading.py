"""Reads the fingerprints of keys in answers: every place, by every weighting of the tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from irwm.answers.answers import Answers
from irwm.answers.gradient import Gradient
from irwm.answers.weights import TEMPERATURES, weightings
from irwm.checkpoint import Checkpoint
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.evidence.finding import FINGERPRINT, Evidence
from irwm.evidence.fingerprint import Group, task_of
from irwm.evidence.sign_sums import score
from irwm.inference.likelihood import batches, context_of, gradients, log_probabilities, matrix_of, windows
from irwm.inference.loading import open_weights
from irwm.keys.check_original import check_geometry, check_original
from irwm.keys.key import Key
from irwm.scheme.basis import Basis
from irwm.scheme.parameters import EMBEDDING, HEAD, PLACES
from irwm.scheme.probabilities import rademacher_tail_log10

Progress = Callable[[int, int, str], None]


def readings_of(
    answers: Answers, model: Checkpoint, keys: Sequence[Key], device: str, progress: Progress | None, decoys: int = 0
) -> list[list[Evidence]]:
    """For each place and weighting the evidence of every key, in the keys' order, and then of `decoys` recipients who
    were never issued a copy; empty if no key has noise.

    Which readings are made depends only on what is given, never on what they show.

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
        return []
    places = places_of(keys, model)
    found = []
    for by, per_place in gradients_of(answers, model, places, device, progress).items():
        for place, values in per_place.items():
            part = model if place == EMBEDDING else model.output_head
            assert part is not None
            found.append(_evidence(part, values, keys, place, by, decoys))
    return found


def places_of(keys: Sequence[Key], model: Checkpoint) -> tuple[str, ...]:
    """The places in which any of the keys has a fingerprint."""
    there = (EMBEDDING,) if model.output_head is None else PLACES
    return tuple(place for place in there if any(key.at(place) is not None for key in keys))


def gradients_of(
    answers: Answers, model: Checkpoint, places: Sequence[str], device: str = "cpu", progress: Progress | None = None
) -> dict[str, dict[str, NDArray[np.float32]]]:
    """G = dL/dW (s, d) float32 at the original, by weighting and place; no key has a part in it.

    Raises:
        UnsupportedCheckpointError: transformers cannot run the original, or it does not generate text.
    """
    weights = open_weights(model.path, device)
    if weights.masked:
        raise UnsupportedCheckpointError(
            "an encoder does not generate text", file=model.path, expected="a model that generates text"
        )
    running, shape = weights.model, (model.vocab_size, model.hidden_size)
    matrices = [matrix_of(running, head=place == HEAD, shape=shape) for place in places]
    parts = windows([len(each) for each in answers.sequences], answers.firsts, context_of(running))
    together = batches(parts, model.vocab_size)
    done, total = 0, 2 * len(together)

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total, "Running the original on the answers")

    own = log_probabilities(running, answers.sequences, together, step, TEMPERATURES)
    ways = weightings(answers, own)
    weighted = [(each.y, each.temperature) for each in ways.values()]
    sums = gradients(running, matrices, answers.sequences, together, weighted, step)
    return {by: dict(zip(places, each, strict=True)) for by, each in zip(ways, sums, strict=True)}


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


def strength(evidence: Evidence) -> float:
    """z, and less than any number if there is none."""
    return evidence.z if evidence.z == evidence.z else -math.inf
