"""Checks that an original is the one that a key was made for, and that the key was derived from it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.errors import KeyMismatchError
from irwm.keys.digests import layer0_digest, rows_digest
from irwm.keys.key import Choices, Key, attempt_and_scale
from irwm.keys.neurons import rows_of
from irwm.scheme.parameters import EMBEDDING, HEAD, NEURONS


def check_derivation(key: Key, choices: Choices, a_m: NDArray[np.float64], model: Checkpoint) -> None:
    """Rejects a key whose try or scale was chosen instead of derived.

    Args:
        a_m: (t, d) invariant of the original `model` with the key's noise.

    Raises:
        KeyMismatchError: `attempt` is not the first stable try, or `scale` does not follow from the parameters.
    """
    attempt, scale = attempt_and_scale(key, choices, a_m, model)
    if attempt == key.attempt and math.isclose(scale, key.scale, rel_tol=1e-6):
        return
    raise KeyMismatchError(
        "this key was not derived correctly: its attempt or its scale was chosen freely",
        expected=f"attempt {attempt}, scale {scale:.6g}",
        found=f"attempt {key.attempt}, scale {key.scale:.6g}",
        advice="Do not rely on this key. Ask for the key as it is stored in the vault",
    )


def check_geometry(key: Key, model: Checkpoint) -> None:
    """Rejects an original of another size, before any computation as large as the key's sizes.

    Raises:
        ParameterError: the key has a setting that is out of range.
        KeyMismatchError: another geometry.
    """
    key.parameters.require_ranges()
    shape = (model.vocab_size, model.hidden_size)
    if shape != (key.vocab_size, key.hidden_size):
        raise _mismatch(model, f"an embedding of {key.vocab_size} × {key.hidden_size}", f"{shape[0]} × {shape[1]}")


def check_original(key: Key, model: Checkpoint) -> None:
    """Rejects an original that is not the one the key was made for; the fastest checks come first.

    Raises:
        KeyMismatchError: another geometry, other rows, another layer 0 or another embedding.
    """
    check_rows(key, model)
    check_layer0(key, model)
    check_fingerprint(key, model)
    if key.head is not None:
        check_original(key.head, head_of(key, model))


def placed(key: Key, model: Checkpoint) -> dict[str, tuple[Checkpoint, Key]]:
    """The part of the original `model` that each part of the key marks, by place: the checkpoint, and its output head.

    Raises:
        KeyMismatchError: the key marks an output head that the model lacks.
    """
    parts = {EMBEDDING: (model, key)}
    if key.head is not None:
        parts[HEAD] = head_of(key, model), key.head
    return parts


def head_of(key: Key, model: Checkpoint) -> Checkpoint:
    """The output head of the original `model`, which `key` has a mark in.

    Raises:
        KeyMismatchError: the model has no separate output head.
    """
    if model.output_head is None:
        raise _mismatch(model, "a separate output head", "none, or one whose shape differs from that of the embedding")
    return model.output_head


def check_fingerprint(key: Key, model: Checkpoint) -> None:
    """Rejects an original with another embedding, or with other neurons where the key has a fingerprint. They are
    hashed completely, once: unlike the rows' digest, the fingerprint is part of the derivation. For the key of an
    output head, both matrices' fingerprints are.

    Raises:
        KeyMismatchError: another embedding, or other neurons.
    """
    if model.fingerprint != key.model_fingerprint:
        expected, found = key.model_fingerprint[:16], model.fingerprint[:16]
        raise _mismatch(model, f"fingerprint {expected}", found)
    if model.whole is not None and model.whole.fingerprint != key.embedding_fingerprint:
        raise _mismatch(
            model.whole, f"embedding fingerprint {key.embedding_fingerprint[:16]}", model.whole.fingerprint[:16]
        )
    part = key.fingerprint_at(NEURONS)
    if part is not None:
        rows_of(model, part)


def check_rows(key: Key, model: Checkpoint) -> None:
    """The part of `check_original` that differs from key to key.

    Raises:
        KeyMismatchError: another geometry or other rows.
    """
    check_geometry(key, model)
    check_digest(key, model, *key.rows_read())


def check_digest(
    key: Key, model: Checkpoint, query: NDArray[np.int64], reference: NDArray[np.int64], marked: NDArray[np.int64]
) -> None:
    """Rejects an original whose rows are not those that the key reads.

    Args:
        query, reference, marked: as `Key.rows_read` gives them.

    Raises:
        KeyMismatchError: other rows.
    """
    digest = rows_digest(model, query, reference, marked)
    if digest != key.rows_digest:
        raise _mismatch(
            model, f"the original's rows, with digest {key.rows_digest[:16]}", f"rows with digest {digest[:16]}"
        )


def check_layer0(key: Key, model: Checkpoint) -> None:
    """The part of `check_original` that all keys of an original share.

    Raises:
        KeyMismatchError: another layer 0.
    """
    layer0 = layer0_digest(model.body)
    if layer0 != key.layer0_digest:
        expected, found = f"layer 0 with digest {key.layer0_digest[:16]}", f"layer 0 with digest {layer0[:16]}"
        raise _mismatch(model, expected, found, tensor=model.layout.q.name if model.layout.q else None)


def _mismatch(model: Checkpoint, expected: str, found: str, tensor: str | None = None) -> KeyMismatchError:
    return KeyMismatchError(
        "this key was made for another original model",
        file=model.path,
        tensor=tensor or model.layout.embedding.name,
        expected=expected,
        found=found,
        advice="Choose the unmarked original that the key was generated from",
    )
