"""Insertion (Algorithm 2): solve the marked rows, write them in the checkpoint's own dtype, publish, verify.

Only the marked rows change. Every other byte of the release is the original's, copied and hashed in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm import statistic as stat
from irwm.checkpoint import Checkpoint, Manifest, Patch, open_checkpoint, publish
from irwm.condition import permute_rows
from irwm.detection import detect, reading_of
from irwm.errors import KeyMismatchError, MarginError
from irwm.finding import FOUND, Finding, Reading
from irwm.invariant import invariant
from irwm.keys import Choices, Key, check_original
from irwm.keystream import null_permutations
from irwm.parameters import FEWEST_PERMUTATIONS
from irwm.values import marked_values
from irwm.verdict import FOUND_LOG10_RISK, log10_risk

Progress = Callable[[int, int, str], None]

# Share of the positions that must count right after insertion. An exact mark counts at nearly all of them; less
# means that the dtype or the scale has eaten the margin that robustness needs.
LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A published, marked copy.

    Attributes:
        path: the release folder.
        changed_rows: (l,) ids of the embedding rows that differ from the original.
        manifest: SHA-256 of every file, as written to SHA256SUMS.
        left_out: files of the source folder that were not copied because they would carry unmarked weights.
        bytes_written: size of the release.
        verification: the finding of a detection on what was written.
    """

    path: Path
    changed_rows: NDArray[np.int64]
    manifest: Manifest
    left_out: tuple[str, ...]
    bytes_written: int
    verification: Finding


def insert(
    model: Checkpoint,
    key: Key,
    out_dir: str | Path,
    progress: Progress | None = None,
    device: str = "cpu",
    cancelled: Callable[[], bool] | None = None,
) -> Release:
    """Write a marked copy of `model` to the new folder `out_dir`.

    Args:
        model: the original that `key` was generated from.
        key: the key.
        out_dir: must not exist; appears complete and verified, or not at all.
        progress: called with bytes done, bytes in all and what is being done.
        device: where the invariant is computed.
        cancelled: asked now and then; true stops the work with CancelledError.

    Raises:
        KeyMismatchError: the key belongs to another original.
        MarginError: the mark would not be provable in this dtype; nothing was written.
        PublishError: the folder exists, the disk is full, ...; nothing was published.
    """
    choices = check_key(model, key)
    rows = marked_rows(model, key, choices, device)
    patches = embedding_patches(model, choices.marked_rows, rows)
    found: list[Finding] = []

    def verify(written: Path) -> None:
        if progress:
            progress(0, 1, "verifying the mark in what was written")
        copy = open_checkpoint(written)
        if not torch.equal(copy.embedding(choices.marked_rows), rows.float()):
            raise MarginError("the marked rows read back differ from what was written", file=written)
        finding = detect(copy, model, key, device=device)
        if finding.verdict != FOUND:
            raise MarginError("the written mark is not found again", file=written, found=finding.reason)
        found.append(finding)

    published = publish(model, out_dir, patches, progress=progress, verify=verify, cancelled=cancelled)
    return Release(
        path=published.path,
        changed_rows=choices.marked_rows,
        manifest=published.manifest,
        left_out=published.left_out,
        bytes_written=published.bytes_written,
        verification=found[0],
    )


def check_key(model: Checkpoint, key: Key) -> Choices:
    """The key's choices, once `model` is known to be the key's original by its whole embedding.

    Raises:
        KeyMismatchError: it is not.
    """
    choices = key.choices()
    check_original(key, choices, model)
    if model.fingerprint != key.model_fingerprint:
        raise KeyMismatchError(
            "this key was made for another original model",
            file=model.path,
            expected=f"embedding fingerprint {key.model_fingerprint[:16]}",
            found=model.fingerprint[:16],
            advice="Choose the unmarked original that the key was generated from",
        )
    return choices


def marked_rows(model: Checkpoint, key: Key, choices: Choices, device: str = "cpu") -> torch.Tensor:
    """(l, d) marked rows, rounded to the embedding's dtype (Algorithm 2, lines 15 to 24).

    Raises:
        MarginError: rounding, overflow or the scale leaves too little of the mark to prove it later.
    """
    if key.parameters.permutations < FEWEST_PERMUTATIONS:
        raise MarginError(
            "with so few permutations the mark could never be proved",
            expected=f"at least {FEWEST_PERMUTATIONS}",
            found=str(key.parameters.permutations),
            advice="Generate the key with more permutations",
        )
    a_m = invariant(model, choices.query_tokens, choices.reference_tokens, device=device).cpu().numpy()
    permuted = permute_rows(a_m, choices.constraint_permutations)
    originals = model.embedding(choices.marked_rows).double().numpy()
    values = marked_values(originals, permuted, choices.row_permutations, key.scale)
    rounded = torch.from_numpy(values).to(getattr(torch, model.dtype))
    reading = _margin(rounded, permuted, choices, key)
    least = max(key.parameters.required_positions, math.ceil(LEAST_SHARE * key.parameters.positions))
    if reading.count < least or log10_risk(reading) > FOUND_LOG10_RISK:
        raise MarginError(
            f"the mark does not survive being stored as {model.dtype}",
            file=model.path,
            tensor=model.layout.embedding.name,
            expected=f"at least {least} positions below {key.parameters.rank_threshold:g}, risk below 1e-6",
            found=f"{reading.count} positions, log10 risk {log10_risk(reading):.1f}",
            advice="Choose a smaller scale (or auto), more positions, or another dtype",
        )
    return rounded


def _margin(rounded: torch.Tensor, permuted: NDArray[np.float64], choices: Choices, key: Key) -> Reading:
    """The verdict's own reading of the rounded rows, before anything is written."""
    rows = rounded.double().numpy()
    shuffled = stat.normalised(np.take_along_axis(rows, choices.row_permutations, axis=1))
    weights = stat.joint_map(permuted, key.scale)
    count = key.parameters.permutations  # the key's own number: with it every later detection must find the mark
    null = stat.null_lengths(weights, shuffled, null_permutations(0, count, rows.shape[1]))
    return reading_of("joint", "original", stat.lengths(weights, shuffled), null, key.parameters)


def embedding_patches(model: Checkpoint, row_ids: NDArray[np.int64], rows: torch.Tensor) -> dict[Path, list[Patch]]:
    """The byte ranges that put `rows` in place of the embedding's rows, and of a tied head stored beside it."""
    names = [model.layout.embedding.name]
    head = model.layout.head
    if model.tied and head is not None and torch.equal(model.read(head, row_ids), model.embedding(row_ids)):
        # Tied in the config and stored twice: both copies stay equal. Where they differ already, transformers
        # unties them on loading, and the head is none of the mark's business.
        names.append(head.name)
    raw = rows.contiguous().view(torch.uint8).numpy()
    patches: dict[Path, list[Patch]] = {}
    for name in names:
        entry = model.tensors[name]
        width = raw.shape[1]
        for row, data in sorted(zip(row_ids.tolist(), raw, strict=True), key=lambda pair: pair[0]):
            patches.setdefault(Path(entry.file), []).append(Patch(entry.start + row * width, data.tobytes()))
    return {file: sorted(items, key=lambda patch: patch.start) for file, items in patches.items()}
